"""Stage `relabel`: a split's judgements with the positives that annotators, or the judges, found in a pool."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from tandem.data import tables
from tandem.data.collection import QRELS, Collection
from tandem.errors import UserError
from tandem.extras.audits.false_negatives import judgements
from tandem.extras.sheets import filled_rows
from tandem.retrieval.inputs import require_dataset
from tandem.stages.evaluation import FalseNegativesParams, RelabelParams
from tandem.store.artifact import Artifact
from tandem.store.files import fingerprint, write_json
from tandem.store.job import Job, writing

COLUMNS = ("query_id", "doc_id", "verdict")
VERDICTS = {"1": True, "yes": True, "0": False, "no": False}
Answers = dict[str, dict[str, bool]]  # query id → document id → whether it is relevant, in the pool's order


def run(job: Job[RelabelParams]) -> None:
    """Write qrels.parquet (the dataset's judgements of the split and the new positives) and changes.json.

    Inputs: dataset; pool, of `false_negatives`. `job.execution.path` is a filled sheet; without one the verdict is
    the machine's, of the passages on the sheet, and the manifest says so.
    """
    require_dataset(job, "pool")
    pool, collection = job.inputs["pool"], Collection(job.inputs["dataset"])
    pooled = pool.params_as(FalseNegativesParams)
    split = pooled.split
    if job.params.split not in (None, split):
        raise UserError(f"{pool.folder}: is a pool of split {split}, but split is {job.params.split}")
    path = job.execution.path
    facts: dict[str, str | float]
    if path:
        facts = {"verdict": "annotators", "sheet": Path(path).name}
        answers = sheet_answers(Path(path), job.params.fingerprint, pool)
    else:
        threshold = pooled.threshold if job.params.threshold is None else job.params.threshold
        facts, answers = {"verdict": "machine", "threshold": threshold}, machine_answers(pool, threshold)
    added = [(query, doc, 1, split) for query, docs in answers.items() for doc, relevant in docs.items() if relevant]
    judged = judgements(collection, split)
    before = [(query, doc, relevance, split) for query, docs in judged.items() for doc, relevance in docs.items()]
    changes = describe(collection.queries(split), judged, answers)
    with writing(job) as draft:
        tables.write(draft.path(QRELS), tables.batches([*before, *added], tables.QRELS_SCHEMA), tables.QRELS_SCHEMA)
        write_json(draft.path("changes.json"), {"split": split, **facts, **changes})
        draft.facts |= {**facts, "qrels": len(before) + len(added), "new_positives": len(added)}


def machine_answers(pool: Artifact, threshold: float) -> Answers:
    """The judges' verdict on every passage of the sheet: positive if its score is above the threshold.

    Raises:
        UserError: the pool was ranked without judges, so that its scores are no probabilities.
    """
    if not any(role.startswith("judge.") for role in pool.upstream):
        raise UserError(f"{pool.folder}: was ranked without a judge and has no verdict; name a filled sheet or a judge")
    answers: Answers = {}
    rows = pq.read_table(pool.path("pool.parquet"), columns=["query_id", "doc_id", "score", "asked"])
    for query, doc, score, is_open in tables.rows(rows):
        if is_open:
            answers.setdefault(query, {})[doc] = score > threshold
    return answers


class Verdict(NamedTuple):
    """An annotator's verdict on a passage; `row` counts from 1, the header being the first."""

    row: int
    query: str
    doc: str
    relevant: bool

    def __str__(self) -> str:
        return "relevant" if self.relevant else "not relevant"


def read_verdicts(path: Path) -> Iterator[Verdict]:
    """The answered rows of a filled sheet, in its order; rows without a verdict are left out.

    Raises:
        UserError: what `filled_rows` refuses, or a verdict other than 1, 0, yes, no.
    """
    for number, (query, doc, verdict) in filled_rows(path, COLUMNS):
        if verdict and verdict.lower() not in VERDICTS:
            raise UserError(f"{path}:{number}: verdict is {verdict[:40]!r}; allowed are 1, 0, yes, no or nothing")
        if verdict:
            yield Verdict(number, query, doc, VERDICTS[verdict.lower()])


def sheet_answers(path: Path, expected: str | None, pool: Artifact) -> Answers:
    """The annotators' verdicts, query by query in the pool's order.

    Raises:
        UserError: another file than was planned, a passage that is not in the pool or is labelled already, or two rows
            that contradict each other.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; name a filled sheet")
    if expected and fingerprint(path) != expected:
        raise UserError(f"{path}: has changed since this stage was planned; run the command again")
    unlabelled: dict[str, dict[str, bool]] = {}
    rows = pq.read_table(pool.path("pool.parquet"), columns=["query_id", "doc_id", "relevance"])
    for query, doc, relevance in tables.rows(rows):
        unlabelled.setdefault(query, {})[doc] = relevance is None
    verdicts: dict[tuple[str, str], Verdict] = {}
    for verdict in read_verdicts(path):
        query, doc = verdict.query, verdict.doc
        _require_open(path, verdict, unlabelled, pool)
        first = verdicts.setdefault((query, doc), verdict)
        if first.relevant != verdict.relevant:
            both = f"{doc} for query {query} is {verdict} here and {first} in row {first.row}"
            raise UserError(f"{path}:{verdict.row}: {both}; keep one of the rows")
    answers: Answers = {}
    for query, docs in unlabelled.items():
        own = {doc: verdicts[query, doc].relevant for doc in docs if (query, doc) in verdicts}
        answers |= {query: own} if own else {}
    return answers


def _require_open(path: Path, verdict: Verdict, unlabelled: dict[str, dict[str, bool]], pool: Artifact) -> None:
    """Refuse a row about something else than an unlabelled passage of the pool."""
    row, query, doc, _ = verdict
    if query not in unlabelled:
        raise UserError(f"{path}:{row}: query_id {query!r} is not in {pool.folder}; ids must stay as they were")
    if doc not in unlabelled[query]:
        raise UserError(f"{path}:{row}: doc_id {doc!r} was not pooled for query {query}; ids must stay as they were")
    if not unlabelled[query][doc]:
        raise UserError(f"{path}:{row}: {doc} is labelled already for query {query}; leave the row out")


def describe(queries: dict[str, str], judged: dict[str, dict[str, int]], answers: Answers) -> dict[str, object]:
    """The effect of new labels: DuReader-retrieval §2.3 has the mean number of positives and the share of queries.

    Args:
        queries: of the split.
        judged: query id → document id → relevance before.
        answers: query id → document id → whether it was found relevant.
    """
    before = {query: sum(relevance > 0 for relevance in judged.get(query, {}).values()) for query in queries}
    new = {query: sum(answers.get(query, {}).values()) for query in queries}
    changed = [query for query in queries if new[query]]
    return {
        "queries": len(queries),
        "asked_about": sum(map(len, answers.values())),
        "new_positives": sum(new.values()),
        "changed": len(changed),
        "percent_changed": round(100 * len(changed) / len(queries), 2),
        "positives_per_query": {
            "before": round(sum(before.values()) / len(queries), 4),
            "after": round((sum(before.values()) + sum(new.values())) / len(queries), 4),
        },
        "changes": {query: {"before": before[query], "after": before[query] + new[query]} for query in changed},
    }
