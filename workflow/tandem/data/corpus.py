"""The corpus of a dataset: streamed from its source to Parquet, checked and measured on the way."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from tandem.cluster.progress import Progress
from tandem.data import tables
from tandem.data.collection import contents
from tandem.data.statistics import CorpusStatistics
from tandem.data.validate import Hashes, require_all_usable, require_unique_hashes
from tandem.errors import UserError


class CorpusWriter:
    """Writes passages and keeps what later checks need of them: 24 bytes a passage, as much again while it checks.

    Attributes:
        ids: hashes of the document ids, in row order.
        statistics: lengths and repetitions.
    """

    def __init__(self, path: Path, place: str, titles: bool) -> None:
        self.path, self.place, self.titles = path, place, titles
        self.ids, self.statistics = Hashes(), CorpusStatistics()

    def write(self, label: str, rows: Iterable[tuple[str, str, str]], checksum: tables.Checksum) -> None:
        """Write (document id, title, text) of every passage; without `titles` they are blanked.

        A thread reads and checks the next passages while these are measured and written.

        Args:
            label: what is being made, for the progress.
            rows: the passages.
            checksum: takes the rows as they come, titles included.
        Raises:
            UserError: an unusable or repeated id, or no passage at all.
        """
        with Progress(label, 0, "passages") as progress:
            parts = self._measured(tables.ahead(self._checked(rows)), checksum, progress)
            tables.write(self.path, parts, tables.CORPUS_SCHEMA)
            if progress.done == 0:
                raise UserError(f"{self.place}: the corpus is empty; at least one passage is needed")
        require_unique_hashes("document", self.place, self.ids, lambda row: tables.value_at(self.path, "doc_id", row))

    def _checked(self, rows: Iterable[tuple[str, str, str]]) -> Iterator[pa.RecordBatch]:
        """Batches of the passages, their hashes kept: the part that handles Python strings."""
        for docs, titles, texts in tables.columns(rows):
            require_all_usable("document", self.place, len(self.ids) + 1, docs)
            self.ids.add(docs)
            titled = self.titles and any(titles)
            self.statistics.texts.add(map(contents, titles, texts) if titled else texts)
            yield tables.batch_of((docs, titles, texts), tables.CORPUS_SCHEMA)

    def _measured(
        self, parts: Iterable[pa.RecordBatch], checksum: tables.Checksum, progress: Progress
    ) -> Iterator[pa.RecordBatch]:
        """The batches as they are written: the part that Arrow and numpy do without holding up the other."""
        for batch in parts:
            checksum.add(batch)
            if not self.titles:
                blank = pa.array([""] * batch.num_rows, pa.string())
                batch = batch.set_column(1, tables.CORPUS_SCHEMA.field(1), blank)
            self.statistics.measure(batch["title"], batch["text"])
            progress.add(batch.num_rows)
            yield batch
