"""Measures by their ir_measures names, per query, with one ranking for all of them.

Evaluation tools break ties each in their own way (trec_eval: document id descending; the MS MARCO script: the order
of the file). Here the ranking is fixed first, by (score descending, document id ascending), and a provider is handed
the scores n, n-1, …, 1 in that order, so that no tie is left for it to break. A released run may be read in trec_eval's
order: `runs.<name>.ties`.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import ir_measures
import numpy as np
from numpy.typing import NDArray

from tandem.data.collection import EXCLUDED
from tandem.data.columns import Floats
from tandem.data.runs import ranked_order
from tandem.errors import UserError
from tandem.evaluation.extra_measures import ExtraMeasures

Floats64 = NDArray[np.float64]
Qrels = dict[str, dict[str, int]]
Ranked = tuple[str, Sequence[str], Floats]  # a query, document ids and scores
QUERIES_AT_ONCE = 1000
# All but gdeval, a script that mixes up queries whose ids end alike; what it computes is in ExtraMeasures.
_OTHERS = [provider for provider in ir_measures.DefaultPipeline.providers if provider.NAME != "gdeval"]
PROVIDERS = ir_measures.providers.FallbackProvider([ExtraMeasures(), *_OTHERS])


def parse_measures(names: Sequence[str]) -> list[ir_measures.Measure]:
    """ir_measures' objects for names such as `RR@10`, `Success@1`, `nDCG@10`, `AP`, `P(rel=2)@5`.

    Raises:
        UserError: an unknown measure, one without its cutoff, one that no installed provider computes, or the same
            measure twice (`MRR@10` is `RR@10`).
    """
    parsed = [_parse(name) for name in names]
    if not parsed:
        raise UserError("measures: the list is empty; name at least one, such as RR@10")
    for at, measure in enumerate(parsed):
        if measure in parsed[:at]:
            raise UserError(f"measures: {names[at]} is {names[parsed.index(measure)]} again; each is listed once")
    return parsed


def _parse(name: str) -> ir_measures.Measure:
    """One measure by its name."""
    known = sorted(ir_measures.measures.registry.keys() - {"Accuracy"})
    base, _, at = name.partition("@")
    base = base.split("(")[0]
    if base.lower() == "accuracy":  # that of ir_measures compares pairs of passages
        raise UserError(
            f"measures: {name}: did you mean Success@{at or 20}, the share of queries with a hit (top-k accuracy)?"
        )
    if base not in known:
        near = difflib.get_close_matches(base, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? known" if near else "known"
        raise UserError(f"measures: {name} is not a measure; {hint} are {', '.join(known)}")
    try:
        measure = ir_measures.parse_measure(name)
        supported = PROVIDERS.supports(measure)
    except (AssertionError, ValueError, KeyError, TypeError):
        example = "IPrec@0.5, with a recall" if base == "IPrec" else f"{base}@10, or {base} where it takes no cutoff"
        raise UserError(f"measures: {name} is malformed; write {example}") from None
    cutoff = measure.params.get("cutoff", 1)
    if not supported or not isinstance(cutoff, int) or cutoff < 1:
        raise UserError(f"measures: {name} cannot be computed; give a cutoff of at least 1, as in {base}@10")
    return measure


@dataclass(frozen=True)
class Evaluation:
    """Values per query.

    Attributes:
        queries: query ids, in the order of the qrels or of the list that was passed.
        values: shape (queries, measures).
        missing: queries without a line in the run; their values are 0.
        short: queries with fewer results than a measure looks at, since excluded passages were left out.
    """

    queries: list[str]
    values: Floats64
    missing: int
    short: int = 0


def answerable(qrels: Qrels) -> list[str]:
    """Queries with at least one relevant judgement (relevance of 1 or more): what every mean is divided by.

    The same denominator as the MS MARCO script's, which divides by the number of reference queries, in the run or not.
    """
    return [query for query, judged in qrels.items() if any(relevance > 0 for relevance in judged.values())]


def evaluate(
    measures: Sequence[ir_measures.Measure],
    qrels: Qrels,
    run: Iterable[Ranked],
    queries: list[str] | None = None,
    ignore_identical_ids: bool = False,
) -> Evaluation:
    """Evaluate a run that streams in, in any order, on the queries that count: by default the answerable ones.

    What does not count is left out first, see `without_excluded`.

    Raises:
        UserError: a measure divides by something that is 0 here.
    """
    queries = answerable(qrels) if queries is None else queries
    rows = {query: row for row, query in enumerate(queries)}
    columns = {measure: column for column, measure in enumerate(measures)}
    values = np.zeros((len(queries), len(measures)))
    seen = 0
    counted = (ranked for ranked in without_excluded(run, qrels, ignore_identical_ids) if ranked[0] in rows)
    while batch := list(islice(counted, QUERIES_AT_ONCE)):
        ranked = {query: ranked_order(docs, scores) for query, docs, scores in batch}
        seen += len(ranked)
        evaluator = PROVIDERS.evaluator(measures, {query: qrels[query] for query in ranked})
        explicit = {q: {d: float(len(p) - at) for at, (d, _) in enumerate(p)} for q, p in ranked.items()}
        try:
            for metric in evaluator.iter_calc(explicit):
                values[rows[metric.query_id], columns[metric.measure]] = metric.value
        except ZeroDivisionError:
            names = ", ".join(map(str, measures))
            raise UserError(f"measures: one of {names} divides by 0 for these qrels; name others") from None
    return Evaluation(queries, values, len(queries) - seen)


def without_excluded(run: Iterable[Ranked], qrels: Qrels, ignore_identical_ids: bool = False) -> Iterator[Ranked]:
    """A run without the results that the qrels grade `EXCLUDED`, nor those of `without_identical_ids` where so set."""
    for query, docs, scores in without_identical_ids(run) if ignore_identical_ids else run:
        judged = qrels.get(query, {})
        if EXCLUDED not in judged.values():
            yield query, docs, scores
        elif counting := [row for row, doc in enumerate(docs) if judged.get(doc) != EXCLUDED]:
            yield query, [docs[row] for row in counting], scores[counting]


def without_identical_ids(run: Iterable[Ranked]) -> Iterator[Ranked]:
    """A run without the results whose document id is the query's: BEIR's rule where queries come from the corpus.

    Source: beir-cellar/beir, `EvaluateRetrieval.evaluate(ignore_identical_ids=True)`.
    """
    for query, docs, scores in run:
        others = [row for row, doc in enumerate(docs) if doc != query]
        if others:
            yield query, [docs[row] for row in others], scores[others]
