"""The stage `match`: which passages at the top of a run hold an answer of their question."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import say
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.scoring.answers import results
from tandem.scoring.answers.match import RULES, Matcher
from tandem.scoring.answers.pool import match_all
from tandem.scoring.answers.results import Integers, Results
from tandem.scoring.partners import run_path
from tandem.store.job import Job, writing

MATCHES = "matches.parquet"
CUTOFFS = (1, 5, 10, 20, 50, 100, 500, 1000)
ROW_GROUP = 131_072


def run(job: Job) -> None:
    """Match the answers of a split's questions in the passages that a run found.

    Params: split; match (`string`, `regex` or `kilt`, see `match.py`); depth (passages per question); title (false:
    the passage's text alone, as DPR by default; true: `title . text`). Inputs: dataset, run. `job.execution` may hold
    `workers`. Writes matches.parquet: query_id, doc_id, rank, relevant, by question in the order of the run, by rank.

    The manifest's `success` is the share of all questions with answers, in the run or not, that have a match in the
    top k. Broken patterns, answers without a token and searches given up are counted; none of them matches.
    """
    split, rule, depth = job.params["split"], job.params["match"], job.params["depth"]
    if rule not in RULES:
        raise UserError(f"match: {rule!r} is unknown; allowed are {', '.join(RULES)}")
    path, collection = run_path(job), Collection(job.inputs["dataset"])
    answers = collection.answers(split)
    found = Results(path, {query: number for number, query in enumerate(answers)}, depth)
    matcher = Matcher(rule, list(answers.values()))
    relevant, timeouts = np.zeros(len(found), bool), 0
    workers = min(int(job.execution.workers or 1), -(-collection.passages // results.ROWS))
    pieces = found.pieces(collection, bool(job.params["title"]), f"match {job.key}")
    for pairs, (values, late) in match_all(matcher, pieces, workers):
        relevant[pairs] = values
        timeouts += late
    counts = {"broken_patterns": matcher.broken, "empty_answers": matcher.empty, "timeouts": timeouts}
    told = [f"{number:,} {what.replace('_', ' ')}" for what, number in counts.items() if number]
    if told:
        say(f"match {job.key} · {', '.join(told)}: no match")
    with writing(job) as draft:
        columns = table(found, relevant, list(answers))
        pq.write_table(columns, draft.path(MATCHES), row_group_size=ROW_GROUP, compression="zstd")
        draft.facts.update(questions=len(answers), pairs=len(found), passages=len(found.ids), **counts)
        draft.facts["missing"] = len(answers) - len(np.unique(found.questions))
        draft.facts["success"] = success(found, relevant, len(answers), depth)


def table(found: Results, relevant: np.ndarray[Any, np.dtype[np.bool_]], queries: list[str]) -> pa.Table:
    """Columns query_id, doc_id, rank and relevant, a row a pair."""
    return pa.table(
        {
            "query_id": pa.array(queries, pa.string()).take(pa.array(found.questions)),
            "doc_id": found.ids.take(pa.array(found.docs)).cast(pa.string()),
            "rank": pa.array(found.ranks),
            "relevant": pa.array(relevant),
        }
    )


def success(
    found: Results, relevant: np.ndarray[Any, np.dtype[np.bool_]], questions: int, depth: int
) -> dict[str, float]:
    """k → share of the questions with a match in the top k, for the usual k up to the depth (DPR's top-k accuracy)."""
    first: Integers = np.full(questions, np.iinfo(np.int64).max)
    np.minimum.at(first, found.questions[relevant], found.ranks[relevant])
    return {str(k): float(np.mean(first <= k)) for k in CUTOFFS if k <= depth}
