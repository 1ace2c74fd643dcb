"""Pairwise re-ranking: two passages are compared in both orders, since models favour one of the places."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations

import numpy as np
from scipy.special import expit

from tandem.data.columns import Floats
from tandem.data.runs import falling
from tandem.retrieval.llm.answers import Answers
from tandem.retrieval.llm.prompts import PAIR_WORDS, pair_prompt

Prefer = Callable[[int, int], float]  # how far the first of two passages is preferred: 1, 0, or 1/2 for a tie
TIE = 0.5


def wins(first: float | None, second: float | None) -> float:
    """1 or 0 if both orders name the same passage, else a tie (PRP, Qin et al. 2023).

    Args:
        first, second: log-odds for the passage that is named first, where that is passage i, and where it is passage j;
            None where the model named neither.
    """
    if first is None or second is None:
        return TIE
    if first > 0 > second:
        return 1.0
    return 0.0 if first < 0 < second else TIE


def probability(first: float | None, second: float | None) -> float:
    """(p_ij + 1 - p_ji) / 2: half of a term of SYM-SUM (duoT5, Pradeep et al. 2021). Arguments as of `wins`."""
    if first is None or second is None:
        return TIE
    return float((expit(first) + 1 - expit(second)) / 2)


def all_pairs(count: int, prefer: Prefer) -> Floats:
    """Each passage's sum of preferences over all others; of equal ones the earlier is higher by the least bit."""
    sums = np.zeros(count)
    for i, j in combinations(range(count), 2):
        share = prefer(i, j)
        sums[i] += share
        sums[j] += 1 - share
    order = np.argsort(-sums.astype(np.float32), kind="stable")
    scores = np.empty(count, np.float32)
    scores[order] = [score for _, score in falling(("", float(np.float32(sums[at]))) for at in order)]
    return scores


def bubble(count: int, passes: int, prefer: Prefer) -> list[int]:
    """The order after some passes from the end to the top, in which neighbours change places (PRP-Sliding-K).

    Σ_p (count - p) comparisons, p from 1 to `passes`; the first `passes` places are then settled. Ties change nothing.
    """
    ranked = list(range(count))
    for settled in range(min(passes, count - 1)):
        for at in range(count - 1, settled, -1):
            if prefer(ranked[at], ranked[at - 1]) > TIE:
                ranked[at - 1 : at + 1] = ranked[at], ranked[at - 1]
    return ranked


def pairwise_scores(
    form: str, passes: int | None, query: str, passages: Sequence[str], answers: Answers
) -> tuple[Floats, Counter[str]]:
    """Scores of one query's passages, best highest, shape (passages,).

    Args:
        passes: of `bubble`; None: all pairs.
    Returns:
        Also how many comparisons were ties, and how many answers named neither passage (`repaired`).
    """
    counts: Counter[str] = Counter(ties=0, repaired=0)
    decide = probability if form == "duot5" else wins

    @cache
    def prefer(i: int, j: int) -> float:
        prompts = (pair_prompt(form, query, passages[a], passages[b]) for a, b in ((i, j), (j, i)))
        odds = [answers.compare(prompt, PAIR_WORDS[form]).score for prompt in prompts]
        share = decide(*odds)
        counts.update(ties=share == TIE, repaired=odds.count(None))
        return share

    if passes is None:
        return all_pairs(len(passages), prefer), counts
    scores = np.empty(len(passages), np.float32)
    scores[bubble(len(passages), passes, prefer)] = np.arange(len(passages), 0, -1)
    return scores, counts
