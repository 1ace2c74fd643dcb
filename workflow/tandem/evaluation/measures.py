"""Measures by their ir_measures names, per query, with one ranking for all of them.

Evaluation tools break ties each in their own way (trec_eval: document id descending; the MS MARCO script: the order
of the file). Here the ranking is fixed first, by (score descending, document id ascending), and a provider is handed
the scores n, n-1, …, 1 in that order, so that no tie is left for it to break. A released run may be read in trec_eval's
order: `runs.<name>.ties`.

Packages add providers. The script gdeval is not asked: queries whose ids end alike (`a-1`, `b-1`) are the same to it.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import ir_measures
import numpy as np
from ir_measures import measures, providers

from tandem.data.collection import EXCLUDED
from tandem.data.columns import Floats, Floats64
from tandem.data.runs import order_by_score
from tandem.errors import UserError
from tandem.stages.evaluation import MEASURE_PROVIDERS
from tandem.store.job import load

Qrels = dict[str, dict[str, int]]
ScoredRanking = tuple[str, Sequence[str], Floats]  # a query, document ids and scores
QUERIES_PER_EVALUATION = 1000
_COUNTS = ("NumQ", "NumRel", "NumRet")  # of ir_measures' measures those that are no shares
# Files of stages that choose by a measure: what they chose, and all that they tried with its value.
CHOSEN = "chosen.json"
GRID = "grid.csv"


@cache
def _collect_providers() -> providers.FallbackProvider:
    """Return what computes measures: providers of packages, whose modules name theirs, then ir_measures' own."""
    added = [load(entry)() for entry in MEASURE_PROVIDERS.values()]
    own = [
        provider for provider in ir_measures.DefaultPipeline.providers if provider.NAME != "gdeval"
    ]
    return providers.FallbackProvider([*added, *own])


def parse_measures(names: Sequence[str]) -> list[ir_measures.Measure]:
    """Return ir_measures' objects for names such as `RR@10`, `Success@1`, `nDCG@10`, `AP`, `P(rel=2)@5`.

    A `UserError` for an unknown measure, one without its cutoff, one that no installed provider computes, or the same
    measure twice, or by another name than its results have (`MRR@10` or `RR(cutoff=10)` for `RR@10`).
    """
    parsed = [_parse(name) for name in names]
    if not parsed:
        raise UserError("measures: the list is empty; name at least one, such as RR@10")
    for at, measure in enumerate(parsed):
        if measure in parsed[:at]:
            raise UserError(
                f"measures: {names[at]} is {names[parsed.index(measure)]} again; each is listed once"
            )
    return parsed


@cache
def _list_computed() -> list[str]:
    """Return the names of the measures that an installed provider computes, whatever their parameters."""
    names: set[str] = set()
    for provider in _collect_providers().providers:
        if provider.is_available():
            names |= {measure.NAME for measure in provider.SUPPORTED_MEASURES}
    return sorted(names - {"Accuracy"})


