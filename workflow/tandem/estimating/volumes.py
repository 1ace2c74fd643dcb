"""How much text there is: counted where the artifacts are made, else from the catalogue and typical lengths."""

import json
from dataclasses import dataclass
from functools import cache
from math import exp
from pathlib import Path
from typing import Any

from tandem.plan.graph import Stage
from tandem.store.artifact import MANIFEST

# Mean tokens of a (passage, query) where an entry tells none: web passages of 56 words at 1.3 WordPiece tokens a word;
# in Chinese one token a character, and DuReader-retrieval's mean of 272 characters (Qiu et al. 2022, §2.2).
TYPICAL = {"zh": (272.0, 9.3)}
OTHERWISE = (73.0, 8.5)
TOKENS_PER_WORD = 1.3


@dataclass(frozen=True)
class Volumes:
    """A dataset's size.

    Attributes:
        passages: number of passages.
        queries: number of queries by split.
        lengths: mean tokens of an uncut `passage` and `query`, without special tokens.
        counted: whether the collection was counted; else these are the catalogue's numbers and typical lengths.
    """

    passages: int
    queries: dict[str, int]
    lengths: dict[str, float]
    counted: bool = False

    def tokens(self, side: str, limit: int) -> float:
        """Mean tokens of a text cut at `limit`, for lengths of half the mean and an exponential rest.

        E[min(X, limit)] for X = m/2 + Exp(m/2).
        """
        half = self.lengths[side] / 2
        return float(limit) if limit <= half else half + half * (1 - exp(-(limit - half) / half))


@cache
def finished(folder: str) -> dict[str, Any] | None:
    """The manifest of an artifact that is there."""
    path = Path(folder) / MANIFEST
    told: dict[str, Any] | None = json.loads(path.read_text()) if path.is_file() else None
    return told


def volumes(stage: Stage, entry: dict[str, Any]) -> Volumes | None:
    """The size of a dataset stage's collection; None where neither an artifact nor the dataset's entry tells."""
    typical = TYPICAL.get(str(entry.get("language")), OTHERWISE)
    path = Path(stage.folder) / "statistics.json"
    if finished(stage.folder) and path.is_file():
        told = json.loads(path.read_text())
        queries = {name: one["queries"] for name, one in told["splits"].items()}
        spread = {"passage": told["passages"], "query": next(iter(told["splits"].values()), {})}
        lengths = {side: _length(one, typical[i]) for i, (side, one) in enumerate(spread.items())}
        return Volumes(told["passages"]["count"], queries, lengths, counted=True)
    counts = entry.get("counts", {})
    if "passages" not in counts:
        return None
    queries = {name: n for name, n in counts.items() if name != "passages" and not name.endswith("_qrels")}
    lengths = {"passage": typical[0], "query": typical[1]} | entry.get("tokens", {})
    return Volumes(counts["passages"], queries, lengths)


def _length(spread: dict[str, Any], typical: float) -> float:
    """Mean tokens from counted words, or from characters where white space separates no words."""
    words, characters = ((spread.get(unit) or {}).get("mean") for unit in ("words", "characters"))
    if not words:
        return typical
    return float(characters) if characters and characters > 12 * words else words * TOKENS_PER_WORD
