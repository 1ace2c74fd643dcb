"""The stage `dataset`: a source streams through checks into Parquet.

Queries and qrels are small and come first, so that most mistakes show before the corpus is read. Passages are checked,
measured and written in row groups of a fixed size. If a source skips passages faster than it reads them, jobs share the
work: a shard writes a stretch of the corpus in parts of a fixed number of passages, with their measured lengths. The
stage copies finished parts and reads the rest itself, so that no byte depends on the number of shards.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tandem.cluster.progress import Progress, say
from tandem.cluster.work import Parts
from tandem.data import tables
from tandem.data.collection import ANSWERS, CORPUS, LISTS, QRELS, QUERIES, join_contents
from tandem.data.forms import PASSAGES_SIDE, Composer
from tandem.data.observers import make_observers
from tandem.data.sources import Listed, Source, open_source
from tandem.data.statistics import (
    CorpusStatistics,
    describe_splits,
    measure_lengths,
)
from tandem.data.validate import (
    SelectedQueries,
    TextHashes,
    Warnings,
    count_negative_grades,
    prepare_queries,
    refuse_large_grades,
    require_positives,
    require_unique,
    require_usable,
    select_qrels,
    tabulate_judgements,
)
from tandem.errors import UserError
from tandem.stages.base import Json
from tandem.stages.data import DATASET_PARTS, DatasetParams
from tandem.store.files import write_json
from tandem.store.job import Draft, Job, load, writing

# the columns of a part
_PART_SCHEMA = pa.schema(
    [*tables.CORPUS_SCHEMA, ("words", pa.uint32()), ("characters", pa.uint32())]
)


def run(job: Job[DatasetParams]) -> None:
    """Write corpus.parquet, queries.parquet, qrels.parquet and statistics.json, and where the source has them
    answers.parquet, lists.parquet and the parts that packages write.

    `job.execution` may hold `path` (the folder to read), `workers` (processes, for a source that uses several) and
    `checksum` and `counts` (those expected of the source; a difference gives a warning).
    """
    source = open_source(job)
    composer = Composer(job.params.normalize)
    warnings = Warnings(f"dataset {job.key}")
    parts = ("corpus", "queries", "qrels", "answers", "lists", *DATASET_PARTS)
    sums = {name: tables.Checksum() for name in parts}
    with writing(job) as draft:
        judged = tabulate_judgements(sums["qrels"].of(source.read_qrels()))
        answers = tables.make_table(
            sums["answers"].of(composer.answers(source.read_answers())), tables.ANSWERS_SCHEMA
        )
        if judged.num_rows == answers.num_rows == 0:
            raise UserError(
                "qrels: empty; a dataset needs judgements of at least one split, or answers"
            )
        answered = answers["query_id"].to_pylist()
        rows = sums["queries"].of(composer.queries(source.read_queries()))
        queries = prepare_queries(rows, judged, answered, source, job.params, warnings)
        corpus = CorpusWriter(job, source, draft.path(CORPUS), composer, queries)
        corpus.write(sums["corpus"])
        warnings.count(corpus.statistics.empty, "passages hold no text")
        if note := composer.note():
            warnings.add(note) if composer.normalize == "none" else say(
                f"dataset {job.key} · {note}"
            )
        for observer in corpus.observers.values():
            for line in observer.notes():
                say(f"dataset {job.key} · {line}")
        extra: dict[str, int] = {}
        if job.params.near_duplicates is not None:
            label_near_duplicates = load("extras.near_duplicates:label_near_duplicates")
            judged, extra["near_duplicates"] = label_near_duplicates(
                judged, corpus.path, job.params.near_duplicates
            )
        qrels = select_qrels(judged, queries, corpus.ids, job.params, warnings, source)
        if not any(query in queries.splits for query in answered):
            require_positives(qrels)
        refuse_large_grades(qrels, source)
        count_negative_grades(qrels, source.literal_matches, warnings)
        tables.write_batches(
            draft.path(QUERIES),
            tables.make_batches(queries.rows(), tables.QUERIES_SCHEMA),
            tables.QUERIES_SCHEMA,
        )
        tables.write_batches(draft.path(QRELS), qrels.to_batches(), tables.QRELS_SCHEMA)
        extra["answers"] = _write_answers(answers, answered, queries, draft, warnings)
        require_whole_labels = load("extras.whole_labels:require_whole_labels")
        listed = sums["lists"].of(require_whole_labels(source.read_lists()))
        extra["lists"] = _write_lists(listed, queries, corpus.ids, draft, warnings)
        further: Json = {}
        for name, entry in DATASET_PARTS.items():
            further[name] = load(entry)(sums[name], source, corpus.ids, draft, warnings)
        passages = corpus.statistics.summary()
        splits = describe_splits(
            queries.rows(), tables.iterate_rows(qrels), corpus.ids, corpus.statistics
        )
        checksum = tables.combine_checksums(sums.values())
        compare_expected = load("extras.expected_contents:compare_expected")
        compare_expected(job, checksum, passages["count"], splits, warnings)
        for line in source.warnings:
            warnings.add(line)
        summary = {"passages": passages, "splits": splits, "warnings": warnings.lines}
        summary |= {name: counts for name, counts in further.items() if counts}
        write_json(draft.path("statistics.json"), summary)
        draft.facts.update(
            passages=passages["count"],
            queries={split: counts["queries"] for split, counts in splits.items()},
            qrels={split: counts["qrels"] for split, counts in splits.items()},
            **extra,
            checksum=checksum,
            not_nfc=composer.others,
            **{name: observer.facts() for name, observer in corpus.observers.items()},
            warnings=warnings.lines,
            source=source.facts,
        )
    corpus.parts.remove()


def _write_answers(
    answers: pa.Table, ids: list[str], queries: SelectedQueries, draft: Draft, warnings: Warnings
) -> int:
    """Write answers.parquet for selected queries, unless the source has none; return how many have answers.

    Args:
        ids: the query of each row of `answers`.
    """
    if not ids:
        return 0
    require_unique("query", "answers", TextHashes(ids), ids.__getitem__)
    rows = [
        (query, texts) for query, texts in tables.iterate_rows(answers) if query in queries.splits
    ]
    blank = sum(not "".join(texts).strip() for _, texts in rows)
    warnings.count(blank, "questions have no answer text")
    batches = tables.make_batches(rows, tables.ANSWERS_SCHEMA)
    tables.write_batches(draft.path(ANSWERS), batches, tables.ANSWERS_SCHEMA)
    return len(rows)


def _write_lists(
    rows: Iterable[Listed],
    queries: SelectedQueries,
    ids: TextHashes,
    draft: Draft,
    warnings: Warnings,
) -> int:
    """Write the known rows of the source's training lists, if it has any, to lists.parquet; return their number."""
    # number of rows, by whether the dataset has their query and document
    counts: Counter[bool] = Counter()

    def iterate_known() -> Iterator[Listed]:
        """Yield the rows whose query and document the dataset has."""
        for columns in tables.split_columns(_require_grouped(rows)):
            in_corpus = ids.has(columns[1]).tolist()
            for row, has_document in zip(zip(*columns, strict=True), in_corpus, strict=True):
                is_known = has_document and row[0] in queries.splits
                counts[is_known] += 1
                if is_known:
                    yield row

    batches = tables.make_batches(iterate_known(), tables.LISTS_SCHEMA)
    first = next(batches, None)
    if first:
        tables.write_batches(draft.path(LISTS), chain([first], batches), tables.LISTS_SCHEMA)
    dropped = "rows of training lists name documents or queries that are not kept and were dropped"
    warnings.count(counts[False], dropped)
    return counts[True]


