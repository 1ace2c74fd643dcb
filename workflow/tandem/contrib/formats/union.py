"""Several datasets as one: passages, queries and labels one after the other, ids with a dataset's name before them."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from tandem.config.base import Items
from tandem.config.datasets import Dataset
from tandem.data.sources import DatasetJob, dataset_format
from tandem.errors import UserError
from tandem.extras.derived import DerivedSource, PartsSource


class UnionEntry(Dataset):
    """Name the united datasets; the datasets themselves are inputs."""

    names: Items[str] = Field(description="begin the ids of each dataset")


@dataset_format("union")
class UnionSource(PartsSource):
    """Read the datasets of the inputs `of.0`, `of.1`, …, one after the other.

    Ids get `<name>.` before them, the name being that of `names`: a model trained on a union learns from each dataset's
    training queries over its own passages, with all passages to draw negatives from.
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
        """Yield the members' rows of a part, the ids of each with its member's name before them."""
        # Rows begin with their ids: of a query and a document, or of one of them.
        id_count = 2 if part in ("qrels", "lists") else 1
        for name, dataset in self._members:
            for row in dataset.rows(part):
                ids = [f"{name}.{value}" for value in row[:id_count]]
                yield *ids, *row[id_count:]
