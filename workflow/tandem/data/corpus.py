"""Passages on their way from a source to corpus.parquet: checked, measured, written in row groups of a fixed size.

Where a source passes over passages faster than it reads them, jobs share the work: a shard writes a stretch of the
corpus in parts of a fixed number of passages, with what was measured of them. The stage copies finished parts and reads
the rest itself, so that the number of shards shows in no byte.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tandem.cluster.parts import Parts
from tandem.cluster.progress import Progress
from tandem.data import tables
from tandem.data.collection import contents
from tandem.data.language import Sample
from tandem.data.sources import Source, open_source
from tandem.data.statistics import CorpusStatistics, lengths
from tandem.data.validate import Hashes, require_unique_hashes, require_usable
from tandem.errors import UserError
from tandem.stages.base import Json
from tandem.stages.data import DatasetParams
from tandem.store.job import Job

MEASURED = pa.schema([*tables.CORPUS_SCHEMA, ("words", pa.uint32()), ("characters", pa.uint32())])  # of a part


class Chunk(NamedTuple):
    """Some passages, also as a batch, which is of `MEASURED` if it comes from a part."""

    ids: Sequence[str]
    titles: Sequence[str]
    texts: Sequence[str]
    batch: pa.RecordBatch


class CorpusWriter:
    """Writes passages and holds what later checks need of them: 24 bytes a passage, as much again while it checks.

    `ids` are hashes of the document ids, in row order.
    """

    def __init__(self, job: Job[DatasetParams], source: Source, path: Path) -> None:
        self.job, self.source, self.path = job, source, path
        self.parts, self.place, self.titles = Parts(job, ".arrow"), source.places["corpus"], job.params.title
        self.ids, self.statistics, self.sample = Hashes(), CorpusStatistics(), Sample()

    def write(self, checksum: tables.Checksum) -> None:
        """Write every passage; without `titles` they are blanked, after `checksum` took them.

        A thread reads and checks the next passages while these are measured and written.

        Raises:
            UserError: an unusable or repeated id, or no passage at all.
        """
        expected = (self.job.execution.counts or {}).get("passages", 0)
        with Progress(f"dataset {self.job.key}", expected, "passages") as progress:
            batches = self._measured(tables.ahead(self._hashed()), checksum, progress)
            tables.write(self.path, batches, tables.CORPUS_SCHEMA)
            if progress.done == 0:
                raise UserError(f"{self.place}: the corpus is empty; at least one passage is needed")
        require_unique_hashes("document", self.place, self.ids, lambda row: tables.value_at(self.path, "doc_id", row))

    def _hashed(self) -> Iterator[pa.RecordBatch]:
        """Batches of the passages, after hashing them: the part that handles Python strings."""
        for ids, titles, texts, batch in self._chunks():
            self.ids.add(ids)
            self.sample.add(texts)
            titled = self.titles and any(titles)
            self.statistics.texts.add(map(contents, titles, texts) if titled else texts)
            yield batch

    def _chunks(self) -> Iterator[Chunk]:
        """The whole corpus: finished parts from their files, what is missing between them from the source."""
        reading: Iterator[Chunk] | None = None
        number, size, is_last = 0, self.parts.rows // tables.ROWS, False
        while not is_last:
            if facts := self.parts.facts(number):
                reading, is_last = None, facts["is_last"]
                yield from self._of_part(number)
            else:
                reading = reading or read_chunks(self.source, number * self.parts.rows)
                count = 0
                for chunk in islice(reading, size):
                    yield chunk
                    count += 1
                is_last = count < size
            number += 1

    def _of_part(self, number: int) -> Iterator[Chunk]:
        with pa.memory_map(str(self.parts.path(number))) as file, pa.ipc.open_file(file) as part:
            for batch in map(part.get_batch, range(part.num_record_batches)):
                ids, titles, texts = (batch[name].to_pylist() for name in tables.CORPUS_SCHEMA.names)
                yield Chunk(ids, titles, texts, batch)

    def _measured(
        self, batches: Iterable[pa.RecordBatch], checksum: tables.Checksum, progress: Progress
    ) -> Iterator[pa.RecordBatch]:
        """The batches as they are written: the part that Arrow and numpy do without holding up the other."""
        for batch in batches:
            if batch.schema != MEASURED:
                batch = measured(batch, self.titles)
            self.statistics.add(batch["words"].to_numpy(), batch["characters"].to_numpy())
            batch = batch.select(tables.CORPUS_SCHEMA.names)
            checksum.add(batch)
            progress.add(batch.num_rows)
            yield batch if self.titles else blanked(batch)


def run_shard(job: Job[DatasetParams]) -> Json:
    """Write a stretch of the parts, the shard's share of all; none where one job reads the source."""
    source, parts = open_source(job), Parts(job, ".arrow")
    shard, shards, spans = job.execution.shard or 0, job.execution.shards, parts.spans(source.count() or 0)
    own = range(len(spans) * shard // shards, len(spans) * (shard + 1) // shards)
    missing = [number for number in own if parts.facts(number) is None]
    total, at = sum(len(spans[number]) for number in own), -1
    done = total - sum(len(spans[number]) for number in missing)
    with Progress(f"dataset {job.key}", total, "passages", done=done) as progress:
        for number in missing:
            if number != at:  # after the part before, the source is where this one begins
                chunks = read_chunks(source, spans[number].start)
            some = islice(chunks, parts.rows // tables.ROWS)
            parts.write(number, partial(_write_part, some, job.params.title, progress, number + 1 == len(spans)))
            at = number + 1
    return {"parts": list(own)}


def _write_part(chunks: Iterator[Chunk], titles: bool, progress: Progress, is_last: bool, path: Path) -> Json:
    with pa.ipc.new_file(path, MEASURED, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for batch in tables.ahead(chunk.batch for chunk in chunks):
            writer.write_batch(measured(batch, titles))
            progress.add(batch.num_rows)
    return {"is_last": is_last}


def read_chunks(source: Source, row: int) -> Iterator[Chunk]:
    """The source's passages from a row on, `ROWS` at a time.

    Raises:
        UserError: an id that a run file could not carry.
    """
    rows = source.corpus_from(row) if row else source.corpus()
    for ids, titles, texts in tables.columns(rows):
        require_usable("document", source.places["corpus"], row + 1, *ids)
        yield Chunk(ids, titles, texts, tables.batch_of((ids, titles, texts), tables.CORPUS_SCHEMA))
        row += len(ids)


def measured(batch: pa.RecordBatch, titles: bool) -> pa.RecordBatch:
    """A batch with the numbers of words and characters of each passage."""
    heading = batch["title"] if titles else blanked(batch)["title"]
    columns = [*batch.columns, *map(pa.array, lengths(heading, batch["text"]))]
    return pa.RecordBatch.from_arrays(columns, schema=MEASURED)


def blanked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch without its titles."""
    blank = pa.array([""] * batch.num_rows, pa.string())
    return batch.set_column(1, tables.CORPUS_SCHEMA.field(1), blank)
