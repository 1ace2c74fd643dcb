"""Stage `rerank_llm`: a language model reorders the top of a run; the documents below keep their order."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection, contents
from tandem.data.runs import Floats, followed, iter_run, ranked_order, write_run
from tandem.models.device import use_workers
from tandem.retrieval.inputs import require_dataset, require_depth
from tandem.retrieval.llm.answers import Answers, Model
from tandem.retrieval.llm.endpoint import Server
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


def open_model(job: Job[RerankLlmParams]) -> Model:
    """The model in this process, or the server's."""
    params, endpoint = job.params, job.execution.endpoint
    if endpoint is not None:
        return Server(endpoint, params.model)
    from tandem.retrieval.llm.local import LocalModel  # torch: not for those who ask a server

    chat = params.method == "listwise" or params.form == "chat"
    return LocalModel(params.model, params.revision, params.precision, chat)


def answers_file(job: Job[RerankLlmParams]) -> Path:
    """Where the model's answers for a dataset are kept: `results/<dataset>/answers/<model>.sqlite`."""
    identity = job.params.model_dump(mode="json", include={"model", "revision", "fingerprint", "url", "precision"})
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
    return job.out.parent.parent / "answers" / f"{Path(job.params.model).name}-{digest}.sqlite"


def scores_of(params: RerankLlmParams, query: str, passages: list[str], answers: Answers) -> tuple[Floats, int]:
    """Scores of one query's passages, best highest, shape (passages,), and how many answers had to be repaired."""
    if params.method == "yes_no":
        prompts = (yes_no_prompt(params.form, params.instruction, query, passage) for passage in passages)
        odds = [answers.compare(prompt, WORDS[params.form]).score for prompt in prompts]
        lowest = min((score for score in odds if score is not None), default=0.0)
        scores = np.array([lowest - 1 if score is None else score for score in odds], np.float32)
        return scores, sum(score is None for score in odds)
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
    return scores, repaired


def rescored(
    job: Job[RerankLlmParams], answers: Answers, repaired: Counter[str], progress: Progress
) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, scores), some queries at a time; the first `depth` documents have the model's scores."""
    params, dataset = job.params, Collection(job.inputs["dataset"])
    texts, run = dataset.query_texts(), iter_run(job.inputs["run"].path("run.trec"))
    source = ((query, [doc for doc, _ in ranked_order(listed, scores)]) for query, listed, scores in run)

    def rescore(ranked: Ranked, stored: dict[str, tuple[str, str]]) -> tuple[Floats, int]:
        query, docs = ranked
        passages = [contents(*stored[doc])[: params.characters] for doc in docs[: params.depth]]
        return scores_of(params, texts[query], passages, answers)

    with ThreadPoolExecutor(job.execution.endpoint.at_once if job.execution.endpoint else 1) as threads:
        while group := list(islice(source, GROUP)):
            stored = dataset.texts({doc for _, docs in group for doc in docs[: params.depth]})
            results = threads.map(rescore, group, [stored] * len(group))
            for (query, docs), (scores, mended) in zip(group, results, strict=True):
                repaired["repaired"] += mended
                progress.add(len(scores))
                yield query, docs, followed(scores, len(docs))


def run(job: Job[RerankLlmParams]) -> None:
    """Write `run.trec`, as deep as the run; facts count answers, tokens and answers that had to be repaired.

    Inputs: `dataset`, `run`. An answer is kept before the next question: a stage that is killed asks only what is new.
    """
    use_workers(job.execution.workers)
    require_dataset(job, "run")
    require_depth(job, job.params.depth)
    answers, repaired = Answers(answers_file(job), lambda: open_model(job)), Counter(repaired=0)
    try:
        with writing(job) as draft, Progress(f"{job.kind} {job.key}", 0, "passages") as progress:
            lines = write_run(draft.path("run.trec"), rescored(job, answers, repaired, progress), job.key)
            draft.facts |= {"lines": lines, **answers.counts, **repaired}
    finally:
        answers.close()
