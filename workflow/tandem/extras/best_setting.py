"""Take the best of several settings by a measure: what the stages share that tune BM25, fusions and pipelines."""

from tandem.data.collection import EXCLUDED
from tandem.evaluation.measures import Qrels

GRID = "grid.csv"  # the file with all settings and their values


def warn_undecided(value: float, tried: str, measure: str, split: str) -> list[str]:
    """Return a warning if the best value of all candidates is 0, since the first one is taken then; else no line."""
    return [] if value else [f"{measure} on {split} is 0 for all {tried}: the first is taken"]


def count_left_out(qrels: Qrels, ignore_identical_ids: bool = False) -> int:
    """Return how many of a query's results `skip_excluded` leaves out at most: a cutoff may look this much deeper."""
    excluded = [list(judged.values()).count(EXCLUDED) for judged in qrels.values()]
    return max(excluded, default=0) + ignore_identical_ids
