"""Queries that are passages of the corpus themselves."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tandem.data.collection import join_contents
from tandem.data.validate import SelectedQueries


class OwnPassages:
    """Counts the queries that are passages themselves: of the same id and text, as ArguAna's arguments are.

    Where ids coincide by chance, as numbers do, the texts differ.

    Attributes:
        counts: split → number of such queries.
    """

    def __init__(self, queries: SelectedQueries) -> None:
        self.queries = queries
        self.counts = Counter[str]()

    def add(self, ids: Sequence[str], titles: Sequence[str], texts: Sequence[str]) -> None:
        """Look at some passages."""
        for doc, title, text in zip(ids, titles, texts, strict=True):
            if doc not in self.queries.texts:
                continue
            query = _split_words(self.queries.texts[doc])
            if query in (_split_words(text), _split_words(join_contents(title, text))):
                self.counts[self.queries.splits[doc]] += 1

    def notes(self) -> Iterator[str]:
        """Yield what `describe_own_passages` says of each split, where there is something to say."""
        totals = Counter(self.queries.splits.values())
        for split, count in self.counts.items():
            note = describe_own_passages(count, totals[split], split)
            if note:
                yield note


def describe_own_passages(count: int, queries: int, split: str) -> str:
    """Say what to do where most queries of a split are passages; empty otherwise."""
    if 2 * count <= queries:
        return ""
    what = f"{count:,} of {queries:,} {split} queries are passages of the corpus, with the same id and text"
    return f"{what}: each finds itself first, unless ignore_identical_ids is set"


def _split_words(text: str) -> list[str]:
    return text.casefold().split()
