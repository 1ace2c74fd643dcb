"""What a search shows of a collection: texts of passages by row, and what is known about a query."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandem.data.collection import CORPUS, QRELS, QUERIES
from tandem.data.order import Order
from tandem.data.tables import streaming
from tandem.store.artifact import Artifact


class Passages:
    """A corpus by row; ids and texts stay on disk.

    Attributes:
        ids: ids to rows.
    """

    def __init__(self, dataset: Artifact) -> None:
        self.ids = Order(dataset)
        self._file: pq.ParquetFile = streaming(dataset.path(CORPUS))
        meta = self._file.metadata
        self._starts = np.cumsum([0, *(meta.row_group(i).num_rows for i in range(meta.num_row_groups))])

    def __len__(self) -> int:
        return len(self.ids.ranks)

    def texts(self, rows: list[int]) -> list[tuple[str, str]]:
        """(title, text) of some rows; each row group that holds one is read once."""
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        found: dict[int, tuple[str, str]] = {}
        for group in np.unique(groups):
            wanted = [row for row, at in zip(rows, groups, strict=True) if at == group]
            table = self._file.read_row_group(int(group), columns=["title", "text"])
            taken = table.take(pa.array([row - self._starts[group] for row in wanted]))
            found.update(zip(wanted, zip(*(column.to_pylist() for column in taken.columns), strict=True), strict=True))
        return [found[row] for row in rows]


@dataclass(frozen=True)
class Known:
    """A query of the collection.

    Attributes:
        query: its id.
        split: where it is from.
        relevant: documents judged relevant to it; None where the collection judges none of the split.
    """

    query: str
    split: str
    relevant: frozenset[str] | None


class Queries:
    """A collection's queries, to be recognised by their text.

    Args:
        dataset: the collection.
        split: whose query is meant where several have one text.
    """

    def __init__(self, dataset: Artifact, split: str) -> None:
        self.split = split
        self._queries = pq.read_table(dataset.path(QUERIES))
        self._qrels = pq.read_table(dataset.path(QRELS))
        self._judged = set(self._qrels["split"].unique().to_pylist())

    def find(self, text: str) -> Known | None:
        """The query with exactly this text, and what is relevant to it; None if there is none."""
        same = self._queries.filter(pc.equal(self._queries["text"], text)).to_pylist()
        if not same:
            return None
        found = next((row for row in same if row["split"] == self.split), same[0])
        if found["split"] not in self._judged:
            return Known(found["query_id"], found["split"], None)
        own = pc.equal(self._qrels["query_id"], found["query_id"])
        relevant = pc.and_(own, pc.greater(self._qrels["relevance"], 0))
        return Known(found["query_id"], found["split"], frozenset(self._qrels.filter(relevant)["doc_id"].to_pylist()))
