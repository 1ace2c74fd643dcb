"""The work on one query: passages ranked as the stages of a system's run would, and scored by any part."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tandem.data.runs import followed, ranked_order
from tandem.plan.graph import Stage
from tandem.retrieval.fuse import CHOSEN
from tandem.retrieval.fusion import best, pool
from tandem.searching.session import Session
from tandem.searching.systems import BM25, CROSS, DUAL, Part, made_of, part
from tandem.stages.retrieval import FuseParams, fusion

Ranked = list[tuple[str, float]]  # document id and score, best first


class Ranking:
    """The work on one query; what a part has computed is kept.

    Attributes:
        milliseconds: what was done → how long it took.
    """

    def __init__(self, session: Session, query: str) -> None:
        self.session, self.query = session, query
        self.milliseconds: dict[str, float] = {}
        self._vectors: dict[str, list[float]] = {}
        self._scores: dict[str, dict[str, float]] = {}

    def ranked(self, run: Stage, depth: int) -> Ranked:
        """The first `depth` passages of a run, or more; best first, with the run's scores."""
        if run.kind == "fuse":
            return self._fused(run)
        one = part(run)
        if one.column == CROSS:
            return self._reranked(one, self.ranked(run.upstream["run"], max(depth, run.values["depth"])))
        found = self._listed(one, depth) if one.column == BM25 else self._nearest(one, depth)
        self._scores[one.key] = dict(found)
        return ranked_order(*zip(*found, strict=True)) if found else []

    def beside(self, one: Part, docs: list[str]) -> dict[str, float]:
        """A part's scores of passages that another may have found."""
        if one.column == BM25:
            if one.key not in self._scores:
                self._scores[one.key] = dict(self._listed(one, 1))
        elif one.column == DUAL:
            known = self._scores.setdefault(one.key, {})
            if missing := [doc for doc in docs if doc not in known]:
                known.update(self._ask("search", "vectors", one, missing, vector=self._vector(one)))
        elif one.key not in self._scores:
            self._scores[one.key] = self._ask("re-rank", "models", one, docs, query=self.query)
        return self._scores[one.key]

    def _listed(self, one: Part, depth: int) -> Ranked:
        """BM25's list, at least as deep as its runs, so that passages found otherwise have a score."""
        with self._timed("BM25"):
            deep = max(depth, one.params["depth"])
            return [(doc, score) for doc, score in self.session.ask("bm25", one, query=self.query, depth=deep)]

    def _nearest(self, one: Part, depth: int) -> Ranked:
        """The best passages by a dual encoder; an index is asked as deep as its runs, which decides what it finds."""
        vector, deep = self._vector(one), max(depth, one.params["depth"]) if "index" in one.needs else depth
        with self._timed("search"):
            return list(zip(*self.session.ask("vectors", one, vector=vector, depth=deep), strict=True))

    def _reranked(self, one: Part, first: Ranked) -> Ranked:
        """A list whose top a cross-encoder puts into a new order; deeper passages follow as they stood."""
        top = [doc for doc, _ in first[: one.params["depth"]]]
        self._scores[one.key] = made = self._ask("re-rank", "models", one, top, query=self.query) if top else {}
        logits = np.array([made[doc] for doc in top], np.float32)
        return ranked_order([doc for doc, _ in first], followed(logits, len(first)))

    def _fused(self, run: Stage) -> Ranked:
        """A fusion of runs, all as deep as the stages that it is made from."""
        members, settings = made_of(run), run.params_as(FuseParams)
        if "tuned" in run.upstream:
            chosen = json.loads((Path(run.upstream["tuned"].folder) / CHOSEN).read_text(encoding="utf-8"))
            settings = settings.model_copy(update=chosen)
        lists = [self.ranked(one, _depth(one)) for one in members]
        columns = [([doc for doc, _ in one], np.array([score for _, score in one], np.float32)) for one in lists]
        scored = [one.values["depth"] if one.kind == "rerank" else None for one in members]
        pooled = pool(columns, scored)
        docs, scores = best(pooled.docs, fusion[settings.method](pooled, settings), settings.depth)
        return list(zip(docs, scores.tolist(), strict=True))

    def _vector(self, one: Part) -> list[float]:
        """The query's vector by a dual encoder, computed once."""
        if one.key not in self._vectors:
            with self._timed("encode"):
                self._vectors[one.key] = self.session.ask("models", one, query=self.query)
        return self._vectors[one.key]

    def _ask(self, what: str, role: str, one: Part, docs: list[str], **question: Any) -> dict[str, float]:
        """A part's scores of some passages."""
        rows = self.session.passages.ids.rows(docs).tolist()
        with self._timed(what):
            return dict(zip(docs, self.session.ask(role, one, rows=rows, **question), strict=True))

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """Add the time that a block takes."""
        began = time.monotonic()
        yield
        self.milliseconds[what] = self.milliseconds.get(what, 0.0) + 1000 * (time.monotonic() - began)


def _depth(run: Stage) -> int:
    """How deep a run goes: a re-ranked one as deep as what it re-ranks."""
    return _depth(run.upstream["run"]) if run.kind == "rerank" else int(run.values["depth"])
