"""Write and read runs: the passages of each query with their scores, best first.

Between stages a run has columns, in `run.parquet`: each line has the query's row in queries.parquet, the passage's row
in corpus.parquet, and the score. Runs of a split that is evaluated also have `run.trec`, whose lines are
`query Q0 document rank score tag`; scores are printed with nine digits, which round-trips a float32.

Ties have one rule: by score (as float32, higher first), then by document id (lower first, by Unicode code points).
Evaluation tools sort by score and break ties each in their own way: tied scores are stored as strictly falling ones.

A released run may name passages that the corpus lacks. They have no row: a package writes their lines to its own file.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.config.retrieval import Ties
from tandem.data.collection import QUERIES, Collection
from tandem.data.columns import (
    RUN_SCHEMA,
    DatasetNames,
    Floats,
    RankedRows,
    RunBlock,
    open_column_writer,
)
from tandem.data.rows import IdRows, PassageOrder, Rows, index_passages, index_queries
from tandem.data.splits import LEARNED
from tandem.data.tables import open_parquet
from tandem.errors import UserError
from tandem.stages import declaration
from tandem.stages.retrieval import RUN_LINES
from tandem.store.artifact import Artifact
from tandem.store.job import Draft, Job, load

NamedRanking = tuple[str, Sequence[str], Sequence[float] | Floats]  # query id, document ids, scores
# takes lines whose passages the corpus lacks: the row of each line's query, its passage's id, its score
OnUnknown = Callable[[Rows, list[str], Floats], None]

RUN_FILE = "run.parquet"
TREC_FILE = "run.trec"
MATCHES_FILE = "matches.parquet"  # which lines of a run count, where judgements do not decide
LINES_PER_GROUP = 1 << 20  # lines of a row group, which holds whole lists
_LISTS_PER_BLOCK = 1024  # lists whose ids are looked up together


def order_by_score(
    docs: Sequence[str], scores: Sequence[float] | Floats, *, ties: Ties = "doc_id"
) -> list[tuple[str, float]]:
    """Sort (document, score rounded to float32) by score descending, then document ascending.

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


def write_rows(
    job: Job[Any],
    draft: Draft,
    lists: Iterable[RankedRows],
    order: PassageOrder | None = None,
) -> int:
    """Write a run over the input `dataset` as it streams in, in the order of its queries; returns the number of lines.

    A list's passages may come in any order. `order` is that of the dataset, if it has been opened already.
    """
    dataset = job.inputs["dataset"]
    if callable(declaration(job.kind).run):  # a plugin's
        lists = load("extras.plugin_results:check_listed_rows")(job.key, lists, dataset)
    names = DatasetNames(dataset, order)
    path = draft.path(RUN_FILE)
    splits = pq.read_table(dataset.path(QUERIES), columns=["split"])["split"]
    seen: set[str] = set()  # the splits of the run's queries
    lines = 0
    with open_column_writer(path, RUN_SCHEMA, ("passage", "score")) as writer:
        for part in _split_parts(lists):
            block = RunBlock.of(part).ranked(names)
            writer.write_table(block.table(), row_group_size=len(block.scores))
            queries = pa.array([query for query, _, _ in part])
            seen.update(splits.take(queries).unique().to_pylist())
            lines += len(block.scores)

    if not lines or seen - LEARNED:
        write_trec(draft.path(TREC_FILE), names.ranked(read_rows(path)), job.key)
    return lines


def write_lists(path: Path, lists: Iterable[RankedRows]) -> None:
    """Write lists unranked, as a part of a run; `write_rows` makes the run from `read_rows` of all parts."""
    with open_column_writer(path, RUN_SCHEMA, ("passage", "score")) as writer:
        for part in _split_parts(lists):
            block = RunBlock.of(part)
            writer.write_table(block.table(), row_group_size=len(block.scores))


def _split_parts(lists: Iterable[RankedRows]) -> Iterator[list[RankedRows]]:
    """Yield lists of about `LINES_PER_GROUP` lines together."""
    part: list[RankedRows] = []
    lines = 0
    for entry in lists:
        _, rows, _ = entry
        part.append(entry)
        lines += len(rows)
        if lines >= LINES_PER_GROUP:
            yield part
            part = []
            lines = 0
    if lines:
        yield part


def write_run(
    job: Job[Any],
    draft: Draft,
    ranked: Iterable[NamedRanking],
    docs: IdRows | None = None,
    on_unknown: OnUnknown | None = None,
) -> int:
    """Write lists by ids as `write_rows` does.

    `docs` are the rows of passages' ids, if they have been looked up already.

    `on_unknown` takes the lines whose passages the corpus lacks; without it, such lines are an error.

    Raises:
        UserError: see `convert_to_rows`.
    """
    collection = Collection(job.inputs["dataset"])
    docs = docs or index_passages(collection)
    queries = index_queries(collection)
    return write_rows(job, draft, convert_to_rows(job, ranked, docs, queries, on_unknown))


