"""Compute measures per query, from one ranking for all of them.

Each evaluation tool breaks ties in its own way (trec_eval: document id descending; the MS MARCO script: the order
of the file). Here the ranking is fixed first, by (score descending, document id ascending), and a provider gets the
scores n, n-1, …, 1 in that order, so that no tie is left for it to break. A released run may be read in trec_eval's
order: `runs.<name>.ties`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import ir_measures
import numpy as np

from tandem.data.collection import EXCLUDED
from tandem.data.columns import Floats, Floats64
from tandem.data.runs import order_by_score
from tandem.errors import UserError
from tandem.evaluation.measure_names import collect_providers

Qrels = dict[str, dict[str, int]]
ScoredRanking = tuple[str, Sequence[str], Floats]  # a query, document ids and scores
QUERIES_PER_EVALUATION = 1000
CHOSEN = "chosen.json"  # the file of what a stage chose by a measure


@dataclass(frozen=True)
class Evaluation:
    """Hold values per query, in the order of the qrels or of the list of queries that was passed."""

    queries: list[str]
    values: Floats64  # shape (queries, measures)
    missing: int  # queries without a line in the run; their values are 0


def list_answerable(qrels: Qrels) -> list[str]:
    """Return the queries with at least one relevant judgement (of 1 or more); every mean is divided by their number.

    The MS MARCO script has the same denominator: it divides by the number of reference queries, in the run or not.
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

    Results that do not count are left out first, see `skip_excluded`. A measure that divides by 0 is a `UserError`.
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
                for metric in collect_providers().evaluator(group, judged).iter_calc(numbered):
                    values[rows[metric.query_id], columns[metric.measure]] = metric.value
        except ZeroDivisionError:
            names = ", ".join(map(str, measures))
            raise UserError(
                f"measures: one of {names} divides by 0 for these qrels; name others"
            ) from None
    for measure in measures:  # measures of queries and judgements do not depend on the run
        if measure.NAME == "NumRel":
            values[:, columns[measure]] = [
                sum(grade > 0 for grade in qrels[query].values()) for query in queries
            ]
        elif measure.NAME == "NumQ":
            values[:, columns[measure]] = 1
    return Evaluation(queries, values, len(queries) - seen)


def _group(measures: Sequence[ir_measures.Measure]) -> list[list[ir_measures.Measure]]:
    """Split measures into groups that may be computed in one call.

    In one call, ir_measures would compute measures without gains by the gains of another measure; the same holds for
    `judged_only`.
    """
    groups: dict[tuple[str, bool], list[ir_measures.Measure]] = {}
    for measure in measures:
        alike = str(measure.params.get("gains")), bool(measure.params.get("judged_only"))
        groups.setdefault(alike, []).append(measure)
    return list(groups.values())


def _number_down(ranking: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return falling whole numbers as scores for the documents of a ranking, so that no measure has a tie to break."""
    return {doc: float(len(ranking) - place) for place, (doc, _) in enumerate(ranking)}


def skip_excluded(
    run: Iterable[ScoredRanking], qrels: Qrels, ignore_identical_ids: bool = False
) -> Iterator[ScoredRanking]:
    """Yield a run without the results that the qrels grade `EXCLUDED` and, if so set, those with the query's own id.

    The latter is BEIR's rule if queries come from the corpus: beir-cellar/beir,
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
