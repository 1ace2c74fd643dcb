"""Documents that are read by their windows: which windows each has, and its token ids, those of its windows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from tandem.data.collection import Collection
from tandem.data.rows import Rows, index_queries
from tandem.data.text import name_window
from tandem.errors import UserError
from tandem.models.ragged import Documents, join_ranges
from tandem.models.tokens import Tokens
from tandem.store.artifact import Artifact, open_artifact


class DocumentSpans:
    """Hold the windows of each document: they stand together, in the documents' order. Memory: 8 bytes a document."""

    def __init__(self, windows: Collection) -> None:
        begins = []
        before = 0
        for batch in windows.batches(columns=["doc_id"]):
            zeroth = pc.ends_with(batch["doc_id"], name_window("", 0))
            begins.append(np.flatnonzero(np.asarray(zeroth)) + before)
            before += batch.num_rows
        self.bounds: Rows = np.concatenate([*begins, [before]]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def count_windows(self, documents: Rows) -> Rows:
        """Return the number of windows of each document, by the documents' rows."""
        return np.asarray(self.bounds[documents + 1] - self.bounds[documents])

    def list_windows(self, documents: Rows, most: int | None = None) -> tuple[Rows, Rows]:
        """Return rows of the documents' windows (of each its first `most`), and the number of each document's."""
        sizes = self.count_windows(documents)
        sizes = sizes if most is None else np.minimum(sizes, most)
        return join_ranges(self.bounds[documents], sizes), sizes


def open_documents(tokens: Artifact) -> Tokens:
    """Return the token ids of windows as those of the documents that they are cut from, which PARADE reads.

    Queries have the rows that they have in the documents' dataset.
    """
    windows = open_artifact(Path(tokens.upstream["dataset"]), verify=False)
    if windows.params.get("source") != "windows":
        raise UserError(
            f"{tokens.folder}: was made from {windows.key}; PARADE reads windows of documents"
        )
    documents = Collection(open_artifact(Path(windows.upstream["of"]), verify=False))
    collection = Collection(windows)
    opened = Tokens.open(tokens)
    rows = index_queries(collection).rows(index_queries(documents).all.to_pylist())
    queries = (
        opened.queries
        if np.array_equal(rows, np.arange(len(opened.queries)))
        else opened.queries.take(rows)
    )
    return replace(
        opened,
        passages=Documents.join(opened.passages, DocumentSpans(collection).bounds),
        queries=queries,
    )
