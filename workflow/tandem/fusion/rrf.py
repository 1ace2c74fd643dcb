"""Reciprocal rank fusion."""

from typing import Any

from tandem.fusion.pool import Floats64, Pool, total


def rrf(pool: Pool, settings: dict[str, Any]) -> Floats64:
    """score(d) = Σ over the runs that list d of 1 / (k + rank(d)), ranks from 1.

    Cormack, Clarke and Büttcher, Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods,
    SIGIR 2009; there k = 60. A run that does not list a document adds nothing.

    Args:
        pool: what the runs found; scores are not looked at.
        settings: `k`.
    """
    return total(1 / (settings["k"] + pool.ranks))


def constants(runs: int, told: dict[str, Any]) -> list[dict[str, Any]]:
    """The values of k that are tried: those of `told["k"]`, whatever the number of runs."""
    return [{"k": k} for k in told["k"]]
