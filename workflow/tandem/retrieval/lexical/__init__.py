"""Lexical retrieval: BM25 by Lucene, through Pyserini's build of Anserini, or by bm25s where there is no Java."""

from collections.abc import Iterator
from typing import Protocol

from tandem.cluster.progress import Progress

LexicalQuery = tuple[str, str]  # id and text
# query id, document ids and scores, as `write_run` takes them
LexicalRanking = tuple[str, list[str], list[float]]


class LexicalEngine(Protocol):
    """Describe an opened index, to be searched with any k1 and b."""

    facts: dict[str, object]  # versions of what decides a result, for the manifest

    def search(
        self, queries: list[LexicalQuery], k1: float, b: float, depth: int, progress: Progress
    ) -> Iterator[LexicalRanking]:
        """Yield the best `depth` passages of each query that matches any, in order, ties by document id."""
        ...

    def close(self) -> None:
        """Close the files of the index."""
        ...
