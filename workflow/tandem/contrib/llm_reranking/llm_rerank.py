"""Stage `rerank_llm`: a language model reorders the top of a run; the documents below keep their order.

There are three methods: yes or no about each passage, the order of the passages in a sliding window, and pairwise. The
last compares two passages in both orders, since models favour one of the positions.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from tandem.cluster.progress import Progress, warn
from tandem.contrib.llm_reranking.options import RerankLlmParams
from tandem.data.collection import Collection, join_contents
from tandem.data.columns import Floats
from tandem.data.runs import append_below, iter_run, write_run
from tandem.errors import UserError
from tandem.extras.language_models import prompts
from tandem.extras.language_models.answers import (
    AnswerStore,
    ModelAnswer,
    count_at_once,
    open_answers,
)
from tandem.extras.tied_scores import break_ties_by_place
from tandem.retrieval.inputs import require_dataset, require_run_depth
from tandem.store.job import Job, writing

_QUERIES_PER_GROUP = 1024  # queries whose passages are read together
_TIE = 0.5
# a larger share of repaired or unlikely answers is worth a warning
_WORTH_A_WARNING = 0.01
ANSWERS_BEFORE_REFUSAL = 100  # answers after which a model that mostly says neither word is refused

# how much the first of two passages is preferred: 1, 0, or 1/2 for a tie
_Prefer = Callable[[int, int], float]


class ScoredQuery(NamedTuple):
    """Scores of one query's passages, the best one highest, and counts of the model's answers.

    Attributes:
        beginnings: the likeliest first words of answers that count as `unlikely`.
    """

    scores: Floats
    counts: Counter[str]
    beginnings: Counter[str]


def compare_orders(first: float | None, second: float | None) -> float:
    """Return 1 or 0 if both orders name the same passage, else a tie (PRP, Qin et al. 2023).

    Args:
        first, second: log-odds for the passage that comes first in the prompt: passage i in `first`, passage j in
            `second`. None if the model named neither.
    """
    if first is None or second is None:
        return _TIE
    if first > 0 > second:
        return 1.0
    return 0.0 if first < 0 < second else _TIE


def average_orders(first: float | None, second: float | None) -> float:
    """Return (p_ij + 1 - p_ji) / 2: half of a term of SYM-SUM (duoT5, Pradeep et al. 2021).

    The arguments are those of `compare_orders`.
    """
    if first is None or second is None:
        return _TIE
    return float((expit(first) + 1 - expit(second)) / 2)


def sum_all_pairs(count: int, prefer: _Prefer) -> Floats:
    """Return each passage's sum of preferences over all others.

    Among equal sums, that of the earlier passage is higher by the least bit.
    """
    sums = np.zeros(count)
    for i, j in combinations(range(count), 2):
        share = prefer(i, j)
        sums[i] += share
        sums[j] += 1 - share
    return break_ties_by_place(sums)


def order_by_bubbles(count: int, passes: int, prefer: _Prefer) -> list[int]:
    """Return the order after some passes from the end to the top that swap neighbours (PRP-Sliding-K).

    There are Σ_p (count - p) comparisons, p from 1 to `passes`; afterwards, the first `passes` places are final. Ties
    change nothing.
    """
    ranked = list(range(count))
    for settled in range(min(passes, count - 1)):
        for at in range(count - 1, settled, -1):
            if prefer(ranked[at], ranked[at - 1]) > _TIE:
                ranked[at - 1 : at + 1] = ranked[at], ranked[at - 1]
    return ranked


def score_places(ranked: list[int]) -> Floats:
    """Return scores that fall by one from place to place, shape (passages,)."""
    scores = np.empty(len(ranked), np.float32)
    scores[ranked] = np.arange(len(ranked), 0, -1)
    return scores


def score_pairwise(
    params: RerankLlmParams, query: str, passages: list[str], answers: AnswerStore
) -> ScoredQuery:
    """Score by all pairs, or by `passes` of `order_by_bubbles`; count `ties`, and answers like `count_words`."""
    ties = 0
    compared = list[ModelAnswer]()
    decide = average_orders if params.form == "duot5" else compare_orders

    @cache
    def prefer(i: int, j: int) -> float:
        """Return how much passage i is preferred to j, from questions in both orders; count ties."""
        pairs = (
            prompts.write_pair_prompt(params.form, query, passages[a], passages[b])
            for a, b in ((i, j), (j, i))
        )
        first, second = (
            answers.compare(prompt, prompts.PAIR_WORDS[params.form]) for prompt in pairs
        )
        nonlocal ties
        share = decide(first.score, second.score)
        ties += share == _TIE
        compared.extend((first, second))
        return share

    if params.passes is None:
        scores = sum_all_pairs(len(passages), prefer)
    else:
        scores = score_places(order_by_bubbles(len(passages), params.passes, prefer))
    counts, beginnings = count_words(compared, params.unlikely_below)
    counts.update(ties=ties)
    return ScoredQuery(scores, counts, beginnings)


def score_yes_no(
    params: RerankLlmParams, query: str, passages: list[str], answers: AnswerStore
) -> ScoredQuery:
    """Score by the log-odds that a passage is relevant; passages without an answer come last, in the run's order."""
    questions = (
        prompts.write_yes_no_prompt(params.form, params.instruction, query, passage)
        for passage in passages
    )
    compared = [answers.compare(prompt, prompts.ANSWER_WORDS[params.form]) for prompt in questions]
    odds = [answer.score for answer in compared]
    lowest = min((score for score in odds if score is not None), default=0.0)
    filled = []
    for place, score in enumerate(odds):
        filled.append(lowest - 1 - place if score is None else score)
    scores = np.array(filled, np.float32)
    return ScoredQuery(scores, *count_words(compared, params.unlikely_below))