@cache
def _parse(name: str) -> ir_measures.Measure:
    provider = _collect_providers()
    # MRR → RR, and RR → RR
    written = {alias: measure.NAME for alias, measure in measures.registry.items()}
    known = _list_computed()
    base, _, at = name.partition("@")
    base = base.split("(")[0]
    if base.lower() == "accuracy":  # that of ir_measures compares pairs of passages
        meant = f"Success@{at or 20}, the share of queries with a hit (top-k accuracy)"
        raise UserError(f"measures: {name}: did you mean {meant}?")
    own = written.get(base, base)
    if own != base:
        raise UserError(f"measures: {name} is written {name.replace(base, own, 1)} here")
    if base not in written:
        near = difflib.get_close_matches(base, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? known" if near else "known"
        raise UserError(f"measures: {name} is not a measure; {hint} are {', '.join(known)}")
    try:
        measure = ir_measures.parse_measure(name)
        supported = provider.supports(measure)
    except (AssertionError, ValueError, KeyError, TypeError):
        _require_provider(name, base)
        raise UserError(f"measures: {name} is malformed; write {_show_form(base)}") from None
    if not supported:
        _require_provider(name, base)
    cutoff = measure.params.get("cutoff", 1)
    lacks_cutoff = (
        not supported and "cutoff" in measure.SUPPORTED_PARAMS and "cutoff" not in measure.params
    )
    if lacks_cutoff or not isinstance(cutoff, int) or cutoff < 1:
        raise UserError(
            f"measures: {name} cannot be computed; give a cutoff of at least 1, as in {base}@10"
        )
    if not supported:
        problem = f"no installed provider of ir_measures computes {base} with these parameters"
        raise UserError(f"measures: {name} cannot be computed: {problem}; leave them out")
    if str(measure) != name:
        raise UserError(f"measures: {name} is written {measure} here")
    _require_grades(name, measure.params)
    return measure


def _require_grades(name: str, params: Mapping[str, Any]) -> None:
    """Refuse parameters that trec_eval takes for others, or that end it by an error."""
    if params.get("rel", 1) < 1:
        raise UserError(f"measures: {name}: rel is {params['rel']}; grades from 1 on are relevant")
    if not all(isinstance(gain, int) for gain in (params.get("gains") or {}).values()):
        raise UserError(f"measures: {name}: gains are whole numbers")
    recall = params.get("recall", 0.0)
    if recall != round(recall, 2) or not 0 <= recall <= 1:
        raise UserError(f"measures: {name}: give the recall from 0 to 1, with two decimals at most")


def _require_provider(name: str, base: str) -> None:
    """Refuse a measure that no installed provider computes, however it is written."""
    if base not in _list_computed():
        problem = f"no installed provider of ir_measures computes {base}"
        raise UserError(f"measures: {name} cannot be computed: {problem}; name another measure")


def _show_form(base: str) -> str:
    """Return how a measure is written: with a cutoff, without one, or either way."""
    if base == "IPrec":
        return "IPrec@0.5, with a recall"
    cutoff = measures.registry[base].SUPPORTED_PARAMS.get("cutoff")
    if cutoff is None:
        return f"{base}, which takes no cutoff"
    return f"{base}@10" if cutoff.required else f"{base}@10, or {base} without a cutoff"


@cache
def is_share(name: str) -> bool:
    """Return whether a measure is a share, which is shown in percent; gains and counts are shown as they are.

    A measure of a package's says so by an attribute of this name.
    """
    _collect_providers()  # whose modules register their measures
    try:
        measure = ir_measures.parse_measure(name)
    except (NameError, ValueError):  # one that only a paper prints
        return True
    return bool(getattr(measure, "is_share", measure.NAME not in _COUNTS))


@dataclass(frozen=True)
class Evaluation:
    """Hold values per query, in the order of the qrels or of the list of queries that was passed."""

    queries: list[str]
    values: Floats64  # shape (queries, measures)
    missing: int  # queries without a line in the run; their values are 0


def list_answerable(qrels: Qrels) -> list[str]:
    """Return queries with at least one relevant judgement (relevance of 1 or more): what every mean is divided by.

    The same denominator as the MS MARCO script's, which divides by the number of reference queries, in the run or not.
    """
    return [
        query
        for query, judged in qrels.items()
        if any(relevance > 0 for relevance in judged.values())
    ]


def evaluate(
    measures: Sequence[ir_measures.Measure],
    qrels: Qrels,
    run: Iterable[ScoredRanking],
    queries: list[str] | None = None,
    ignore_identical_ids: bool = False,
) -> Evaluation:
    """Evaluate a run that streams in, in any order, on the queries that count: by default the answerable ones.

    What does not count is left out first, see `skip_excluded`. A measure that divides by 0 here is a `UserError`.
    """
    queries = list_answerable(qrels) if queries is None else queries
    rows = {query: row for row, query in enumerate(queries)}
    columns = {measure: column for column, measure in enumerate(measures)}
    groups = _group(measures)
    values = np.zeros((len(queries), len(measures)))
    seen = 0
    counted = (
        ranked for ranked in skip_excluded(run, qrels, ignore_identical_ids) if ranked[0] in rows
    )
    while batch := list(islice(counted, QUERIES_PER_EVALUATION)):
        ranked = {query: order_by_score(docs, scores) for query, docs, scores in batch}
        seen += len(ranked)
        judged = {query: qrels[query] for query in ranked}
        numbered = {query: _number_down(ranking) for query, ranking in ranked.items()}
        try:
            for group in groups:
                for metric in _collect_providers().evaluator(group, judged).iter_calc(numbered):
                    values[rows[metric.query_id], columns[metric.measure]] = metric.value
        except ZeroDivisionError:
            names = ", ".join(map(str, measures))
            raise UserError(
                f"measures: one of {names} divides by 0 for these qrels; name others"
            ) from None
    for measure in measures:  # those of queries and judgements, whatever the run lists
        if measure.NAME == "NumRel":
            values[:, columns[measure]] = [
                sum(grade > 0 for grade in qrels[query].values()) for query in queries
            ]
        elif measure.NAME == "NumQ":
            values[:, columns[measure]] = 1
    return Evaluation(queries, values, len(queries) - seen)


def _group(measures: Sequence[ir_measures.Measure]) -> list[list[ir_measures.Measure]]:
    """Return measures that may be computed at once.

    In one call ir_measures computes measures without gains by the gains of another one, and so with `judged_only`.
    """
    groups: dict[tuple[str, bool], list[ir_measures.Measure]] = {}
    for measure in measures:
        alike = str(measure.params.get("gains")), bool(measure.params.get("judged_only"))
        groups.setdefault(alike, []).append(measure)
    return list(groups.values())


def _number_down(ranking: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return a score for each document of a ranking that falls by 1 a place: no measure breaks ties by itself."""
    return {doc: float(len(ranking) - place) for place, (doc, _) in enumerate(ranking)}


def warn_undecided(value: float, tried: str, measure: str, split: str) -> list[str]:
    """Return a warning if the best of what was tried is worth 0, since the first was taken then; else none."""
    return [] if value else [f"{measure} on {split} is 0 for all {tried}: the first is taken"]


def count_left_out(qrels: Qrels, ignore_identical_ids: bool = False) -> int:
    """Return how many of a query's results `skip_excluded` leaves out at most: so much deeper a cutoff may look."""
    excluded = [list(judged.values()).count(EXCLUDED) for judged in qrels.values()]
    return max(excluded, default=0) + ignore_identical_ids


def skip_excluded(
    run: Iterable[ScoredRanking], qrels: Qrels, ignore_identical_ids: bool = False
) -> Iterator[ScoredRanking]:
    """Yield a run without the results that the qrels grade `EXCLUDED` and, where so set, those with the query's own id.

    The latter is BEIR's rule where queries come from the corpus: beir-cellar/beir,
    `EvaluateRetrieval.evaluate(ignore_identical_ids=True)`.
    """
    for query, docs, scores in run:
        judged = qrels.get(query, {})
        if not ignore_identical_ids and EXCLUDED not in judged.values():
            yield query, docs, scores
            continue
        ignored = query if ignore_identical_ids else None
        counting = [
            row for row, doc in enumerate(docs) if doc != ignored and judged.get(doc) != EXCLUDED
        ]
        if counting:
            yield query, [docs[row] for row in counting], scores[counting]
