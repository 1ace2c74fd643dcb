"""Measures that ir_measures lacks (F1@k, DCG@k) or leaves to the script gdeval (nDCG with exponential gains, and ERR).

That script confuses queries whose ids have the same ending (`a-1`, `b-1`), and fails if the endings are not numbers.
Sources: Coelho, A Review on Dense Retrieval, §5.1; Zhao et al., Dense Text Retrieval, 2024 (the survey), A.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log2
from typing import Any

import ir_measures
from ir_measures import measures, providers
from ir_measures.util import QrelsConverter, RunConverter

from tandem.errors import UserError

# the grades of a ranking, from the first rank on; 0 for a passage without a judgement
_RankingGrades = Sequence[int]
_HIGHEST_GRADE = 4  # the grade that satisfies almost surely, as in gdeval
_CUTOFF = measures.ParamInfo(dtype=int, required=True, desc="ranks that count")


class F1(measures.Measure):  # type: ignore[misc]  # ir_measures has no types
    """F1@k = 2 P@k R@k / (P@k + R@k), 0 if nothing relevant is among the first k; the review's Eq. 34."""

    NAME = __name__ = "F1"
    SUPPORTED_PARAMS = {  # noqa: RUF012
        "cutoff": _CUTOFF,
        "rel": measures.ParamInfo(dtype=int, default=1, desc="lowest grade that is relevant"),
    }


class DCG(measures.Measure):  # type: ignore[misc]
    """DCG@k by one of three formulas (`dcg`); with `normalised`, it is divided by the DCG@k of the ideal ranking."""

    NAME = __name__ = "DCG"
    SUPPORTED_PARAMS = {  # noqa: RUF012
        "cutoff": _CUTOFF,
        "dcg": measures.ParamInfo(
            dtype=str, choices=["exp-log2", "log2", "review"], default="exp-log2", desc="formula"
        ),
        "normalised": measures.ParamInfo(
            dtype=bool, default=False, desc="divide by the ideal ranking's"
        ),
    }

    @property
    def is_share(self) -> bool:
        """Return whether values are between 0 and 1, and are shown in percent."""
        return bool(self["normalised"])


def compute_f1(ranked: _RankingGrades, judged: _RankingGrades, cutoff: int, rel: int) -> float:
    """Return F1@k of a ranking; `judged` are the grades of all judged passages, `rel` the lowest relevant one."""
    hits = sum(grade >= rel for grade in ranked[:cutoff])
    relevant = sum(grade >= rel for grade in judged)
    # 2 (h/k) (h/r) / (h/k + h/r)
    return 2 * hits / (cutoff + relevant) if hits else 0.0


def compute_dcg(ranked: _RankingGrades, cutoff: int, form: str) -> float:
    """Return DCG@k of a ranking, with g_i the grade at rank i; grades below 0 count as 0.

    exp-log2   Σ (2^g_i - 1) / log2(i + 1)         the survey's Eq. 12
    log2       Σ g_i / log2(i + 1)                  trec_eval's
    review     g_1 + Σ_{i ≥ 2} g_i / log2(i)        the review's Eq. 38 (Järvelin and Kekäläinen 2002, b = 2)
    """
    gains = [max(grade, 0) for grade in ranked[:cutoff]]
    if form == "exp-log2":
        gains = [2**gain - 1 for gain in gains]
    if form == "review":
        return float(sum(gain / log2(max(rank, 2)) for rank, gain in enumerate(gains, 1)))
    return float(sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, 1)))


def compute_err(ranked: _RankingGrades, cutoff: int) -> float:
    """Return ERR@k = Σ 1/i R_i Π_{j < i} (1 - R_j), R_i = (2^g_i - 1) / 2^4 (Chapelle et al., CIKM 2009), as in gdeval.

    Raises:
        UserError: a grade is above 4.
    """
    value = 0.0
    unsatisfied = 1.0
    for rank, grade in enumerate(ranked[:cutoff], 1):
        if grade > _HIGHEST_GRADE:
            raise UserError(
                f"measures: ERR: a relevance is {grade}; allowed are grades up to {_HIGHEST_GRADE}"
            )
        satisfied = (2 ** max(grade, 0) - 1) / 2**_HIGHEST_GRADE
        value += unsatisfied * satisfied / rank
        unsatisfied *= 1 - satisfied
    return value


def _compute_value(measure: Any, ranked: _RankingGrades, judged: _RankingGrades) -> float:
    """Return a measure of one query's ranking."""
    cutoff = measure["cutoff"]
    if measure.NAME == "F1":
        return compute_f1(ranked, judged, cutoff, measure["rel"])
    if measure.NAME == "ERR":
        return compute_err(ranked, cutoff)
    value = compute_dcg(ranked, cutoff, measure["dcg"])
    if measure.NAME == "DCG" and not measure["normalised"]:
        return value
    ideal = compute_dcg(sorted(judged, reverse=True), cutoff, measure["dcg"])
    return value / ideal if ideal else 0.0


class _Evaluator(providers.Evaluator):  # type: ignore[misc]
    """Compute the measures of this file for some qrels."""

    def __init__(self, named: Iterable[Any], qrels: Mapping[str, Mapping[str, int]]) -> None:
        super().__init__(named, set(qrels))
        self.qrels = qrels

    def _iter_calc(self, run: Any) -> Iterator[ir_measures.Metric]:
        for query, scores in RunConverter(run).as_dict_of_dict().items():
            if query in self.qrels:
                judged = self.qrels[query]
                ranked = [
                    judged.get(doc, 0)
                    for doc in sorted(scores, key=lambda doc: (-scores[doc], doc))
                ]
                for measure in self.measures:
                    yield ir_measures.Metric(
                        query, measure, _compute_value(measure, ranked, list(judged.values()))
                    )


class Provider(providers.Provider):  # type: ignore[misc]
    """Provides ir_measures with the measures of this file."""

    NAME = "tandem"
    SUPPORTED_MEASURES = [  # noqa: RUF012
        F1(),
        DCG(),
        measures._nDCG(
            cutoff=providers.base.Any(required=True),
            dcg=providers.base.Choices("exp-log2"),
            gains=providers.base.Choices(providers.base.NOT_PROVIDED),
            judged_only=providers.base.Choices(False),
        ),
        measures._ERR(cutoff=providers.base.Any(required=True)),
    ]

    def _evaluator(self, named: Iterable[Any], qrels: Any) -> _Evaluator:
        return _Evaluator(named, QrelsConverter(qrels).as_dict_of_dict())


measures.register(F1())
measures.register(DCG())
