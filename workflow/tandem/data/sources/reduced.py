"""A dataset cut down to what validation needs: dev queries, what a reference run found for them, what is relevant.

The corpus is the union over the queries of the run's top `depth` and all relevant passages, as Asyncval (Zhuang and
Zuccon 2022) cuts it: a checkpoint is encoded and searched in minutes where the whole corpus takes hours. `others` more
passages a query are drawn by a hash of their ids.
"""

import heapq
from collections.abc import Iterator

from tandem.data.collection import CORPUS, QUERIES, Collection
from tandem.data.runs import iter_run, ranked_order
from tandem.data.select import VALIDATED as SPLIT
from tandem.data.select import position, subset
from tandem.data.sources import Answers, Judgement, Listed, Passage, Query, Source
from tandem.data.sources.artifact_rows import ArtifactRows, needed
from tandem.errors import UserError
from tandem.store.artifact import Artifact
from tandem.store.job import Job

RUNS = ("bm25", "retrieve", "rerank", "imported", "given", "aggregate", "rerank_windows")


class Reduced(Source):
    """The dev queries of the input `of` (at most `dev_queries`, by hash) over a part of its passages.

    The input `run` is the reference. Its top passages are kept as lists too, none of them called a positive, so that
    the run `given` of the reduced dataset is the reference run again and a cross-encoder can re-rank it.
    """

    PARAMS = frozenset({"depth", "others"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        base = needed(job, "of", "dataset")
        self._base = ArtifactRows(base)
        self._texts = Collection(base).queries(SPLIT)
        self._kept = subset(dict.fromkeys(self._texts, SPLIT), {SPLIT: job.params.get("dev_queries")})
        self._top = {query: docs for query, docs in _top(job, base) if query in self._kept}
        judged = [row for row in self._base.qrels() if row[0] in self._kept and row[3] == SPLIT]
        found = {doc for docs in self._top.values() for doc in docs} | {row[1] for row in judged if row[2] > 0}
        others = job.params.get("others", 0) * len(self._kept)
        self._docs = found | _drawn(Collection(base), found, others)
        self._judged = [row for row in judged if row[2] > 0 or row[1] in self._docs]
        self.places = {"corpus": self._base.place(CORPUS), "queries": self._base.place(QUERIES)}
        self.facts = {"of": base.key, "run": job.inputs["run"].key, "found": len(found)}

    def corpus(self) -> Iterator[Passage]:
        """What was found, is relevant or was drawn, in the order of the whole corpus."""
        return (row for row in self._base.corpus() if row[0] in self._docs)

    def queries(self) -> Iterator[Query]:
        """The dev queries that stay."""
        return ((query, self._texts[query], SPLIT) for query in self._kept)

    def qrels(self) -> Iterator[Judgement]:
        """Their judgements; one of an irrelevant passage only where the passage is here."""
        return iter(self._judged)

    def answers(self) -> Iterator[Answers]:
        """Their answers."""
        return (row for row in self._base.answers() if row[0] in self._kept)

    def lists(self) -> Iterator[Listed]:
        """The reference run's top passages of each query, in its order."""
        return ((query, doc, 0, None) for query, docs in self._top.items() for doc in docs)


def _top(job: Job, base: Artifact) -> Iterator[tuple[str, list[str]]]:
    """(query, the first `depth` documents of the reference run); a `UserError` if the run does not fit."""
    run, depth = job.inputs.get("run"), job.params["depth"]
    if run is None or run.manifest.kind not in RUNS:
        raise UserError(f"dataset {job.key}: the input run is missing or no run; give one of {', '.join(RUNS)}")
    searched, split = run.upstream["dataset"].rstrip("/").rpartition("/")[2], run.params.get("split", SPLIT)
    if (searched, split) != (base.key, SPLIT):
        raise UserError(f"{run.folder}: is a run of split {split} on {searched}; expected {SPLIT} on {base.key}")
    for query, docs, scores in iter_run(run.path("run.trec")):
        yield query, [doc for doc, _ in ranked_order(docs, scores)[:depth]]


def _drawn(collection: Collection, found: set[str], count: int) -> set[str]:
    """So many further passages, those whose ids have the lowest hash: a larger draw contains every smaller one."""
    if not count:
        return set()
    ids = (doc for batch in collection.batches(columns=["doc_id"]) for doc in batch["doc_id"].to_pylist())
    return set(heapq.nsmallest(count, (doc for doc in ids if doc not in found), key=position))
