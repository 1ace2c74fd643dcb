"""Stage `rerank_llm`: a language model reorders the top of a run; the documents below keep their order.

By yes or no about each passage, by the order of the passages in a sliding window, or pairwise: two passages are
compared in both orders, since models favour one of the places.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import combinations, islice

import numpy as np
from scipy.special import expit

from tandem.cluster.progress import Progress, warn
from tandem.data.collection import Collection, contents
from tandem.data.columns import Floats
from tandem.data.runs import falling, followed, iter_run, write_run
from tandem.retrieval.inputs import require_dataset, require_depth
from tandem.retrieval.llm import Answers, at_once, open_answers, prompts
from tandem.stages.retrieval import RerankLlmParams
from tandem.store.job import Job, writing

GROUP = 1024  # queries whose passages are read together
TIE = 0.5
MANY = 0.01  # a larger share of answers that are repaired is worth a warning

Prefer = Callable[[int, int], float]  # how far the first of two passages is preferred: 1, 0, or 1/2 for a tie
Scored = tuple[Floats, Counter[str]]  # scores of one query's passages, best highest, and what is counted of its answers


def wins(first: float | None, second: float | None) -> float:
    """1 or 0 if both orders name the same passage, else a tie (PRP, Qin et al. 2023).

    Args:
        first, second: log-odds for the passage that is named first, where that is passage i, and where it is passage j;
            None where the model named neither.
    """
    if first is None or second is None:
        return TIE
    if first > 0 > second:
        return 1.0
    return 0.0 if first < 0 < second else TIE


def probability(first: float | None, second: float | None) -> float:
    """(p_ij + 1 - p_ji) / 2: half of a term of SYM-SUM (duoT5, Pradeep et al. 2021). Arguments as of `wins`."""
    if first is None or second is None:
        return TIE
    return float((expit(first) + 1 - expit(second)) / 2)


def all_pairs(count: int, prefer: Prefer) -> Floats:
    """Each passage's sum of preferences over all others; of equal sums the earlier is higher by the least bit."""
    sums = np.zeros(count)
    for i, j in combinations(range(count), 2):
        share = prefer(i, j)
        sums[i] += share
        sums[j] += 1 - share
    order = np.argsort(-sums.astype(np.float32), kind="stable")
    scores = np.empty(count, np.float32)
    scores[order] = [score for _, score in falling(("", float(np.float32(sums[at]))) for at in order)]
    return scores


def bubble(count: int, passes: int, prefer: Prefer) -> list[int]:
    """The order after some passes from the end to the top, in which neighbours change places (PRP-Sliding-K).

    Σ_p (count - p) comparisons, p from 1 to `passes`; the first `passes` places are then settled. Ties change nothing.
    """
    ranked = list(range(count))
    for settled in range(min(passes, count - 1)):
        for at in range(count - 1, settled, -1):
            if prefer(ranked[at], ranked[at - 1]) > TIE:
                ranked[at - 1 : at + 1] = ranked[at], ranked[at - 1]
    return ranked


def by_places(ranked: list[int]) -> Floats:
    """Scores that fall by one from place to place, shape (passages,)."""
    scores = np.empty(len(ranked), np.float32)
    scores[ranked] = np.arange(len(ranked), 0, -1)
    return scores


def pairwise(params: RerankLlmParams, query: str, passages: list[str], answers: Answers) -> Scored:
    """Score by all pairs, or by `passes` of `bubble`; counts `ties`, and unclear answers as `repaired`."""
    counts: Counter[str] = Counter(ties=0, repaired=0)
    decide = probability if params.form == "duot5" else wins

    @cache
    def prefer(i: int, j: int) -> float:
        pairs = (prompts.pair_prompt(params.form, query, passages[a], passages[b]) for a, b in ((i, j), (j, i)))
        odds = [answers.compare(prompt, prompts.PAIR_WORDS[params.form]).score for prompt in pairs]
        share = decide(*odds)
        counts.update(ties=share == TIE, repaired=odds.count(None))
        return share

    if params.passes is None:
        return all_pairs(len(passages), prefer), counts
    return by_places(bubble(len(passages), params.passes, prefer)), counts


def yes_no(params: RerankLlmParams, query: str, passages: list[str], answers: Answers) -> Scored:
    """Score by the log-odds that a passage is relevant; passages without an answer come last, in the run's order."""
    questions = (prompts.yes_no_prompt(params.form, params.instruction, query, passage) for passage in passages)
    odds = [answers.compare(prompt, prompts.WORDS[params.form]).score for prompt in questions]
    lowest = min((score for score in odds if score is not None), default=0.0)
    filled = [lowest - 1 - place if score is None else score for place, score in enumerate(odds)]
    scores = np.array(filled, np.float32)
    return scores, Counter(repaired=odds.count(None))


def listwise(params: RerankLlmParams, query: str, passages: list[str], answers: Answers) -> Scored:
    """Score by the model's order of each window, which is repaired if it is no permutation."""
    counts: Counter[str] = Counter(repaired=0)

    def order_of(inside: list[int]) -> list[int]:
        prompt = prompts.listwise_prompt(query, [passages[at] for at in inside])
        answer = answers.complete(prompt, prompts.TOKENS_PER_NUMBER * len(inside))
        order, mended = prompts.permutation(answer.text, len(inside))
        counts.update(repaired=mended)
        return order

    return by_places(prompts.slide(len(passages), params.window, params.step, order_of)), counts


METHODS = {"pairwise": pairwise, "yes_no": yes_no, "listwise": listwise}


def rescored(
    job: Job[RerankLlmParams], answers: Answers, counts: Counter[str], progress: Progress
) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, scores), some queries at a time; the first `depth` documents have the model's scores."""
    params, dataset = job.params, Collection(job.inputs["dataset"])
    texts, run = dataset.query_texts(), iter_run(job.inputs["run"], job.inputs["dataset"])
    source = ((query, docs) for query, docs, _ in run)
    with ThreadPoolExecutor(at_once(job)) as threads:
        while group := list(islice(source, GROUP)):
            stored = dataset.texts({doc for _, docs in group for doc in docs[: params.depth]})

            def rescore(ranked: tuple[str, list[str]], stored: dict[str, tuple[str, str]] = stored) -> Scored:
                query, docs = ranked
                passages = [contents(*stored[doc])[: params.characters] for doc in docs[: params.depth]]
                return METHODS[params.method](params, texts[query], passages, answers)

            for (query, docs), (scores, own) in zip(group, threads.map(rescore, group), strict=True):
                counts.update(own)
                progress.add(len(scores))
                yield query, docs, followed(scores, len(docs))


def run(job: Job[RerankLlmParams]) -> None:
    """Write a run as deep as the run; facts count answers, tokens, ties, and answers that had to be repaired.

    Inputs: `dataset`, `run`. An answer is kept before the next question: a stage that is killed asks only what is new.
    """
    require_dataset(job, "run")
    require_depth(job, job.params.depth)
    answers, counts = open_answers(job, chat=job.params.form == "chat"), Counter(repaired=0)
    try:
        with writing(job) as draft, Progress(f"{job.kind} {job.key}", 0, "passages") as progress:
            lines = write_run(job, draft, rescored(job, answers, counts, progress))
            draft.facts |= {"lines": lines, **answers.counts, **counts}
            total = answers.counts["asked"] + answers.counts["known"]
            if counts["repaired"] > MANY * total:
                warn(job, draft, f"{counts['repaired']:,} of {total:,} answers did not say what was asked for")
    finally:
        answers.close()
