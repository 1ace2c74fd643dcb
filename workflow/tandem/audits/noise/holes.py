"""Holes: results that nobody judged, and those among them that must be relevant since they repeat a positive."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from tandem.audits.noise.duplicates import Duplicates
from tandem.audits.noise.labels import Split
from tandem.data.rows import IdRows
from tandem.data.runs import Floats, ranked_order

QUERIES_AT_ONCE = 1000
EXACT = 2.0  # `Duplicates.likeness` of the same text


class Hint(NamedTuple):
    """An unjudged result that repeats a positive of its query.

    Attributes:
        query: query id.
        doc: the result.
        rank: its rank, from 1.
        positive: row of the positive; of several the one most alike, then the first in the corpus.
        likeness: as `Duplicates.likeness` gives it, never 0.
    """

    query: str
    doc: str
    rank: int
    positive: int
    likeness: float


@dataclass
class Holes:
    """Sums over the queries of a run that are judged.

    Attributes:
        depths: the cutoffs.
        missing: judged queries without a result.
        queries: judged queries with results.
        shares: per cutoff, the sum over queries of the share of unjudged results.
        unjudged: per cutoff, unjudged results.
        hints: per kind and cutoff, unjudged results that repeat a positive; and queries with any.
        examples: the first hints.
    """

    depths: Sequence[int]
    missing: int
    queries: int = 0
    shares: dict[int, float] = field(init=False)
    unjudged: dict[int, int] = field(init=False)
    hints: dict[str, dict[int, int]] = field(init=False)
    examples: list[Hint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shares, self.unjudged = dict.fromkeys(self.depths, 0.0), dict.fromkeys(self.depths, 0)
        self.hints = {kind: dict.fromkeys(self.depths, 0) for kind in ("exact", "near", "queries")}

    def add_results(self, judged: list[bool]) -> None:
        """Count a query by whether each of its results, best first, is judged.

        As ir_measures' `Judged@k` = 1 - the share here: a list shorter than k is divided by its own length.
        """
        self.queries += 1
        for depth in self.depths:
            top = judged[:depth]
            self.unjudged[depth] += top.count(False)
            self.shares[depth] += top.count(False) / len(top)

    def add_hints(self, hints: Iterable[Hint], most: int) -> None:
        """Count the hints of some queries, all of a query at once; keep up to `most` examples."""
        ranks: dict[str, int] = {}
        for hint in hints:
            ranks[hint.query] = min(hint.rank, ranks.get(hint.query, hint.rank))
            for depth in self.depths:
                self.hints["exact" if hint.likeness == EXACT else "near"][depth] += hint.rank <= depth
            if len(self.examples) < most:
                self.examples.append(hint)
        for depth in self.depths:
            self.hints["queries"][depth] += sum(rank <= depth for rank in ranks.values())

    def counts(self) -> dict[str, Any]:
        """Numbers as the summary gives them; a hole rate is null where no query is judged."""
        depths = {
            str(depth): {
                "hole": self.shares[depth] / self.queries if self.queries else None,
                "unjudged": self.unjudged[depth],
                **{kind: hints[depth] for kind, hints in self.hints.items()},
            }
            for depth in self.depths
        }
        return {"queries": self.queries, "missing": self.missing, "depths": depths}


def holes(
    run: Iterable[tuple[str, list[str], Floats]],
    split: Split,
    depths: Sequence[int],
    duplicates: Duplicates,
    ids: IdRows,
    most: int,
) -> Holes:
    """Look through a run's results; those of queries that nobody judged are left out.

    Args:
        run: (query, document ids, scores) per query.
        split: its queries and judgements.
        depths: cutoffs.
        duplicates: of the corpus.
        ids: of the corpus.
        most: examples kept.
    Raises:
        UserError: a result that the corpus lacks.
    """
    made = Holes(depths, missing=len(split.judged))
    judged = ((query, ranked_order(docs, scores)) for query, docs, scores in run if query in split.judged)
    while some := list(islice(judged, QUERIES_AT_ONCE)):
        tops = {query: [doc for doc, _ in ranked[: max(depths)]] for query, ranked in some}
        for query, docs in tops.items():
            made.add_results([doc in split.judged[query] for doc in docs])
        made.add_hints(_hints(tops, split, duplicates, ids), most)
        made.missing -= len(tops)
    return made


def _hints(tops: dict[str, list[str]], split: Split, duplicates: Duplicates, ids: IdRows) -> Iterator[Hint]:
    """Unjudged results that repeat a positive of their query, by query and rank."""
    open_results = [
        (query, doc, rank)
        for query, docs in tops.items()
        for rank, doc in enumerate(docs, start=1)
        if doc not in split.judged[query]
    ]
    known = {query: sorted(split.known(query)) for query in tops}
    rows = ids.rows([doc for _, doc, _ in open_results])
    positives = [known[query] for query, _, _ in open_results]
    counts = np.asarray([len(some) for some in positives], np.int64)
    flat = np.asarray([row for some in positives for row in some], np.int64)
    likeness = duplicates.likeness(np.repeat(rows, counts), flat)
    for at, end in enumerate(np.cumsum(counts).tolist()):
        alike = likeness[end - counts[at] : end]
        if alike.size and alike.max() > 0:
            best = int(alike.argmax())
            yield Hint(*open_results[at], positives[at][best], float(alike[best]))
