"""Two models' scores of one list as distributions: how sharp each is, how far apart, how alike their order is."""

from typing import Any

import numpy as np
from scipy.stats import kendalltau

Array = np.ndarray[Any, np.dtype[np.float64]]


def log_softmax(scores: Array) -> Array:
    """log p(i) = s_i - log Σ_j exp s_j (RocketQAv2 Eqs. 2 and 3), in nats; shape (list,), any real scale."""
    shifted = np.asarray(scores, np.float64) - np.max(scores)
    made: Array = shifted - np.log(np.exp(shifted).sum())
    return made


def entropy(log_p: Array) -> float:
    """H(p) = -Σ p log p in nats: 0 if one passage has everything, log n if all have the same."""
    return float(-(np.exp(log_p) * log_p).sum())


def divergence(log_p: Array, log_q: Array) -> float:
    """KL(p ‖ q) = Σ p (log p - log q) in nats (RocketQAv2 Eq. 4 with p of the retriever, q of the re-ranker)."""
    return float((np.exp(log_p) * (log_p - log_q)).sum())


def rank_correlation(one: Array, other: Array) -> float | None:
    """Kendall's tau-b of two models' scores; None where one of them gives every passage the same score."""
    if len(one) < 2:
        return None
    tau = float(kendalltau(one, other, variant="b").statistic)
    return None if np.isnan(tau) else tau


def compare(retriever: Array, reranker: Array) -> dict[str, float | None]:
    """What the stage `dynamics` tells of one list.

    Args:
        retriever: s_de(q, p), shape (list,).
        reranker: s_ce(q, p), same shape.
    """
    log_de, log_ce = log_softmax(retriever), log_softmax(reranker)
    return {
        "entropy_de": entropy(log_de),
        "entropy_ce": entropy(log_ce),
        "kl": divergence(log_de, log_ce),
        "tau": rank_correlation(retriever, reranker),
    }