def count_words(
    compared: Sequence[ModelAnswer], unlikely_below: float
) -> tuple[Counter[str], Counter[str]]:
    """Return counts of the answers, and the likeliest first words of answers in which both words are unlikely.

    `compared` counts all answers. `repaired` counts those without either word among the model's likely tokens.
    `unlikely` counts those in which both words together are less probable than `unlikely_below`.
    """
    unlikely = [answer.text for answer in compared if (answer.share or 0.0) < unlikely_below]
    repaired = sum(answer.score is None for answer in compared)
    return Counter(compared=len(compared), repaired=repaired, unlikely=len(unlikely)), Counter(
        unlikely
    )


def refuse_unlikely(
    params: RerankLlmParams, counts: Counter[str], beginnings: Counter[str]
) -> None:
    """Refuse a model most of whose answers are something other than the two words: their odds would be noise."""
    if 2 * counts["unlikely"] <= counts["compared"]:
        return
    words = prompts.PAIR_WORDS if params.method == "pairwise" else prompts.ANSWER_WORDS
    either = " and ".join(map(repr, words[params.form]))
    [(likeliest, _)] = beginnings.most_common(1)
    found = f"{counts['unlikely']:,} of the first {counts['compared']:,} answers give {either} together a probability"
    problem = f"{found} below {params.unlikely_below:g} (most begin with {likeliest!r})"
    thinks = "of a model that thinks first, chat_template_kwargs: {enable_thinking: false} may turn that off"
    raise UserError(
        f"{params.model}: {problem}; {thinks}; else take method listwise, or lower unlikely_below"
    )


def rank_listwise(
    params: RerankLlmParams, query: str, passages: list[str], answers: AnswerStore
) -> ScoredQuery:
    """Score by the model's order of each window, which is repaired if it is not a permutation."""
    counts: Counter[str] = Counter(repaired=0)

    def order_of(inside: list[int]) -> list[int]:
        prompt = prompts.write_listwise_prompt(query, [passages[at] for at in inside])
        answer = answers.complete(prompt, prompts.TOKENS_PER_NUMBER * len(inside))
        order, mended = prompts.read_permutation(answer.text, len(inside))
        counts.update(repaired=mended)
        return order

    return ScoredQuery(
        score_places(prompts.order_by_windows(len(passages), params.window, params.step, order_of)),
        counts,
        Counter(),
    )


_METHODS = {"pairwise": score_pairwise, "yes_no": score_yes_no, "listwise": rank_listwise}


def rerank_run(
    job: Job[RerankLlmParams], answers: AnswerStore, counts: Counter[str], progress: Progress
) -> Iterator[tuple[str, list[str], Floats]]:
    """Yield (query, documents, scores), a group of queries at a time; the first `depth` documents have model scores.

    Answers are counted in `counts`; see also `refuse_unlikely`.
    """
    beginnings = Counter[str]()
    params = job.params
    dataset = Collection(job.inputs["dataset"])
    texts = dataset.query_texts()
    run = iter_run(job.inputs["run"], job.inputs["dataset"])
    source = ((query, docs) for query, docs, _ in run)
    with ThreadPoolExecutor(count_at_once(job)) as threads:
        while group := list(islice(source, _QUERIES_PER_GROUP)):
            stored = dataset.texts({doc for _, docs in group for doc in docs[: params.depth]})

            def rescore(
                ranked: tuple[str, list[str]], stored: dict[str, tuple[str, str]] = stored
            ) -> ScoredQuery:
                """Return the scores of a query's passages by the method."""
                query, docs = ranked
                passages = [
                    join_contents(*stored[doc])[: params.characters] for doc in docs[: params.depth]
                ]
                return _METHODS[params.method](params, texts[query], passages, answers)

            for (query, docs), result in zip(group, threads.map(rescore, group), strict=True):
                counts.update(result.counts)
                beginnings.update(result.beginnings)
                if counts["compared"] >= ANSWERS_BEFORE_REFUSAL:
                    refuse_unlikely(params, counts, beginnings)
                progress.add(len(result.scores))
                yield query, docs, append_below(result.scores, len(docs))
    refuse_unlikely(params, counts, beginnings)


def run(job: Job[RerankLlmParams]) -> None:
    """Write a run as deep as the input `run`; facts count answers, tokens, ties, and repaired or unlikely answers.

    Inputs: `dataset`, `run`. Each answer is stored before the next question, so that a stage that was killed asks only
    new questions.
    """
    require_dataset(job, "run")
    require_run_depth(job, job.params.depth)
    answers = open_answers(job, prompts.TEMPLATES[job.params.form])
    counts = Counter(repaired=0)
    try:
        with writing(job) as draft, Progress(f"{job.kind} {job.key}", 0, "passages") as progress:
            lines = write_run(job, draft, rerank_run(job, answers, counts, progress))
            total = answers.counts["asked"] + answers.counts["known"]
            del counts["compared"]  # the sum of `asked` and `known`
            draft.facts |= {"lines": lines, **answers.counts, **counts}
            if counts["unlikely"] > _WORTH_A_WARNING * total:
                problem = f"{counts['unlikely']:,} of {total:,} answers hardly ever begin with one of the two words"
                warn(
                    job,
                    draft,
                    f"{problem} that are compared (unlikely_below): their scores are noise",
                )
            elif counts["repaired"] > _WORTH_A_WARNING * total:
                warn(
                    job,
                    draft,
                    f"{counts['repaired']:,} of {total:,} answers did not say what was asked for",
                )
    finally:
        answers.close()
