"""Runs in TREC format, and those not computed here: a dataset's own lists (`given`) and released runs (`imported`).

Ties have one rule: by score (as float32, higher first), then by document id (lower first, by Unicode code points).
A line is `query Q0 document rank score tag`; scores are printed with nine digits, which round-trips a float32.
Evaluation tools sort by score and break ties each in their own way: tied scores are written as strictly falling ones. A
released run may be read with another rule for ties, as its own numbers were computed.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import isnan, nan
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandem.cluster.progress import Progress
from tandem.config.retrieval import Ties
from tandem.data.collection import Collection
from tandem.data.reading import fields, lines, parse_number, parse_whole
from tandem.data.rows import doc_rows
from tandem.data.validate import Warnings
from tandem.errors import UserError
from tandem.stages.data import GivenParams, ImportedParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

Floats = NDArray[np.float32]
LOWEST = np.float32(-np.inf)


def ranked_order(
    docs: Sequence[str], scores: Sequence[float] | Floats, *, ties: Ties = "doc_id"
) -> list[tuple[str, float]]:
    """(document, score rounded to float32) by score descending, then document ascending.

    With `ties` of `trec_eval` documents descend too, by the bytes of their ids, as trec_eval sorts.

    Raises:
        ValueError: a score is not a number, or the lengths differ.
    """
    rounded: list[float] = np.asarray(scores, np.float32).tolist()
    if any(map(isnan, rounded)):
        raise ValueError("a score is not a number")
    pairs = zip(docs, rounded, strict=True)
    if ties == "trec_eval":
        return sorted(pairs, key=lambda pair: (pair[1], pair[0].encode()), reverse=True)
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def falling(ranked: Iterable[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Ranked (document, float32 score) with strictly falling scores: a tie becomes the next lower float32."""
    last = nan
    for doc, score in ranked:
        if score >= last:
            score = float(np.nextafter(np.float32(last), LOWEST))
        yield doc, score
        last = score


def write_run(path: Path, ranked: Iterable[tuple[str, Sequence[str], Sequence[float] | Floats]], tag: str) -> int:
    """Write a run as it streams in, in the order of its queries, and return the number of lines.

    Args:
        path: the file to write.
        ranked: (query id, document ids, scores) per query; the documents may come in any order.
        tag: the last column: the key of the stage that made the run.
    """
    lines = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for query, docs, scores in ranked:
            pairs = falling(ranked_order(docs, scores))
            file.writelines(f"{query} Q0 {d} {rank} {s:.9g} {tag}\n" for rank, (d, s) in enumerate(pairs, start=1))
            lines += len(docs)
    return lines


def iter_run(path: Path) -> Iterator[tuple[str, list[str], Floats]]:
    """(query id, document ids, scores as float32) per query, in file order.

    Raises:
        UserError: a malformed line, a query whose lines are not together, or a document listed twice for a query.
    """
    with open(path, encoding="utf-8", newline="\n") as file:
        yield from lists(path, file)


def lists(path: Path, lines: Iterable[str], first_line: int = 1) -> Iterator[tuple[str, list[str], Floats]]:
    """`iter_run` of some lines of a run; `path` and the number of the first line are for messages."""
    done: set[str] = set()
    for query, group in groupby(_lines(path, lines, first_line), key=itemgetter(0)):
        _, docs, scores, numbers = map(list, zip(*group, strict=True))
        if query in done:
            raise UserError(f"{path}:{numbers[0]}: query {query} again; the lines of a query must stand together")
        if len(set(docs)) != len(docs):
            twice = next(d for i, d in enumerate(docs) if d in docs[:i])
            raise UserError(f"{path}:{numbers[0]}: query {query} lists document {twice} twice; once is allowed")
        done.add(query)
        yield query, docs, np.asarray(scores, np.float32)


def followed(scores: Floats, documents: int) -> Floats:
    """Scores of a re-ranked top and, up to so many documents, whole numbers falling from below the lowest."""
    below = np.floor(scores.min(initial=0.0)) - 1 - np.arange(documents - len(scores), dtype=np.float32)
    return np.concatenate([scores, below])


