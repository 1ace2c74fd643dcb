"""Several datasets as one: passages, queries and labels one after the other; ids begin with a dataset's name."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from tandem.config.base import Items
from tandem.config.datasets import Dataset
from tandem.data.sources import DatasetJob, dataset_format
from tandem.errors import UserError
from tandem.extras.derived import DerivedSource, PartsSource


class UnionEntry(Dataset):
    """The names of the united datasets; the datasets themselves are inputs."""

    names: Items[str] = Field(description="names that precede the ids of each dataset")


@dataset_format("union")
class UnionSource(PartsSource):
    """Reads the datasets of the inputs `of.0`, `of.1`, …, one after the other.

    Ids are preceded by `<name>.`, with the dataset's name in `names`. A model trained on a union learns from each
    dataset's training queries over its own passages, and negatives can be drawn from all passages.
    """

    literal_matches = True

    def __init__(self, job: DatasetJob, entry: UnionEntry) -> None:
        super().__init__(job, entry)
        names = entry.names
        members = [DerivedSource(job, entry, f"of.{number}") for number in range(len(names))]
        if len(set(names)) < len(names):
            raise UserError(
                f"dataset {job.key}: names {', '.join(names)} must differ, ids begin with them"
            )
        self._members = list(zip(names, members, strict=True))
        self.places = {
            key: " then ".join(member.places[key] for member in members)
            for key in ("corpus", "queries")
        }
        self.facts = {"of": [member.base.key for member in members]}

    def rows(self, part: str) -> Iterator[Any]:
        """Yield the members' rows of a part; ids are preceded by the member's name."""
        # Rows begin with their ids: of a query and a document, or of one of these.
        id_count = 2 if part in ("qrels", "lists") else 1
        for name, dataset in self._members:
            for row in dataset.rows(part):
                ids = [f"{name}.{value}" for value in row[:id_count]]
                yield *ids, *row[id_count:]
