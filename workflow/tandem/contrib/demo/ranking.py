"""Answer queries: rank passages as the stages of a system's run would rank them, and score them by any part."""

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandem.cluster.progress import say
from tandem.contrib.demo.systems import BM25, CROSS, DUAL, SystemPart, find_part, list_source_runs
from tandem.contrib.demo.workers import Worker
from tandem.data import tables
from tandem.data.collection import CORPUS, QRELS, QUERIES
from tandem.data.forms import compose_text
from tandem.data.rows import PassageOrder
from tandem.data.runs import append_below, order_by_score
from tandem.extras.serving import PartQuestion, served_fusion
from tandem.extras.tied_scores import break_ties_by_place
from tandem.plan.graph import Stage
from tandem.stages.base import Json
from tandem.stages.data import DatasetParams
from tandem.store.artifact import open_artifact

# the workers that serve a part
_ROLES_BY_COLUMN = {BM25: ["bm25"], DUAL: ["vectors", "models"], CROSS: ["models"]}
RankedDocs = list[tuple[str, float]]  # document id and score, best first


@dataclass(frozen=True)
class KnownQuery:
    """A query of the collection; `relevant` is None if the collection has no judgements for the query's split."""

    query: str
    split: str
    relevant: frozenset[str] | None


@dataclass(frozen=True)
class AnswerPassage:
    """One passage of an answer.

    Attributes:
        score: by the system, as in its run.
        scores: label of each part → its score. None if BM25's list, which is as deep as its runs, lacks the passage, or
            if the passage is below the depth that the system's cross-encoder re-ranks.
        relevant: whether it is judged relevant; None if the query is not one of the collection's.
    """

    doc_id: str
    title: str
    text: str
    score: float
    scores: dict[str, float | None]
    relevant: bool | None


@dataclass(frozen=True)
class QueryAnswer:
    """The passages for a query, best first, the same query in the collection, if any, and milliseconds by task."""

    query: str
    known: KnownQuery | None
    passages: list[AnswerPassage]
    milliseconds: dict[str, float]


class Session:
    """Load a system once and search it many times; a context manager: workers run while it is open.

    Args:
        run: the stage of the run of the expression `system`.
        parts: the parts that score passages, each once; the parts of the run come first.
        split: the run's split.
        plugins: the configuration's plugins.
    """

    def __init__(
        self,
        system: str,
        run: Stage,
        parts: list[SystemPart],
        split: str,
        plugins: Iterable[str] = (),
    ) -> None:
        self.system, self.run, self.parts, self.split = system, run, parts, split
        self.plugins = plugins
        self.workers: dict[str, Worker] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Start every worker, read the collection meanwhile, and wait for all."""
        began = time.monotonic()
        say(f"search {self.system} · loading {', '.join(scorer.label for scorer in self.parts)}")
        by_role: dict[str, dict[str, Json]] = {}
        for scorer in self.parts:
            inputs = {role: stage.folder for role, stage in scorer.needs.items()}
            for role in _ROLES_BY_COLUMN[scorer.column]:
                data = {"column": scorer.column, "params": scorer.params, "inputs": inputs}
                by_role.setdefault(role, {})[scorer.key] = data
        with ExitStack() as opened:
            for role, parts in by_role.items():
                self.workers[role] = opened.enter_context(Worker(role, parts, self.plugins))
            dataset = open_artifact(Path(self.parts[0].needs["dataset"].folder), verify=False)
            self.normalize = dataset.params_as(DatasetParams).normalize
            self.ids, self._corpus = (
                PassageOrder(dataset),
                opened.enter_context(tables.open_parquet(dataset.path(CORPUS))),
            )
            groups = map(self._corpus.metadata.row_group, range(self._corpus.num_row_groups))
            # first row of each row group
            self._starts = np.cumsum([0, *(group.num_rows for group in groups)])
            self._queries, self._qrels = (
                pq.read_table(dataset.path(name)) for name in (QUERIES, QRELS)
            )
            for worker in self.workers.values():
                worker.receive()
            self._open = opened.pop_all()
        self.loaded = time.monotonic() - began
        say(f"search {self.system} · {self._starts[-1]:,} passages · loaded in {self.loaded:.1f} s")
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def ask(self, role: str, scorer: SystemPart, **question: Unpack[PartQuestion]) -> Any:
        """Return a worker's answer about one of its parts."""
        return self.workers[role].ask({**question, "part": scorer.key})

    def texts(self, rows: list[int]) -> list[tuple[str, str]]:
        """Return (title, text) of some rows of the corpus; each row group that holds one is read once."""
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        texts: dict[int, tuple[str, str]] = {}
        for group in np.unique(groups).tolist():
            own = [row for row, row_group in zip(rows, groups, strict=True) if row_group == group]
            table = self._corpus.read_row_group(group, columns=["title", "text"])
            taken = table.take(pa.array([row - self._starts[group] for row in own]))
            texts.update(zip(own, tables.iterate_rows(taken), strict=True))
        return [texts[row] for row in rows]

    def find(self, text: str) -> KnownQuery | None:
        """Return the collection's query with exactly this text, preferably of `split`; None if there is none."""
        same = self._queries.filter(pc.equal(self._queries["text"], text)).to_pylist()
        if not same:
            return None
        row = next((row for row in same if row["split"] == self.split), same[0])
        query, split, qrels = row["query_id"], row["split"], self._qrels

        if not pc.any(pc.equal(qrels["split"], split)).as_py():
            return KnownQuery(query, split, None)
        relevant = pc.and_(pc.equal(qrels["query_id"], query), pc.greater(qrels["relevance"], 0))
        return KnownQuery(query, split, frozenset(qrels.filter(relevant)["doc_id"].to_pylist()))


