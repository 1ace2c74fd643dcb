"""Documents that are read by their windows: the windows of each document, and their token ids as the document's."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow.compute as pc

from tandem.contrib.long_documents.cutting import name_window
from tandem.data.collection import Collection
from tandem.data.rows import Rows, index_queries
from tandem.errors import UserError
from tandem.models.ragged import Ids, Ragged, join_ranges, sum_lengths
from tandem.models.tokens import Tokens
from tandem.retrieval.inputs import require_dataset
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.job import Job


@dataclass(frozen=True)
class Documents(Ragged):
    """Token ids of documents, a row each: the ids of the document's windows, one after the other.

    Attributes:
        windows: token ids of the windows, a row each.
        bounds: document i has the windows from `bounds[i]` to `bounds[i + 1]`, shape (documents + 1,).
    """

    windows: Ragged = field(kw_only=True)
    bounds: Ids = field(kw_only=True)

    @classmethod
    def join(cls, windows: Ragged, bounds: Ids) -> Self:
        """Return documents made of windows, without copying the windows' ids."""
        return cls(windows.ids, np.asarray(windows.offsets)[bounds], windows=windows, bounds=bounds)

    def count_texts(self, rows: Ids) -> Ids:
        """Return the number of windows of the documents in `rows`, in the shape of `rows`."""
        return np.asarray(self.bounds[rows + 1] - self.bounds[rows])

    def take(self, rows: Ids) -> "Documents":
        """Return the documents in `rows`, in this order and with repetitions, in memory."""
        sizes = self.count_texts(rows)
        windows = self.windows.take(join_ranges(self.bounds[rows], sizes))
        return Documents.join(windows, sum_lengths(sizes))


class DocumentSpans:
    """The windows of each document, which are consecutive, in the documents' order. Memory: 8 bytes per document."""

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
        """Return the number of windows of each document, given by its row."""
        return np.asarray(self.bounds[documents + 1] - self.bounds[documents])

    def list_windows(self, documents: Rows, most: int | None = None) -> tuple[Rows, Rows]:
        """Return the rows of the first `most` windows of each document, and how many these are for each document."""
        sizes = self.count_windows(documents)
        sizes = sizes if most is None else np.minimum(sizes, most)
        return join_ranges(self.bounds[documents], sizes), sizes


def open_documents(tokens: Artifact) -> Tokens:
    """Return the token ids of windows as token ids of the documents from which they are cut, for PARADE.

    Queries have the same rows as in the documents' dataset.
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


def check_document_tokens(job: Job[Any], tokens: str, folder: Path) -> None:
    """Refuse token ids that are not of windows of `dataset`; the model in `folder` reads these windows."""
    read = job.inputs[tokens]
    windows = open_artifact(Path(read.upstream["dataset"]), verify=False)
    if not _is_cut_from(windows, job.inputs["dataset"]):
        expected = f"expected windows of {job.inputs['dataset'].key}, which {folder} reads"
        raise UserError(
            f"{job.kind}: {tokens} {read.folder} was made from {windows.key}; {expected}"
        )


def require_windows(job: Job[Any], *roles: str) -> None:
    """Refuse windows that are not of the documents of `dataset`, and inputs that were not made from the windows."""
    windows = job.inputs["windows"]
    documents = job.inputs["dataset"]
    if not _is_cut_from(windows, documents):
        cut = Path(windows.upstream.get("of", "nothing")).name
        raise UserError(
            f"{job.kind}: {windows.folder} holds windows of {cut}; expected windows of {documents.key}"
        )
    require_dataset(job, *roles, of="windows")


def _is_cut_from(windows: Artifact, documents: Artifact) -> bool:
    """Return whether a dataset contains windows of another."""
    cut = Path(windows.upstream.get("of", "nothing")).name
    return cut == documents.key and windows.params.get("source") == "windows"
