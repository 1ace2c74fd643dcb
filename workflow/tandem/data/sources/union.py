"""Several datasets as one: passages of all of them, asked by the queries of all of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tandem.data.collection import CORPUS, QUERIES
from tandem.data.sources import Answers, Judgement, Listed, Passage, Query, Source
from tandem.data.sources.artifact_rows import ArtifactRows, needed
from tandem.errors import UserError
from tandem.store.job import Job


class Union(Source):
    """The datasets of the inputs `of.0`, `of.1`, …, one after the other.

    Ids get `<name>.` before them, the name being that of `names`: a model trained on a union learns from each dataset's
    training queries over its own passages, with all passages to draw negatives from.
    """

    PARAMS = frozenset({"names"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        names: list[str] = job.params["names"]
        self._parts = [(name, ArtifactRows(needed(job, f"of.{i}", "dataset"))) for i, name in enumerate(names)]
        if len(set(names)) < len(names):
            raise UserError(f"dataset {job.key}: names {', '.join(names)} must differ, ids begin with them")
        self.places = {
            "corpus": " then ".join(part.place(CORPUS) for _, part in self._parts),
            "queries": " then ".join(part.place(QUERIES) for _, part in self._parts),
        }
        self.facts = {"of": [part.artifact.key for _, part in self._parts]}

    def corpus(self) -> Iterator[Passage]:
        """Every passage of each."""
        return self._prefixed(ArtifactRows.corpus, 1)

    def queries(self) -> Iterator[Query]:
        """Every query of each, in the split that it is in there."""
        return self._prefixed(ArtifactRows.queries, 1)

    def qrels(self) -> Iterator[Judgement]:
        """The judgements of each."""
        return self._prefixed(ArtifactRows.qrels, 2)

    def answers(self) -> Iterator[Answers]:
        """The answers of those that have some."""
        return self._prefixed(ArtifactRows.answers, 1)

    def lists(self) -> Iterator[Listed]:
        """The training lists of those that have some."""
        return self._prefixed(ArtifactRows.lists, 2)

    def _prefixed(self, rows: Callable[[ArtifactRows], Iterable[tuple[Any, ...]]], ids: int) -> Iterator[Any]:
        """Rows of each part whose first columns are ids."""
        for name, part in self._parts:
            for row in rows(part):
                yield (*(f"{name}.{one}" for one in row[:ids]), *row[ids:])
