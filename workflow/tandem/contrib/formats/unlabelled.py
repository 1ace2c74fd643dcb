"""A dataset with further queries that have no labels."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from tandem.config.datasets import UNLABELLED
from tandem.contrib.formats.options import UNLABELLED_FILE, Unlabelled
from tandem.data.dataset_files import DatasetFiles
from tandem.data.forms import compose_text
from tandem.data.reading import read_fields
from tandem.data.sources import DatasetJob, Query, dataset_format
from tandem.errors import UserError
from tandem.extras.derived import PASSAGE_PARTS, DerivedSource
from tandem.extras.drawn_splits import choose_share


@dataset_format("unlabelled")
class UnlabelledSource(DerivedSource):
    """Adds queries without labels to the dataset of the input `of`: split `unlabelled`, for a cross-encoder to label.

    They are the training queries of the input `queries`; else those of the file `unlabelled.query.txt` (id, text, by
    tabs); else a share of the dataset's own training queries, those whose ids have the lowest sha1, which lose their
    labels. Ids of queries from elsewhere are preceded by `unlabelled-`. A query whose text the dataset already has is
    left out, whatever its Unicode form: otherwise scored queries would leak into training.
    """

    def __init__(self, job: DatasetJob, entry: Unlabelled) -> None:
        super().__init__(job, entry)
        self._other = DerivedSource(job, entry, "queries") if "queries" in job.inputs else None
        has_files = job.execution.path or job.execution.files
        self._file = DatasetFiles(job).find(UNLABELLED_FILE) if has_files else None
        self._share, self._key = entry.share, job.key
        if [self._other, self._file, self._share].count(None) != 2:
            choices = f"queries_of, path (with {UNLABELLED_FILE}) and share"
            raise UserError(f"dataset {job.key}: queries come from one of {choices}")
        others = self._other.places["queries"] if self._other else self._file
        if others:
            self.places["queries"] += f" then {others}"

    def read_queries(self) -> Iterator[Query]:
        """Yield the dataset's queries, of which some become `unlabelled`, and then the other queries."""
        texts = set()
        for query, text, split in super().read_queries():
            texts.add(compose_text(text, "nfc"))
            yield query, text, UNLABELLED if query in self._losing else split
        self.facts["asked_already"] = 0
        for query, text in self._read_others():
            if compose_text(text, "nfc") in texts:
                self.facts["asked_already"] += 1
            else:
                yield f"unlabelled-{query}", text, UNLABELLED

    def _read_others(self) -> Iterator[Sequence[str]]:
        """Yield (query id, text) of the queries from elsewhere."""
        if self._other:
            for query, text, split in self._other.read_queries():
                if split == "train":
                    yield query, text
        elif self._file:
            for _, columns in read_fields(self._file, "query id, text", 2):
                yield columns

    def rows(self, part: str) -> Iterator[Any]:
        """Yield the rows of a part, without labels of queries that lose them."""
        rows = super().rows(part)
        if part in (*PASSAGE_PARTS, "queries"):
            return rows
        return (row for row in rows if row[0] not in self._losing)

    @cached_property
    def _losing(self) -> set[str]:
        training = [query for query, _, split in super().rows("queries") if split == "train"]
        losing = choose_share(training, self._share) if self._share else set()
        if self._share and not losing:
            falls = f"which none of {len(training)} train queries falls into; raise it"
            raise UserError(f"dataset {self._key}: share is {self._share:g}, {falls}")
        return losing
