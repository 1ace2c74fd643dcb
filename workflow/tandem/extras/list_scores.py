"""What planning knows of the scores in a dataset's own training lists."""

from collections.abc import Callable
from typing import Any

from tandem.registry import Registry

GIVEN_SCORES = "given_scores"  # the name of these scores as a teacher
# By source: `(entry, split) -> problem`, with its place, where a passage of a split's lists is known to have no score.
finds_unscored: Registry[Callable[[Any, str], str | None]] = Registry(
    "search for scores", "finds_unscored", "extras.list_scores"
)