def convert_to_rows(
    job: Job[Any],
    ranked: Iterable[NamedRanking],
    docs: IdRows,
    queries: IdRows,
    on_unknown: OnUnknown | None = None,
) -> Iterator[RankedRows]:
    """Yield lists by ids as lists by rows; see `write_run`.

    Raises:
        UserError: an id that the dataset lacks, a query or one of its documents twice.
    """
    done: set[str] = set()
    source = iter(ranked)
    while block := list(islice(source, _LISTS_PER_BLOCK)):
        ids: list[str] = []
        sizes: list[int] = []
        for _, listed, _ in block:
            ids += listed
            sizes.append(len(listed))
        rows = docs.rows(ids, missing_ok=on_unknown is not None)
        query_rows = queries.rows([query for query, _, _ in block])

        unknown = np.flatnonzero(rows < 0)
        if on_unknown and len(unknown):
            scored = np.concatenate([np.asarray(scores, np.float32) for _, _, scores in block])
            owners = np.repeat(query_rows, sizes)[unknown]
            names = [ids[line] for line in unknown.tolist()]
            on_unknown(owners, names, scored[unknown])

        lists = np.split(rows, np.cumsum(sizes)[:-1])
        for (query, listed, scores), query_row, passages in zip(
            block, query_rows.tolist(), lists, strict=True
        ):
            if query in done:
                raise UserError(
                    f"{job.kind} {job.key}: query {query} again; its documents must come together"
                )
            if len(set(listed)) != len(listed):
                twice = next(doc for number, doc in enumerate(listed) if doc in listed[:number])
                raise UserError(f"{job.kind} {job.key}: query {query} lists document {twice} twice")
            done.add(query)
            is_known = passages >= 0
            yield query_row, passages[is_known], np.asarray(scores, np.float32)[is_known]


def write_trec(path: Path, ranked: Iterable[NamedRanking], tag: str) -> None:
    """Write a run in TREC's format, documents in their order, scores strictly falling; `tag` is the last column."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for query, docs, scores in ranked:
            pairs = zip(docs, np.asarray(scores).tolist(), strict=True)
            for rank, (doc, score) in enumerate(pairs, start=1):
                file.write(f"{query} Q0 {doc} {rank} {score:.9g} {tag}\n")


def iter_rows(run: Artifact, dataset: Artifact) -> Iterator[RankedRows]:
    """Yield (the query's row, its passages' rows, their scores) of each query in the run's order, best first.

    Raises:
        UserError: the run is over another dataset.
    """
    searched = Path(run.upstream["dataset"]).name
    if searched != dataset.key:
        raise UserError(
            f"{run.folder}: is a run over {searched}, not over {dataset.folder}; give a run over it"
        )
    return read_rows(run.path(RUN_FILE))


def iter_run(
    run: Artifact, dataset: Artifact, names: DatasetNames | None = None
) -> Iterator[tuple[str, list[str], Floats]]:
    """Yield (query id, document ids, scores as float32) of each query in the run's order, best first; as `iter_rows`.

    `names` are those of the dataset, if they have been opened already.
    """
    return (names or DatasetNames(dataset)).ranked(iter_rows(run, dataset))


def iter_ranking(
    run: Artifact, dataset: Artifact, names: DatasetNames | None = None
) -> Iterator[tuple[str, list[str], Floats]]:
    """Yield the rankings of a run as evaluation tools see them: `iter_run` with lines in packages' own files."""
    names = names or DatasetNames(dataset)
    for file, entry in RUN_LINES.items():
        if file in run.manifest.files:
            ranked: Iterator[tuple[str, list[str], Floats]] = load(entry)(run, dataset, names)
            return ranked
    return iter_run(run, dataset, names)


def read_rows(path: Path) -> Iterator[RankedRows]:
    """Yield the lists in a file of columns, a row group in memory at a time."""
    with open_parquet(path) as file:
        for group in range(file.num_row_groups):
            yield from read_row_group(file, group).lists()


def read_row_group(file: pq.ParquetFile, group: int) -> RunBlock:
    """Return the lists of one row group of a run's columns."""
    table = file.read_row_group(group, use_threads=False)
    return RunBlock(*(table[name].to_numpy() for name in RUN_SCHEMA.names))


def read_matches(match: Artifact) -> Iterator[tuple[str, str]]:
    """Yield (query id, document id) of every line that counts, such as a passage that holds an answer."""
    hit = [("relevant", "==", True)]
    hits = pq.read_table(match.path(MATCHES_FILE), columns=["query_id", "doc_id"], filters=hit)
    return zip(*(column.to_pylist() for column in hits.columns), strict=True)


def require_run_split(run: Artifact, split: str | None) -> None:
    """Refuse a run of another split."""
    searched = run.params.get("split", split)
    if searched != split:
        raise UserError(
            f"{run.folder}: is a run of split {searched}, but split is {split}; give a run of {split}"
        )


def require_split_queries(run: Artifact, collection: Collection, split: str) -> None:
    """Refuse a run with results, but none for a query of the split; a system that finds nothing has no results."""
    named = {query for query, *_ in iter_ranking(run, collection.artifact)}
    if named and named.isdisjoint(collection.queries(split)):
        raise UserError(f"{run.folder}: holds no query of split {split}; give a run of {split}")


def append_below(scores: Floats, documents: int) -> Floats:
    """Return the scores of a re-ranked top, then falling whole numbers below the lowest, `documents` scores in all.

    They fall by one or, if float32 cannot distinguish neighbouring whole numbers there, by its smallest step.
    """
    lowest = float(scores.min(initial=0.0))
    # Twice the lowest: the numbers below reach into the next power of two, where float32's steps are wider.
    step = max(1.0, float(np.spacing(np.float32(2 * abs(lowest)))))
    ranks_below = np.arange(documents - len(scores))
    below = (np.floor(lowest / step) - 1 - ranks_below) * step
    return np.concatenate([scores, below.astype(np.float32)])


def get_scored_depth(run: Artifact) -> int | None:
    """Return the last rank at which the scores of a run artifact have a meaning; None: all of them have.

    A re-ranked run is scored down to its `depth`; below, its numbers only keep the first stage's order. A pipeline's
    run is that of the system that was chosen.
    """
    scored = declaration(run.kind).scoring.of
    if scored == "chosen":
        chosen: int | None = run.manifest.facts["scored_depth"]
        return chosen
    return int(run.params["depth"]) if scored == "top" else None
