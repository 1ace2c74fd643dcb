"""Lines of a released run that name passages which its corpus lacks: `absent.parquet`, next to the run's columns.

Where a run is scored or fused, they count, so that the lines below them keep their ranks, as in trec_eval. Stages that
need a passage's text read only the columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.data.columns import DatasetNames, Floats, RankedRows
from tandem.data.rows import IdRows, Rows
from tandem.data.runs import (
    RUN_FILE,
    TREC_FILE,
    NamedRanking,
    iter_rows,
    read_rows,
    write_run,
    write_trec,
)
from tandem.store.artifact import Artifact
from tandem.store.job import Draft, Job

ABSENT_FILE = "absent.parquet"
ABSENT_SCHEMA = pa.schema(
    [("query", pa.uint32()), ("doc_id", pa.large_string()), ("score", pa.float32())]
)


class AbsentLines:
    """The absent lines of a run in the columns of `ABSENT_SCHEMA`; those of a query, given by row, are consecutive."""

    def __init__(self, parts: Iterable[pa.Table] = ()) -> None:
        self.table = pa.concat_tables([ABSENT_SCHEMA.empty_table(), *parts]).combine_chunks()
        queries = self.table["query"].to_numpy()
        # row of a query → where its lines begin and end
        self.places = dict[int, tuple[int, int]]()
        if len(queries):
            starts = np.flatnonzero(np.diff(queries.astype(np.int64), prepend=-1)).tolist()
            for start, stop in pairwise([*starts, len(queries)]):
                self.places[int(queries[start])] = start, stop

    @classmethod
    def of(cls, run: Artifact) -> "AbsentLines":
        """Return the absent lines of a run; most runs have none."""
        if ABSENT_FILE not in run.manifest.files:
            return cls()
        return cls([pq.read_table(run.path(ABSENT_FILE), schema=ABSENT_SCHEMA)])

    @staticmethod
    def part(queries: Rows, docs: Sequence[str], scores: Floats) -> pa.Table:
        """Return lines as a table; each argument has one value per line."""
        return pa.table([queries.astype(np.uint32), docs, scores], schema=ABSENT_SCHEMA)

    def lines(self, query: int) -> tuple[list[str], Floats]:
        """Return the absent documents of a query, by its row, and their scores, best first; most queries have none."""
        start, stop = self.places.get(query, (0, 0))
        part = self.table.slice(start, stop - start)
        return part["doc_id"].to_pylist(), part["score"].to_numpy()

    def among(self, query: int, docs: list[str], scores: Floats) -> tuple[list[str], Floats]:
        """Return a query's documents of the corpus together with its absent ones, best first."""
        if query not in self.places:
            return docs, scores
        absent_docs, absent_scores = self.lines(query)
        all_docs = [*docs, *absent_docs]
        all_scores = np.concatenate([scores, absent_scores])
        order = np.argsort(-all_scores, kind="stable")  # a stored list has no ties
        return [all_docs[place] for place in order.tolist()], all_scores[order]

    def ranked(
        self, lists: Iterable[RankedRows], names: DatasetNames
    ) -> Iterator[tuple[str, list[str], Floats]]:
        """Yield (query id, document ids, scores) of each query, best first; queries without a line in `lists` last."""
        left = dict.fromkeys(self.places)
        for query, rows, scores in lists:
            left.pop(query, None)
            yield names.queries[query], *self.among(query, names.of(rows), scores)
        for query in left:
            yield names.queries[query], *self.lines(query)


def write_whole_run(
    job: Job[Any], draft: Draft, ranked: Iterable[NamedRanking], docs: IdRows | None = None
) -> int:
    """Write lists by ids as `write_run` does; lines whose passages the corpus lacks become the run's `AbsentLines`.

    The scores of each list must fall strictly.

    Returns:
        The number of lines whose passages the corpus has.
    """
    parts: list[pa.Table] = []

    def keep(queries: Rows, absent: list[str], scores: Floats) -> None:
        """Keep lines whose passages the corpus lacks."""
        parts.append(AbsentLines.part(queries, absent, scores))

    lines = write_run(job, draft, ranked, docs, keep)
    missing = AbsentLines(parts)
    if len(missing.table):
        pq.write_table(missing.table, draft.path(ABSENT_FILE))
        trec = draft.path(TREC_FILE)
        if trec.exists():
            names = DatasetNames(job.inputs["dataset"])
            whole = missing.ranked(read_rows(draft.path(RUN_FILE)), names)
            write_trec(trec, whole, job.key)
    return lines


def iter_whole_run(
    run: Artifact, dataset: Artifact, names: DatasetNames
) -> Iterator[tuple[str, list[str], Floats]]:
    """Yield the lists of a run with its `AbsentLines`."""
    return AbsentLines.of(run).ranked(iter_rows(run, dataset), names)