def _require_grouped(rows: Iterable[Listed]) -> Iterator[Listed]:
    done: set[str] = set()
    for query, group in groupby(rows, key=itemgetter(0)):
        if query in done:
            raise UserError(f"lists: query {query} again; the rows of a query must stand together")
        done.add(query)
        yield from group


class Chunk(NamedTuple):
    """Hold some passages, as lists and as a batch; the batch of a part has the columns `_PART_SCHEMA`."""

    ids: Sequence[str]
    titles: Sequence[str]
    texts: Sequence[str]
    batch: pa.RecordBatch


class CorpusWriter:
    """Write passages, and keep what later checks need: 24 bytes a passage, and as much again during the checks.

    `ids` are hashes of the document ids, in row order.
    """

    def __init__(
        self,
        job: Job[DatasetParams],
        source: Source,
        path: Path,
        composer: Composer,
        queries: SelectedQueries,
    ) -> None:
        self.job = job
        self.source = source
        self.path = path
        self.composer = composer
        self.observers = make_observers(queries)
        self.parts = Parts(job, ".arrow")
        self.place = source.places["corpus"]
        self.titles = job.params.title
        self.ids = TextHashes()
        self.statistics = CorpusStatistics()

    def write(self, checksum: tables.Checksum) -> None:
        """Write every passage; without `titles`, titles are blanked after `checksum` has taken them.

        A thread reads and checks the next passages while these are measured and written.

        Raises:
            UserError: an unusable or repeated id, or no passage at all.
        """
        expected = (self.job.execution.counts or {}).get("passages", 0)
        with Progress(f"dataset {self.job.key}", expected, "passages") as progress:
            batches = self._measured(tables.prefetch_batches(self._hashed()), checksum, progress)
            tables.write_batches(self.path, batches, tables.CORPUS_SCHEMA)
            if progress.done == 0:
                raise UserError(
                    f"{self.place}: the corpus is empty; at least one passage is needed"
                )
        require_unique(
            "document",
            self.place,
            self.ids,
            lambda row: tables.read_value(self.path, "doc_id", row),
        )

    def _hashed(self) -> Iterator[pa.RecordBatch]:
        """Yield the passages in batches, with their hashes; this is the part that handles Python strings."""
        for ids, titles, texts, batch in self._chunks():
            self.ids.add(ids)
            for observer in self.observers.values():
                observer.add(ids, titles, texts)
            titled = self.titles and any(titles)
            self.statistics.texts.add(map(join_contents, titles, texts) if titled else texts)
            yield batch

    def _chunks(self) -> Iterator[Chunk]:
        """Yield the whole corpus: finished parts from their files, what is missing between them from the source."""
        reading: Iterator[Chunk] | None = None
        chunks_per_part = self.parts.rows // tables.ROWS_PER_GROUP
        for number in count():
            facts = self.parts.facts(number)
            if facts:
                reading = None
                is_last = facts["is_last"]
                self.composer.others[PASSAGES_SIDE] += facts["not_nfc"]
                yield from self._read_part(number)
            else:
                if reading is None:
                    reading = read_chunks(self.source, number * self.parts.rows, self.composer)
                done = 0
                for chunk in islice(reading, chunks_per_part):
                    done += 1
                    yield chunk
                is_last = done < chunks_per_part
            if is_last:
                return

    def _read_part(self, number: int) -> Iterator[Chunk]:
        """Yield the passages of a finished part from its file."""
        with pa.memory_map(str(self.parts.path(number))) as file, pa.ipc.open_file(file) as part:
            for index in range(part.num_record_batches):
                batch = part.get_batch(index)
                ids, titles, texts = (
                    batch[name].to_pylist() for name in tables.CORPUS_SCHEMA.names
                )
                yield Chunk(ids, titles, texts, batch)

    def _measured(
        self, batches: Iterable[pa.RecordBatch], checksum: tables.Checksum, progress: Progress
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches as they are written; Arrow and numpy do this part, without holding up the other one."""
        for batch in batches:
            if batch.schema != _PART_SCHEMA:
                batch = measure_batch(batch, self.titles)
            self.statistics.add(batch["words"].to_numpy(), batch["characters"].to_numpy())
            batch = batch.select(tables.CORPUS_SCHEMA.names)
            checksum.add(batch)
            progress.add(batch.num_rows)
            yield batch if self.titles else clear_titles(batch)


def run_shard(job: Job[DatasetParams]) -> Json:
    """Write this shard's parts, which follow each other; there are none if one job reads the source."""
    source = open_source(job)
    parts = Parts(job, ".arrow")
    shard = job.execution.shard or 0
    shards = job.execution.shards
    spans = parts.spans(source.count() or 0)
    own = range(len(spans) * shard // shards, len(spans) * (shard + 1) // shards)
    missing = [number for number in own if parts.facts(number) is None]
    total = sum(len(spans[number]) for number in own)
    done = total - sum(len(spans[number]) for number in missing)

    following = -1  # the part that begins where the source has been read up to
    with Progress(f"dataset {job.key}", total, "passages", done=done) as progress:
        for number in missing:
            if number != following:
                composer = Composer(job.params.normalize)
                chunks = read_chunks(source, spans[number].start, composer)
            of_part = islice(chunks, parts.rows // tables.ROWS_PER_GROUP)
            is_last = number + 1 == len(spans)
            parts.write(
                number, partial(_write_part, of_part, job.params.title, progress, is_last, composer)
            )
            following = number + 1
    return {"parts": list(own)}


def _write_part(
    chunks: Iterator[Chunk],
    titles: bool,
    progress: Progress,
    is_last: bool,
    composer: Composer,
    path: Path,
) -> Json:
    before = composer.others[PASSAGES_SIDE]
    with pa.ipc.new_file(
        path, _PART_SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")
    ) as writer:
        for batch in tables.prefetch_batches(chunk.batch for chunk in chunks):
            writer.write_batch(measure_batch(batch, titles))
            progress.add(batch.num_rows)
    return {"is_last": is_last, "not_nfc": composer.others[PASSAGES_SIDE] - before}


def read_chunks(source: Source, row: int, composer: Composer) -> Iterator[Chunk]:
    """Yield the source's passages from a row on, `ROWS_PER_GROUP` at a time, their texts in one Unicode form.

    Raises:
        UserError: an id that a run file could not carry, or None in place of a title or text.
    """
    place = source.places["corpus"]
    rows = source.read_corpus_from(row) if row else source.read_corpus()
    for ids, titles, texts in tables.split_columns(rows):
        require_usable("document", place, row + 1, *ids)
        for name, values in (("title", titles), ("text", texts)):
            if None in values:  # by a plugin's format
                missing = f"document {ids[values.index(None)]} has no {name}"
                raise UserError(f"{place}: {missing}; a text is needed, which may be empty")
        titles, texts = composer.passages(titles, texts)
        batch = tables.make_batch((ids, titles, texts), tables.CORPUS_SCHEMA)
        yield Chunk(ids, titles, texts, batch)
        row += len(ids)


def measure_batch(batch: pa.RecordBatch, titles: bool) -> pa.RecordBatch:
    """Return a batch with the numbers of words and characters of each passage."""
    heading = batch["title"] if titles else clear_titles(batch)["title"]
    columns = [*batch.columns, *map(pa.array, measure_lengths(heading, batch["text"]))]
    return pa.RecordBatch.from_arrays(columns, schema=_PART_SCHEMA)


def clear_titles(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without its titles."""
    blank = pa.array([""] * batch.num_rows, pa.string())
    return batch.set_column(1, tables.CORPUS_SCHEMA.field(1), blank)
