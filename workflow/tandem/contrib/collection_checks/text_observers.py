"""Observe a dataset's texts: their scripts and languages, and the queries that are passages."""

from collections.abc import Iterator, Sequence

from tandem.data.validate import SelectedQueries
from tandem.extras.language import TextSample
from tandem.extras.own_passages import OwnPassages
from tandem.stages.base import Json


class OwnPassagesObserver(OwnPassages):
    """Count the queries of each split that are passages themselves."""

    def facts(self) -> Json:
        """Return split → number of such queries."""
        return dict(self.counts)


class TextsObserver:
    """Measure the shares of scripts and languages among passages and among queries."""

    def __init__(self, queries: SelectedQueries) -> None:
        self.queries = queries
        self.sample = TextSample()

    def add(self, ids: Sequence[str], titles: Sequence[str], texts: Sequence[str]) -> None:
        """Add some passages to the sample."""
        self.sample.add(texts)

    def facts(self) -> Json:
        """Return `passages` and `queries`, each with its `TextSample.facts`."""
        return {
            "passages": self.sample.facts(),
            "queries": TextSample(list(self.queries.texts.values())).facts(),
        }

    def notes(self) -> Iterator[str]:
        """Yield nothing: the stages that analyse the texts warn of other languages."""
        yield from ()
