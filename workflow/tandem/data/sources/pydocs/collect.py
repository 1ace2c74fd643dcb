"""Pairs of all modules as one collection: equal texts meet, and everything is named by a hash of its text."""

import hashlib

from tandem.data.sources.pydocs.pairs import Pair, normalised


class Collected:
    """Passages, queries and which answers which; of equal ones the first counts.

    Attributes:
        passages: passage id → (module, text).
        queries: query id → (normalised text, text).
        answers: (query id, passage id).
        pairs: how many pairs were added.
    """

    def __init__(self) -> None:
        self.passages: dict[str, tuple[str, str]] = {}
        self.queries: dict[str, tuple[str, str]] = {}
        self.answers: set[tuple[str, str]] = set()
        self.pairs = 0

    def add(self, module: str, pairs: list[Pair]) -> None:
        """Add the pairs of a module."""
        for pair in pairs:
            normal = normalised(pair.query)
            query_id, doc_id = f"q{short_hash(normal)}", short_hash(normalised(pair.passage))
            self.queries.setdefault(query_id, (normal, pair.query))
            self.passages.setdefault(doc_id, (module, pair.passage))
            self.answers.add((query_id, doc_id))
        self.pairs += len(pairs)


def short_hash(text: str) -> str:
    """First 10 hex digits of the sha1 of a text."""
    return hashlib.sha1(text.encode()).hexdigest()[:10]


def split_of(normal_query: str) -> str:
    """8 % of the queries are test, 4 % dev, the others train: the first 32 bits of their sha1, modulo 100."""
    bucket = int(hashlib.sha1(normal_query.encode()).hexdigest()[:8], 16) % 100
    return "test" if bucket < 8 else "dev" if bucket < 12 else "train"
