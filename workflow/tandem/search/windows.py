"""Which rows of a `windows` dataset are a document's."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from tandem.data.collection import Collection
from tandem.data.rows import Rows
from tandem.data.windowing import window_id
from tandem.errors import UserError
from tandem.store.job import Job


class Spans:
    """The windows of each document: they stand together, in the documents' order. Memory: 8 bytes a document.

    Args:
        windows: the dataset of windows.
    """

    def __init__(self, windows: Collection) -> None:
        begins, before = [], 0
        for batch in windows.batches(columns=["doc_id"]):
            zeroth = pc.ends_with(batch["doc_id"], window_id("", 0))
            begins.append(np.flatnonzero(np.asarray(zeroth)) + before)
            before += batch.num_rows
        self.bounds: Rows = np.concatenate([*begins, [before]]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def sizes(self, documents: Rows) -> Rows:
        """How many windows each document has, by the documents' rows."""
        sizes: Rows = self.bounds[documents + 1] - self.bounds[documents]
        return sizes

    def rows(self, documents: Rows, most: int | None = None) -> tuple[Rows, Rows]:
        """Rows of the documents' windows, document after document.

        Args:
            documents: rows of documents, any order.
            most: the first so many of each; None for all.
        Returns:
            The windows' rows, shape (windows,), and how many each document has among them, shape (documents,).
        """
        sizes = self.sizes(documents)
        sizes = sizes if most is None else np.minimum(sizes, most)
        before = np.cumsum(sizes) - sizes
        return np.repeat(self.bounds[documents] - before, sizes) + np.arange(sizes.sum()), sizes


def require_windows(job: Job, role: str) -> None:
    """Refuse an input that was not made from the windows `job.inputs["windows"]`, and windows of other documents."""
    windows, documents = job.inputs["windows"], job.inputs["dataset"]
    cut = Path(windows.upstream.get("of", "nothing")).name
    if cut != documents.key or windows.params.get("source") != "windows":
        raise UserError(f"{job.kind}: {windows.folder} holds windows of {cut}; expected windows of {documents.key}")
    found = Path(job.inputs[role].upstream["dataset"]).name
    if found != windows.key:
        folder = job.inputs[role].folder
        raise UserError(f"{job.kind}: {role} {folder} was made from the dataset {found}; expected {windows.key}")