def scored_depth(run: Artifact) -> int | None:
    """Down to which rank the scores of a run artifact say something; None: all of them do.

    A re-ranked run is scored down to its `depth`; below, its numbers only keep the first stage's order. A pipeline's
    run is that of the system that was chosen.
    """
    if run.manifest.kind == "pipeline":
        chosen: int | None = run.manifest.facts["scored_depth"]
        return chosen
    return int(run.params["depth"]) if run.manifest.kind.startswith("rerank") else None


def _lines(path: Path, lines: Iterable[str], first: int) -> Iterator[tuple[str, str, float, int]]:
    """(query id, document id, score, number of the line) of each line."""
    for number, line in enumerate(lines, start=first):
        try:
            query, _, doc, _, score, _ = line.split()
            value = float(score)
        except ValueError:
            value = float("nan")
        if isnan(value):
            raise UserError(f"{path}:{number}: not a run line: {line.strip()!r}; it is `query Q0 doc rank score tag`")
        yield query, doc, value, number


PIECE = 1 << 16  # scored pairs that are converted at once
TRIPLE = "positive's score, negative's score, query id, positive's id, negative's id"
# Reasons to drop a line.
UNKNOWN_QUERY = "lines name queries that the split lacks"
UNKNOWN_PASSAGE = "lines name passages that the corpus lacks"
REPEATED = "lines name a passage of their query again"

Line = tuple[str, str, str, float]  # query id, passage id, place for errors, score
Ranking = tuple[str, list[str], list[float]]  # query id, passage ids, scores


def run_given(job: Job[GivenParams]) -> None:
    """Write run.trec from the negatives of the training lists of the input `dataset`, to draw candidates from.

    A run has no order but that of its scores, so a negative's score is minus its place in the list: what the format
    lists first ranks first. DPR's pools list hard negatives before the others, RocketQA's files what their sampler
    drew. A query without a negative has no line.
    """
    collection = Collection(job.inputs["dataset"])
    queries = collection.queries(job.params.split)
    with writing(job) as draft, Progress(f"given {job.key}", len(queries), "queries") as progress:
        lists = _negatives(collection, queries, job.params.depth, progress)
        lines = write_run(draft.path("run.trec"), lists, job.key)
        if not lines:
            error = f"{collection.artifact.folder}: its training lists hold no negative"
            raise UserError(f"{error} for a query of split {job.params.split}; name a run instead of given")
        draft.facts.update(queries=progress.done, lines=lines, without_negative=len(queries) - progress.done)


def _negatives(collection: Collection, queries: dict[str, str], depth: int, progress: Progress) -> Iterator[Ranking]:
    """The negatives of every query that has one; a passage that is also a positive is not a negative."""
    for query, listed in collection.lists():
        if query in queries:
            positives = {doc for doc, label, _ in listed if label > 0}
            docs = list(dict.fromkeys(doc for doc, _, _ in listed if doc not in positives))[:depth]
            if docs:
                progress.add(1)
                yield query, docs, [-float(place) for place in range(1, len(docs) + 1)]


def run_imported(job: Job[ImportedParams]) -> None:
    """Write run.trec from the file that `path` of `job.execution` names, for the input `dataset`.

    Dropped and counted: queries that the split lacks, passages that the corpus lacks, and a passage's later mentions
    for a query.

    Raises:
        UserError: a malformed line, a query whose lines are not together, or nothing left.
    """
    params, path = job.params, Path(str(job.execution.path))
    collection = Collection(job.inputs["dataset"])
    selection = Selection(collection, params.split, params.depth, params.ties)
    with writing(job) as draft, Progress(f"imported {job.key}", 0, "queries") as progress:
        written = write_run(draft.path("run.trec"), selection.rankings(FORMATS[params.format](path), progress), job.key)
        if not written:
            error = f"{path}: holds no line about split {params.split} of {collection.artifact.folder}"
            dropped = "; ".join(f"{count:,} {what}" for what, count in selection.dropped.items() if count)
            raise UserError(f"{error} ({dropped or 'it is empty'}); its ids must be those of the dataset")
        warnings = Warnings(f"imported {job.key}")
        for what, count in selection.dropped.items():
            warnings.count(count, f"{what} and were dropped")
        missing = len(selection.split_queries) - progress.done
        draft.facts.update(queries=progress.done, lines=written, without_run=missing, warnings=warnings.lines)


