"""The corpus of a dataset: streamed from its source to Parquet, checked and measured on the way."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from tandem.data import tables
from tandem.data.collection import contents
from tandem.data.statistics import CorpusStatistics
from tandem.data.validate import Hashes, require_unique_hashes, require_usable
from tandem.errors import UserError
from tandem.progress import Progress


class CorpusWriter:
    """Writes passages and keeps what later checks need of them: 24 bytes a passage, as much again while it checks.

    Attributes:
        ids: hashes of the document ids, in row order.
        statistics: lengths and repetitions.
    """

    def __init__(self, path: Path, place: str, titles: bool) -> None:
        self.path, self.place, self.titles = path, place, titles
        self.ids, self.statistics = Hashes(), CorpusStatistics()

    def write(self, label: str, rows: Iterable[tuple[str, str, str]]) -> None:
        """Write (document id, title, text) of every passage; without `titles` they are blanked.

        Raises:
            UserError: an unusable or repeated id, or no passage at all.
        """
        with Progress(label, 0, "passages") as progress:
            tables.write(self.path, self._checked(rows, progress), tables.CORPUS_SCHEMA)
            if progress.done == 0:
                raise UserError(f"{self.place}: the corpus is empty; at least one passage is needed")
        require_unique_hashes("document", self.place, self.ids, lambda row: tables.value_at(self.path, "doc_id", row))

    def _checked(self, rows: Iterable[tuple[str, str, str]], progress: Progress) -> Iterator[pa.RecordBatch]:
        for batch in tables.batches(rows, tables.CORPUS_SCHEMA):
            docs, titles, texts = (column.to_pylist() for column in batch.columns)
            for row, doc in enumerate(docs, start=progress.done + 1):
                require_usable("document", self.place, row, doc)
            if not self.titles:
                titles = [""] * len(docs)
                batch = batch.set_column(1, tables.CORPUS_SCHEMA.field(1), pa.array(titles, pa.string()))
            self.ids.add(docs)
            self.statistics.add([contents(title, text) for title, text in zip(titles, texts, strict=True)])
            progress.add(len(docs))
            yield batch
