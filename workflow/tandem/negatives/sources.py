"""Make each query's pool from the labels of positives (qrels, answers, ranks or a judge) and a source of negatives."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from tandem.data.collection import EXCLUDED, LITERAL_MATCH, Collection
from tandem.data.rows import IdRows
from tandem.data.runs import get_scored_depth, iter_rows, read_matches
from tandem.errors import UserError, shortened
from tandem.models.tokens import Tokens
from tandem.negatives.drawing import QueryPool, make_pool
from tandem.negatives.list_report import NegativesReport
from tandem.retrieval.exact import Array
from tandem.stages.negatives import CandidatesParams, negatives
from tandem.store.job import Job

_RANDOM_STREAM = 2  # second number of the seed; 0 and 1 are those of undenoised and denoised lists


class PositiveLabels:
    """Find the positives of a split's queries, and the passages that are neither positive nor negative.

    The parameter `labels` says where positives come from: `qrels`; `answers`, the first passage of the window that
    contains an answer (RocketQA on Natural Questions); `rank`, the source's first passages (DRAGON); `judge`, none are
    known: the judge decides. With `bar_answers`, and always with `answers`, no passage that contains an answer is a
    negative. A passage that qrels grade `EXCLUDED` is never positive or negative. Memory: some 100 bytes a passage that
    contains an answer.
    """

    def __init__(self, job: Job[CandidatesParams], docs: IdRows) -> None:
        collection = Collection(job.inputs["dataset"])
        params = job.params
        self.labels = params.labels
        self.docs = docs
        self.least_grade = params.least_grade
        self.ignore_identical_ids = params.ignore_identical_ids
        # what lists name as the origin of a positive
        self.name = "answer" if params.labels == "answers" else params.labels
        self.window = slice(params.first_rank - 1, params.depth)
        self.first = params.positives
        by_qrels = self.labels == "qrels"
        self.qrels = (
            collection.qrels(params.split) if by_qrels else collection.excluded(params.split)
        )
        self.queries = list(self.qrels if by_qrels else collection.queries(params.split))
        self.answers = read_answering_passages(job)

    def choose_first(self, query: str, rows: Array) -> Array:
        """Return the rows of a query's positives with `labels: rank`: the source's first that are not barred.

        Args:
            rows: the source's passages, best first.
        """
        return rows[~np.isin(rows, self.barred(query))][: self.first]

    def positives(self, query: str, ids: list[str]) -> Array:
        """Return the rows of a query's positives that are in the corpus, by qrels or answers.

        Args:
            ids: the source's documents, best first.
        """
        judged = self.qrels.get(query, {})
        answering = self.answers.get(query, ())
        if self.labels == "answers":
            return self._rows(
                [doc for doc in ids[self.window] if doc in answering and doc not in judged][:1]
            )
        return self._rows(
            [doc for doc, relevance in judged.items() if relevance >= self.least_grade]
        )

    def barred(self, query: str) -> Array:
        """Return the rows of the passages that must not be negatives although they are not positives.

        Such a passage matches an answer literally (RocketQA's `qrels.train.addition.tsv`), is excluded, has a low
        grade, is the query itself, or contains an answer.
        """
        judged = self.qrels.get(query, {})
        neither = [
            doc
            for doc, grade in judged.items()
            if grade == LITERAL_MATCH or 0 < grade < self.least_grade
        ]
        neither += self._list_left_out(query)
        return self._rows([*neither, *sorted(self.answers.get(query, ()))])

    def keep_results(self, query: str, rows: Array) -> Array:
        """Return the rows that measures count: all but the query itself and passages graded `EXCLUDED`."""
        return rows[~np.isin(rows, self._rows(self._list_left_out(query)))]

    def _list_left_out(self, query: str) -> list[str]:
        judged = self.qrels.get(query, {})
        left_out = [doc for doc, grade in judged.items() if grade == EXCLUDED]
        return [*left_out, query] if self.ignore_identical_ids else left_out

    def _rows(self, ids: list[str]) -> Array:
        rows = self.docs.rows(ids, missing_ok=True)
        return rows[rows >= 0]


def read_answering_passages(job: Job[CandidatesParams]) -> dict[str, set[str]]:
    """Return query id → documents of the run that contain an answer, from the input `match`; empty without it."""
    if "match" not in job.inputs:
        return {}
    match = job.inputs["match"]
    run = job.inputs["run"]
    if Path(match.upstream["run"]).name != run.key:
        raise UserError(
            f"candidates: {match.folder} has matched {match.upstream['run']}; expected {run.folder}"
        )
    documents: dict[str, set[str]] = {}
    for query, doc in read_matches(match):
        documents.setdefault(query, set()).add(doc)
    return documents


def read_first_passages(
    job: Job[CandidatesParams], labels: PositiveLabels, queries: IdRows
) -> dict[int, int]:
    """Return query row → row of the first result of the input `ahead`."""
    names = queries.all.to_pylist()
    first = {}
    for query, rows, _ in iter_rows(job.inputs["ahead"], job.inputs["dataset"]):
        results = labels.keep_results(names[query], rows)
        if len(results):
            first[query] = int(results[0])
    return first


# a query's id, and ids, rows and scores of its documents, best first
SourceRanking = tuple[str, list[str], Array, Array]
SourceRankings = Iterator[SourceRanking]


def name_source(job: Job[CandidatesParams]) -> str:
    """Return the name of a job's source: its parameter, else `run` if there is a run, else `random`."""
    return job.params.source or ("run" if "run" in job.inputs else "random")


@negatives("run")
def read_run_rankings(
    job: Job[CandidatesParams], labels: PositiveLabels, docs: IdRows, queries: IdRows
) -> SourceRankings:
    """Yield the rankings of the input `run`."""
    names = queries.all.to_pylist()
    needs_ids = labels.labels == "answers"
    for query, rows, scores in iter_rows(job.inputs["run"], job.inputs["dataset"]):
        yield names[query], docs.ids(rows) if needs_ids else [], rows, scores


@negatives("random")
def draw_from_corpus(
    job: Job[CandidatesParams], labels: PositiveLabels, docs: IdRows, queries: IdRows
) -> SourceRankings:
    """Yield `depth` random passages of the corpus, without scores, for every query that has labels."""
    for query, row in zip(labels.queries, queries.rows(labels.queries), strict=True):
        drawn = draw_rows(len(docs), job.params.depth, job.params.seed, int(row))
        yield query, [], drawn, np.full(len(drawn), np.nan, np.float32)


def draw_rows(passages: int, count: int, seed: int, query: int) -> Array:
    """Draw `count` distinct rows of a corpus; the draw depends only on (seed, query)."""
    rng = np.random.default_rng([seed, _RANDOM_STREAM, query])
    return rng.choice(passages, min(count, passages), replace=False)


class Pools:
    """Make the pools of a split's queries from the source of a job."""

    def __init__(self, job: Job[CandidatesParams], docs: IdRows, queries: IdRows) -> None:
        self.job = job
        self.docs = docs
        self.queries = queries
        self.labels = PositiveLabels(job, docs)
        self.known = set(self.labels.queries)
        self.selected = draw_queries(self.labels.queries, job.params.queries, job.params.seed)
        self.passages = Tokens.open(job.inputs["tokens"]).passages
        below = job.params.below_positive and "run" in job.inputs
        self.scored = get_scored_depth(job.inputs["run"]) if below else None
        self.ahead: dict[int, int] = {}
        if job.params.behind:
            self.ahead = read_first_passages(job, self.labels, queries)

    def read_source(self) -> Iterator[SourceRanking]:
        """Return the rankings of the source of negatives; those of a plugin are checked."""
        name = name_source(self.job)
        entries = negatives[name](self.job, self.labels, self.docs, self.queries)
        return check_entries(entries, name, len(self.docs)) if negatives.plugin(name) else entries

    def make_pools(
        self, entries: Iterable[SourceRanking], report: NegativesReport
    ) -> Iterator[QueryPool]:
        """Yield the pool of each query that has a known positive in the corpus; of every query if a judge labels."""
        params = self.job.params
        labels = self.labels
        window = (params.first_rank, params.depth)
        backfill = params.denoise.backfill if params.denoise else None
        beyond = (backfill.first_rank, backfill.depth) if backfill else None
        for query, ids, rows, scores in entries:
            if query in self.known and query not in self.selected:
                continue
            by_rank = labels.labels == "rank"
            positives = (
                labels.choose_first(query, rows) if by_rank else labels.positives(query, ids)
            )
            if not len(positives) and labels.labels != "judge":
                report.without_positive += 1
                continue
            row = int(self.queries.rows([query])[0])
            if params.behind is not None:
                results = labels.keep_results(query, rows)
                if not self._is_behind(row, positives, results):
                    report.not_behind += 1
                    continue
            barred = labels.barred(query)
            run = (rows, scores)
            texts = self.passages
            similar = params.near_duplicates
            pool = make_pool(
                row, positives, run, window, beyond, texts, barred, similar, self.scored
            )
            pool.labelled = labels.name
            pool.source = name_source(self.job)
            yield pool

    def _is_behind(self, query: int, positives: Array, rows: Array) -> bool:
        """Return whether the run `ahead` ranks a positive first, and the source its first positive within `behind`.

        Args:
            query: row of the query.
            positives: rows of its positives.
            rows: rows of the source's results, best first.
        """
        behind = self.job.params.behind
        assert behind is not None
        ranks = 1 + np.flatnonzero(np.isin(rows[: behind.depth], positives))
        is_within = len(ranks) > 0 and ranks[0] >= behind.first_rank
        return is_within and self.ahead.get(query) in positives


def check_entries(
    entries: Iterable[SourceRanking], name: str, passages: int
) -> Iterator[SourceRanking]:
    """Yield a plugin's rankings, with rows and scores as arrays.

    Raises:
        UserError: an entry is of another form, its rows are not different rows of the corpus with a score each, or a
            query comes twice.
    """
    before = None
    for entry in entries:
        try:
            query, ids, rows, scores = entry
            rows = np.asarray(rows, np.int64)
            scores = np.asarray(scores, np.float32)
        except (TypeError, ValueError):
            raise UserError(
                f"candidates: {name} must give (query, ids, rows, scores), not {shortened(repr(entry))}"
            ) from None
        fits = rows.ndim == 1 and rows.shape == scores.shape and len(np.unique(rows)) == len(rows)
        if not fits or rows.min(initial=0) < 0 or rows.max(initial=0) >= passages:
            problem = (
                f"must give different rows from 0 to {passages - 1:,}, each with a score or NaN"
            )
            raise UserError(f"candidates: {name}, passages of {query}: {problem}")
        if query == before:
            raise UserError(f"candidates: {name} gives {query} twice; give each query once")
        before = query
        yield query, ids, rows, scores


def draw_queries(queries: list[str], most: int | None, seed: int) -> set[str]:
    """Draw at most `most` queries, those with the smallest seeded hashes, whatever the order of `queries`."""

    def hash_query(query: str) -> bytes:
        return hashlib.sha256(f"{seed} {query}".encode()).digest()

    return set(sorted(queries, key=hash_query)[:most])