def answer_query(session: Session, query: str, count: int) -> QueryAnswer:
    """Return the best `count` passages for a query, which is first put into the Unicode form of the dataset's texts."""
    began = time.monotonic()
    query = compose_text(query, session.normalize)
    ranking = QueryRanking(session, query)
    best = ranking.ranked(session.run, count)[:count]
    docs = [doc for doc, _ in best]
    columns = {part.label: ranking.scores(part, docs) for part in session.parts}

    known = session.find(query)
    texts = session.texts(session.ids.rows(docs).tolist())
    passages = []
    for (doc, score), (title, text) in zip(best, texts, strict=True):
        scores = {label: own.get(doc) for label, own in columns.items()}
        relevant = None
        if known and known.relevant is not None:
            relevant = doc in known.relevant
        passages.append(AnswerPassage(doc, title, text, score, scores, relevant))
    milliseconds = {**ranking.milliseconds, "total": 1000 * (time.monotonic() - began)}
    return QueryAnswer(query, known, passages, milliseconds)


class QueryRanking:
    """Rank passages for one query; each part's result is computed once and kept."""

    def __init__(self, session: Session, query: str) -> None:
        self.session, self.query = session, query
        self.milliseconds: dict[str, float] = {}
        self._vectors: dict[str, list[float] | list[list[float]]] = {}
        self._scores: dict[str, dict[str, float]] = {}

    def ranked(self, run: Stage, depth: int) -> RankedDocs:
        """Return the first `depth` passages of a run, or more; best first, with the run's scores."""
        if run.declared.scoring.by == "fusion":
            return self._fused(run)
        part = find_part(run)
        if part.column == CROSS:
            first_depth = max(depth, run.values["depth"])
            return self._reranked(part, self.ranked(run.upstream["run"], first_depth))

        if part.column == BM25:
            hits = self._listed(part, depth)
        else:
            vector = self._vector(part)
            # search an index as deep as its runs do: the depth affects which passages it finds
            if "index" in part.needs:
                depth = max(depth, part.params["depth"])
            with self._timed("search"):
                hits = list(
                    zip(*self.session.ask("vectors", part, vector=vector, depth=depth), strict=True)
                )
        self._scores[part.key] = dict(hits)
        return order_by_score(*zip(*hits, strict=True)) if hits else []

    def scores(self, part: SystemPart, docs: list[str]) -> dict[str, float]:
        """Return a part's scores of passages that another part may have retrieved."""
        if part.column == BM25:
            if part.key not in self._scores:
                self._scores[part.key] = dict(self._listed(part, 1))
        elif part.column == DUAL:
            known = self._scores.setdefault(part.key, {})
            missing = [doc for doc in docs if doc not in known]
            if missing:
                known.update(self._score(part, missing))
        elif part.key not in self._scores:
            self._scores[part.key] = self._score(part, docs)
        return self._scores[part.key]

    def _listed(self, scorer: SystemPart, depth: int) -> RankedDocs:
        """Return BM25's list, at least as deep as its runs, so that most passages of other systems have a score."""
        with self._timed("BM25"):
            deep = max(depth, scorer.params["depth"])
            return [
                (doc, score)
                for doc, score in self.session.ask("bm25", scorer, query=self.query, depth=deep)
            ]

    def _reranked(self, scorer: SystemPart, first: RankedDocs) -> RankedDocs:
        """Return the list with its top re-ranked by a cross-encoder; deeper passages follow in their old order."""
        top = [doc for doc, _ in first[: scorer.params["depth"]]]
        scores = self._score(scorer, top) if top else {}
        self._scores.setdefault(scorer.key, {}).update(scores)
        logits = np.array([scores[doc] for doc in top], np.float32)
        return order_by_score([doc for doc, _ in first], append_below(logits, len(first)))

    def _fused(self, run: Stage) -> RankedDocs:
        """Return a fusion of runs, each as deep as its stage."""
        lists, scored_depths = [], []
        for member in list_source_runs(run):
            hits = self.ranked(member, _find_depth(member))
            # as the member's run stores them: a tied score is the next lower one
            scores = break_ties_by_place(np.array([score for _, score in hits], np.float32))
            lists.append(([doc for doc, _ in hits], scores))
            scored_depths.append(
                member.values["depth"] if member.declared.scoring.of == "top" else None
            )
        docs, best_scores = served_fusion[run.kind](run, lists, scored_depths)
        return list(zip(docs, best_scores.tolist(), strict=True))

    def _vector(self, scorer: SystemPart) -> list[float] | list[list[float]]:
        if scorer.key not in self._vectors:
            with self._timed("encode"):
                self._vectors[scorer.key] = self.session.ask("models", scorer, query=self.query)
        return self._vectors[scorer.key]

    def _score(self, scorer: SystemPart, docs: list[str]) -> dict[str, float]:
        question: PartQuestion = {"rows": self.session.ids.rows(docs).tolist()}
        if scorer.column == DUAL:
            question["vector"] = self._vector(scorer)
            work, role = "search", "vectors"
        else:
            question["query"] = self.query
            work, role = "re-rank", "models"
        with self._timed(work):
            return dict(zip(docs, self.session.ask(role, scorer, **question), strict=True))

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.milliseconds[what] = self.milliseconds.get(what, 0.0) + 1000 * (
            time.monotonic() - began
        )


def _find_depth(run: Stage) -> int:
    if run.declared.scoring.of == "top":
        return _find_depth(run.upstream["run"])
    return int(run.values["depth"])
