"""Which passages are relevant to a query, and which are neither positive nor negative: by qrels or by answers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tandem.artifact import Job
from tandem.data.collection import LITERAL_MATCH, Collection
from tandem.data.rows import IdRows
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.models.template import Ids

NAMES = {"qrels": "qrels", "answers": "answer", "judge": "judge"}  # `labels` → the source of a positive


class Labels:
    """The labels of a split's queries.

    `labels` says where positives come from: `qrels`; `answers`, the first passage of the window that holds an answer
    (RocketQA on Natural Questions); `judge`, from nowhere: the judge decides. With `bar_answers`, and always where
    answers label, no passage that holds an answer is a negative. Memory: some 100 bytes a passage that holds one.
    """

    def __init__(self, job: Job, docs: IdRows) -> None:
        collection, params = Collection(job.inputs["dataset"]), job.params
        split = params["split"]
        self.told, self.docs = params.get("labels", "qrels"), docs
        self.window = slice(params["first_rank"] - 1, params["depth"])
        self.qrels = collection.qrels(split) if self.told == "qrels" else {}
        self.queries = list(self.qrels) if self.told == "qrels" else list(collection.queries(split))
        self.holding = holding(job)

    @property
    def name(self) -> str:
        """What the source of a positive is called."""
        return NAMES[self.told]

    def positives(self, query: str, ids: list[str]) -> Ids:
        """Rows of a query's positives that are in the corpus; `ids` are what the run found, best first."""
        relevant = [doc for doc, relevance in self.qrels.get(query, {}).items() if relevance > 0]
        if self.told == "answers":
            relevant = [doc for doc in ids[self.window] if doc in self.holding.get(query, ())][:1]
        return self._rows(relevant)

    def barred(self, query: str) -> Ids:
        """Rows of the passages that are no negatives: literal matches of the qrels, and what holds an answer."""
        literal = [doc for doc, relevance in self.qrels.get(query, {}).items() if relevance == LITERAL_MATCH]
        return self._rows([*literal, *sorted(self.holding.get(query, ()))])

    def _rows(self, ids: list[str]) -> Ids:
        """Rows of documents, without those that the corpus lacks."""
        rows = self.docs.rows(ids, missing_ok=True)
        return rows[rows >= 0]


def holding(job: Job) -> dict[str, set[str]]:
    """Query id → documents of the run that hold an answer, by the input `match`; nothing without it.

    Raises:
        UserError: the answers were matched in another run.
    """
    if "match" not in job.inputs:
        return {}
    match, run = job.inputs["match"], job.inputs["run"]
    if Path(match.upstream["run"]).name != run.key:
        raise UserError(f"candidates: {match.folder} has matched {match.upstream['run']}; expected {run.folder}")
    found = pq.read_table(match.path("matches.parquet"), columns=["query_id", "doc_id", "relevant"])
    relevant = found.filter(np.asarray(found["relevant"]))
    made: dict[str, set[str]] = {}
    for query, doc in zip(relevant["query_id"].to_pylist(), relevant["doc_id"].to_pylist(), strict=True):
        made.setdefault(query, set()).add(doc)
    return made


RANDOM = 2  # of the draw's seed, beside 0 and 1 for undenoised and denoised lists


def ranked(job: Job, labels: Labels, docs: IdRows, queries: IdRows) -> Iterator[tuple[str, list[str], Ids, Ids]]:
    """(query, ids, rows, scores) of what each query is offered, best first.

    Without the input `run`, `depth` passages drawn from the corpus for every query that has labels; they have no score.
    """
    if "run" in job.inputs:
        for query, ids, scores in iter_run(job.inputs["run"].path("run.trec")):
            yield query, ids, docs.rows(ids), scores
        return
    at = queries.rows(labels.queries)
    for query, row in zip(labels.queries, at, strict=True):
        drawn = at_random(len(docs), job.params["depth"], job.params["seed"], int(row))
        yield query, [], drawn, np.full(len(drawn), np.nan, np.float32)


def at_random(passages: int, count: int, seed: int, query: int) -> Ids:
    """`count` distinct rows of a corpus of so many passages; they follow from (seed, query) alone."""
    rng = np.random.default_rng([seed, RANDOM, query])
    return rng.choice(passages, min(count, passages), replace=False)
