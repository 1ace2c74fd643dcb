"""Stage `rerank_llm`: a language model reorders the top of a run; the documents below keep their order."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection, contents
from tandem.data.columns import Floats
from tandem.data.runs import followed, iter_run, write_run
from tandem.retrieval.inputs import require_dataset, require_depth
from tandem.retrieval.llm.answers import Answers
from tandem.retrieval.llm.endpoint import at_once, open_answers
from tandem.retrieval.llm.pairwise import pairwise_scores
from tandem.retrieval.llm.prompts import (
    TOKENS_PER_NUMBER,
    WORDS,
    listwise_prompt,
    permutation,
    slide,
    yes_no_prompt,
)
from tandem.stages.retrieval import RerankLlmParams
from tandem.store.job import Job, writing

GROUP = 1024  # queries whose passages are read together

Ranked = tuple[str, list[str]]  # query, and its documents, best first


def scores_of(
    params: RerankLlmParams, query: str, passages: list[str], answers: Answers
) -> tuple[Floats, Counter[str]]:
    """Scores of one query's passages, best highest, shape (passages,), and how many answers had to be `repaired`."""
    if params.method == "pairwise":
        return pairwise_scores(params.form, params.passes, query, passages, answers)
    if params.method == "yes_no":
        prompts = (yes_no_prompt(params.form, params.instruction, query, passage) for passage in passages)
        odds = [answers.compare(prompt, WORDS[params.form]).score for prompt in prompts]
        lowest = min((score for score in odds if score is not None), default=0.0)
        scores = np.array([lowest - 1 if score is None else score for score in odds], np.float32)
        return scores, Counter(repaired=odds.count(None))
    repaired = 0

    def order_of(inside: list[int]) -> list[int]:
        """The model's order of the passages of a window, mended where it is no permutation."""
        nonlocal repaired
        prompt = listwise_prompt(query, [passages[at] for at in inside])
        answer = answers.complete(prompt, TOKENS_PER_NUMBER * len(inside))
        order, mended = permutation(answer.text, len(inside))
        repaired += mended
        return order

    ranked = slide(len(passages), params.window, params.step, order_of)
    scores = np.empty(len(passages), np.float32)
    scores[ranked] = np.arange(len(passages), 0, -1)
    return scores, Counter(repaired=repaired)


def rescored(
    job: Job[RerankLlmParams], answers: Answers, counts: Counter[str], progress: Progress
) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, scores), some queries at a time; the first `depth` documents have the model's scores."""
    params, dataset = job.params, Collection(job.inputs["dataset"])
    texts, run = dataset.query_texts(), iter_run(job.inputs["run"], job.inputs["dataset"])
    source = ((query, docs) for query, docs, _ in run)

    def rescore(ranked: Ranked, stored: dict[str, tuple[str, str]]) -> tuple[Floats, Counter[str]]:
        query, docs = ranked
        passages = [contents(*stored[doc])[: params.characters] for doc in docs[: params.depth]]
        return scores_of(params, texts[query], passages, answers)

    with ThreadPoolExecutor(at_once(job)) as threads:
        while group := list(islice(source, GROUP)):
            stored = dataset.texts({doc for _, docs in group for doc in docs[: params.depth]})
            results = threads.map(rescore, group, [stored] * len(group))
            for (query, docs), (scores, own) in zip(group, results, strict=True):
                counts.update(own)
                progress.add(len(scores))
                yield query, docs, followed(scores, len(docs))


def run(job: Job[RerankLlmParams]) -> None:
    """Write a run as deep as the run; facts count answers, tokens, ties, and answers that had to be repaired.

    Inputs: `dataset`, `run`. An answer is kept before the next question: a stage that is killed asks only what is new.
    """
    require_dataset(job, "run")
    require_depth(job, job.params.depth)
    chat = job.params.form == "chat"
    answers, counts = open_answers(job, chat), Counter(repaired=0)
    try:
        with writing(job) as draft, Progress(f"{job.kind} {job.key}", 0, "passages") as progress:
            lines = write_run(job, draft, rescored(job, answers, counts, progress))
            draft.facts |= {"lines": lines, **answers.counts, **counts}
    finally:
        answers.close()
