"""What an engine of BM25 is to the stages that search."""

from collections.abc import Iterator
from typing import Any, Protocol

from tandem.cluster.progress import Progress

Query = tuple[str, str]  # id and text
Hits = list[tuple[str, float]]  # (document id, score)
Ranked = tuple[str, list[str], list[float]]  # query id, document ids and scores, as `write_run` takes them


class Engine(Protocol):
    """An opened index, to be searched with any k1 and b.

    Attributes:
        facts: versions of what decides a result, for the manifest.
    """

    facts: dict[str, Any]

    def search(self, queries: list[Query], k1: float, b: float, depth: int, progress: Progress) -> Iterator[Ranked]:
        """The best `depth` passages of each query that finds something, in the queries' order.

        Of tied passages at the cut those with the lower document ids are kept.

        Args:
            queries: ids and texts.
            k1: how soon a term's frequency saturates, from 0.
            b: how much a passage's length counts, 0 to 1.
            depth: most passages of a query.
            progress: counts queries.
        """
        ...
