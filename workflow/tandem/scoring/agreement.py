"""How far two series of values agree about the order of the same things: Kendall's τ-b and Pearson's r."""

import math
from collections.abc import Sequence
from itertools import combinations


def kendall(x: Sequence[float], y: Sequence[float]) -> float | None:
    """τ_b = (C - D) / √((n₀ - n₁)(n₀ - n₂)), Kendall 1945.

    C and D are the pairs in the same and in opposite order, n₀ all pairs, n₁ and n₂ those that x and y tie.

    Returns:
        Between -1 and 1; None where x or y ties every pair.
    """
    signs = [(_sign(a[0] - b[0]), _sign(a[1] - b[1])) for a, b in combinations(zip(x, y, strict=True), 2)]
    told = sum(1 for one, _ in signs if one) * sum(1 for _, other in signs if other)
    return sum(one * other for one, other in signs) / math.sqrt(told) if told else None


def pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """r = Σ(x - x̄)(y - ȳ) / √(Σ(x - x̄)² Σ(y - ȳ)²).

    Returns:
        Between -1 and 1; None where x or y does not vary.
    """
    if len(set(x)) < 2 or len(set(y)) < 2:
        return None
    dx, dy = ([value - math.fsum(values) / len(values) for value in values] for values in (x, y))
    across = math.fsum(a * b for a, b in zip(dx, dy, strict=True))
    return across / math.sqrt(math.fsum(a * a for a in dx) * math.fsum(b * b for b in dy))


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
