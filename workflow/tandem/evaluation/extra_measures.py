"""Measures that ir_measures lacks (F1@k, DCG@k), or hands to a script: nDCG with exponential gains, and ERR.

The script, gdeval, takes queries for the same whose ids end alike (`a-1`, `b-1`), and fails where they are no numbers.
Sources: Coelho, A Review on Dense Retrieval, §5.1; Zhao et al., Dense Text Retrieval, 2024 (the survey), A.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log2
from typing import Any

from ir_measures import Metric, measures, providers
from ir_measures.providers.base import Any as Anything
from ir_measures.providers.base import Choices
from ir_measures.util import QrelsConverter, RunConverter

from tandem.errors import UserError

Grades = Sequence[int]  # of a ranking, from the first rank on; 0 where a passage has no judgement

HIGHEST = 4  # the grade that satisfies almost surely, as in gdeval
_CUTOFF = measures.ParamInfo(dtype=int, required=True, desc="ranks that count")
_FORMS = ("exp-log2", "log2", "review")


class F1(measures.Measure):  # type: ignore[misc]  # ir_measures has no types
    """F1@k = 2 P@k R@k / (P@k + R@k), 0 where nothing relevant is among the first k; the review's Eq. 34."""

    __name__ = "F1"
    NAME = "F1"
    SUPPORTED_PARAMS = {  # noqa: RUF012
        "cutoff": _CUTOFF,
        "rel": measures.ParamInfo(dtype=int, default=1, desc="lowest grade that is relevant"),
    }


class DCG(measures.Measure):  # type: ignore[misc]
    """DCG@k by one of three formulas, `dcg`; with `normalised` divided by that of the ideal ranking."""

    __name__ = "DCG"
    NAME = "DCG"
    SUPPORTED_PARAMS = {  # noqa: RUF012
        "cutoff": _CUTOFF,
        "dcg": measures.ParamInfo(dtype=str, choices=list(_FORMS), default="exp-log2", desc="the formula"),
        "normalised": measures.ParamInfo(dtype=bool, default=False, desc="divide by the ideal ranking's"),
    }


measures.register(F1())
measures.register(DCG())


def f1(ranked: Grades, judged: Grades, cutoff: int, rel: int) -> float:
    """F1@k of a ranking; `judged` are the grades of all judged passages, `rel` the lowest relevant one."""
    hits = sum(grade >= rel for grade in ranked[:cutoff])
    relevant = sum(grade >= rel for grade in judged)
    # 2 (h/k) (h/r) / (h/k + h/r)
    return 2 * hits / (cutoff + relevant) if hits else 0.0


def dcg(ranked: Grades, cutoff: int, form: str) -> float:
    """DCG@k of a ranking, with g_i the grade at rank i; grades below 0 count as 0.

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


def err(ranked: Grades, cutoff: int) -> float:
    """ERR@k = Σ 1/i R_i Π_{j < i} (1 - R_j) with R_i = (2^g_i - 1) / 2^4 (Chapelle et al., CIKM 2009), as gdeval's.

    Raises:
        UserError: a grade above 4.
    """
    value, unsatisfied = 0.0, 1.0
    for rank, grade in enumerate(ranked[:cutoff], 1):
        if grade > HIGHEST:
            raise UserError(f"measures: ERR: a relevance is {grade}; allowed are grades up to {HIGHEST}")
        satisfied = (2 ** max(grade, 0) - 1) / 2**HIGHEST
        value += unsatisfied * satisfied / rank
        unsatisfied *= 1 - satisfied
    return value


def _value(measure: Any, ranked: Grades, judged: Grades) -> float:
    """A measure of one query's ranking."""
    cutoff = measure["cutoff"]
    if measure.NAME == "F1":
        return f1(ranked, judged, cutoff, measure["rel"])
    if measure.NAME == "ERR":
        return err(ranked, cutoff)
    value = dcg(ranked, cutoff, measure["dcg"])
    if measure.NAME == "DCG" and not measure["normalised"]:
        return value
    ideal = dcg(sorted(judged, reverse=True), cutoff, measure["dcg"])
    return value / ideal if ideal else 0.0


class _Evaluator(providers.Evaluator):  # type: ignore[misc]
    """The measures of this file for some qrels."""

    def __init__(self, named: Iterable[Any], qrels: Mapping[str, Mapping[str, int]]) -> None:
        super().__init__(named, set(qrels))
        self.qrels = qrels

    def _iter_calc(self, run: Any) -> Iterator[Metric]:
        for query, scores in RunConverter(run).as_dict_of_dict().items():
            if query in self.qrels:
                judged = self.qrels[query]
                ranked = [judged.get(doc, 0) for doc in sorted(scores, key=lambda doc: (-scores[doc], doc))]
                for measure in self.measures:
                    yield Metric(query, measure, _value(measure, ranked, list(judged.values())))


class ExtraMeasures(providers.Provider):  # type: ignore[misc]
    """What ir_measures asks for the measures of this file."""

    NAME = "tandem"
    SUPPORTED_MEASURES = [  # noqa: RUF012
        F1(cutoff=Anything(), rel=Anything()),
        DCG(cutoff=Anything(), dcg=Anything(), normalised=Anything()),
        measures._nDCG(
            cutoff=Anything(required=True),
            dcg=Choices("exp-log2"),
            gains=Choices(providers.base.NOT_PROVIDED),
            judged_only=Choices(False),
        ),
        measures._ERR(cutoff=Anything(required=True)),
    ]

    def _evaluator(self, named: Iterable[Any], qrels: Any) -> _Evaluator:
        return _Evaluator(named, QrelsConverter(qrels).as_dict_of_dict())
