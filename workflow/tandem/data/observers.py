"""Observe a dataset while it is made, and list doubts about it where it is used; packages register both."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from tandem.data.validate import SelectedQueries
from tandem.stages.base import Json
from tandem.stages.data import DATASET_DOUBTS, DATASET_OBSERVERS
from tandem.store.job import Job, load


class Observer(Protocol):
    """Observe the passages of a dataset that streams by; it is made with the dataset's queries."""

    def add(self, ids: Sequence[str], titles: Sequence[str], texts: Sequence[str]) -> None:
        """Look at some passages."""

    def facts(self) -> Json:
        """Return what the dataset's manifest keeps."""

    def notes(self) -> Iterator[str]:
        """Yield lines to print once the dataset is made."""


def make_observers(queries: SelectedQueries) -> dict[str, Observer]:
    """Return name of a fact → its observer."""
    return {name: load(entry)(queries) for name, entry in DATASET_OBSERVERS.items()}


def list_doubts(use: str, job: Job[Any], *details: Any) -> Iterator[str]:
    """Yield lines with doubts about the dataset of a job; `use`, how it is used, is a name of `DATASET_DOUBTS`."""
    if use in DATASET_DOUBTS:
        yield from load(DATASET_DOUBTS[use])(job, *details)