class Selection:
    """The lines of a released run that are about a split and its corpus; `dropped` counts the others by reason."""

    def __init__(self, collection: Collection, split: str, depth: int, ties: Ties = "doc_id") -> None:
        self.split_queries, self.depth, self.ties = collection.queries(split), depth, ties
        self._docs = doc_rows(collection)
        self.dropped = dict.fromkeys((UNKNOWN_QUERY, UNKNOWN_PASSAGE, REPEATED), 0)

    def rankings(self, lines: Iterator[Line], progress: Progress) -> Iterator[Ranking]:
        """The best `depth` passages of each query of the split."""
        done: set[str] = set()
        for query, group in groupby(lines, key=itemgetter(0)):
            scored = list(group)
            if query in done:
                raise UserError(f"{scored[0][2]}: query {query} again; the lines of a query must stand together")
            done.add(query)
            if query not in self.split_queries:
                self.dropped[UNKNOWN_QUERY] += len(scored)
            elif ranked := self._ranked(scored):
                progress.add(1)
                yield query, [doc for doc, _ in ranked], [score for _, score in ranked]

    def _ranked(self, scored: list[Line]) -> list[tuple[str, float]]:
        """A query's known passages, each at its best place, cut to the depth."""
        is_known = self._docs.rows([doc for _, doc, _, _ in scored], missing_ok=True) >= 0
        known = [(doc, score) for (_, doc, _, score), in_corpus in zip(scored, is_known, strict=True) if in_corpus]
        best: dict[str, float] = {}
        for doc, score in ranked_order([doc for doc, _ in known], [score for _, score in known], ties=self.ties):
            best.setdefault(doc, score)
        self.dropped[UNKNOWN_PASSAGE] += len(scored) - len(known)
        self.dropped[REPEATED] += len(known) - len(best)
        return list(falling(best.items()))[: self.depth]  # no tie is left to break otherwise


def read_trec(path: Path) -> Iterator[Line]:
    """The lines `query Q0 passage rank score tag` of a run in TREC's format, to be ordered by score."""
    for query, doc, score, number in _lines(path, (line for _, line in lines(path)), 1):
        yield query, doc, f"{path}:{number}", score


def read_ranks(path: Path) -> Iterator[Line]:
    """The lines `query`, `passage`, `rank` and perhaps `score`, by tabs: MS MARCO's and RocketQA's format.

    Their reference scripts measure by rank, and equal scores would change it: the score becomes minus the rank.
    """
    for where, columns in fields(path, "query id, passage id, rank and perhaps score", 3, 4):
        if len(columns) == 4:
            parse_number(where, "score", columns[3])
        yield columns[0], columns[1], where, -float(parse_whole(where, "rank", columns[2]))


def read_margin_mse(path: Path) -> Iterator[Line]:
    """Triples with a teacher's scores, as published for Margin-MSE (Hofstätter et al. 2020), as that teacher's run.

    A line is `positive's score`, `negative's score`, `query`, `positive`, `negative`, by tabs, in any order. A pair on
    several lines has the score of the first. The pairs of a query come together, queries as they first appear.

    Memory: about 30 bytes a line, and the ids once.
    """
    queries: dict[str, int] = {}
    passages: dict[str, int] = {}
    keys, scores, positives = array("Q"), array("d"), set()
    for where, (positive_score, negative_score, query, positive, negative) in fields(path, TRIPLE, 5):
        row = queries.setdefault(query, len(queries)) << 32
        for doc, value in ((positive, positive_score), (negative, negative_score)):
            key, score = row | passages.setdefault(doc, len(passages)), parse_number(where, "score", value)
            if key not in positives:
                keys.append(key)
                scores.append(score)
            if doc is positive:
                positives.add(key)  # it stands on every line of its query
    pairs, first = np.unique(np.frombuffer(keys, np.uint64), return_index=True)
    pair_scores, query_ids, doc_ids, place = np.frombuffer(scores), list(queries), list(passages), str(path)
    for start in range(0, len(pairs), PIECE):
        part = slice(start, start + PIECE)
        for key, score in zip(pairs[part].tolist(), pair_scores[first[part]].tolist(), strict=True):
            yield query_ids[key >> 32], doc_ids[key & 0xFFFFFFFF], place, score


FORMATS = {"trec": read_trec, "ranks": read_ranks, "margin_mse": read_margin_mse}
