"""Stage `relabel`: judgements with the labels that annotators, or judges, found in a pool (DuReader-retrieval §2.3)."""

from pathlib import Path

import pyarrow.parquet as pq

from tandem.cluster.progress import warn
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

FILLED = ("query_id", "doc_id", "verdict")
FILLED_BY = "filled_by"  # the column of a sheet that names the model behind a verdict; empty where a person decided
VERDICTS = {"1": True, "yes": True, "0": False, "no": False}
Answers = dict[str, dict[str, bool]]  # query id → document id → whether it is relevant, in the pool's order


def run(job: Job[RelabelParams]) -> None:
    """The split's judgements with the positives that annotators, or the judges, found in a pool.

    Writes qrels.parquet (the dataset's judgements of the split and the new positives) and changes.json.

    Inputs: dataset; pool, of `false_negatives`. `job.execution.path` is a filled sheet; without one the verdict is
    the machine's, of the passages on the sheet. The manifest says so, also where a language model filled in rows of
    the sheet and nobody took its name out of them.
    """
    require_dataset(job, "pool")
    pool, collection = job.inputs["pool"], Collection(job.inputs["dataset"])
    pooled = pool.params_as(FalseNegativesParams)
    split = pooled.split
    if job.params.split not in (None, split):
        raise UserError(f"{pool.folder}: is a pool of split {split}, but split is {job.params.split}")
    path, machine_made = job.execution.path, 0
    facts: dict[str, str | float]
    if path:
        answers, machine_made = sheet_answers(Path(path), job.params.fingerprint, pool)
        facts = {"verdict": "machine" if machine_made else "annotators", "sheet": Path(path).name}
        facts |= {"machine_made": machine_made} if machine_made else {}
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
        if machine_made:
            warn(job, draft, f"a language model gave {machine_made:,} of the sheet's verdicts, not annotators")
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


def sheet_answers(path: Path, expected: str | None, pool: Artifact) -> tuple[Answers, int]:
    """The sheet's verdicts, query by query in the pool's order, and how many of them a language model filled in.

    Rows without a verdict are left out.

    Raises:
        UserError: another file than was planned, a verdict other than 1, 0, yes, no, a passage that is not in the pool
            or is labelled already, or two rows that contradict each other.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; name a filled sheet")
    if expected and fingerprint(path) != expected:
        raise UserError(f"{path}: has changed since this stage was planned; run the command again")
    unlabelled: dict[str, dict[str, bool]] = {}
    rows = pq.read_table(pool.path("pool.parquet"), columns=["query_id", "doc_id", "relevance"])
    for query, doc, relevance in tables.rows(rows):
        unlabelled.setdefault(query, {})[doc] = relevance is None
    verdicts: dict[tuple[str, str], tuple[int, bool]] = {}  # (query, document) → row, and whether it is relevant
    machine_made = set()
    for row, (query, doc, verdict, model) in filled_rows(path, FILLED, [FILLED_BY]):
        if not verdict:
            continue
        if model:
            machine_made.add((query, doc))
        where, relevant = f"{path}:{row}", VERDICTS.get(verdict.lower())
        if relevant is None:
            raise UserError(f"{where}: verdict is {verdict[:40]!r}; allowed are 1, 0, yes, no or nothing")
        if query not in unlabelled:
            raise UserError(f"{where}: query_id {query!r} is not in {pool.folder}; ids must stay as they were")
        if doc not in unlabelled[query]:
            raise UserError(f"{where}: doc_id {doc!r} was not pooled for query {query}; ids must stay as they were")
        if not unlabelled[query][doc]:
            raise UserError(f"{where}: {doc} is labelled already for query {query}; leave the row out")
        first, before = verdicts.setdefault((query, doc), (row, relevant))
        if before != relevant:
            here, there = (f"{'' if value else 'not '}relevant" for value in (relevant, before))
            both = f"{doc} for query {query} is {here} here and {there} in row {first}"
            raise UserError(f"{where}: {both}; keep one of the rows")
    answers = {
        query: {doc: verdicts[query, doc][1] for doc in docs if (query, doc) in verdicts}
        for query, docs in unlabelled.items()
    }
    return {query: own for query, own in answers.items() if own}, len(machine_made)


def describe(
    queries: dict[str, str], judged: dict[str, dict[str, int]], answers: Answers, least: int = 1
) -> dict[str, object]:
    """The effect of new labels: DuReader-retrieval §2.3 has the mean number of positives and the share of queries.

    A judgement of at least `least` is a positive.
    """
    before = {query: sum(relevance >= least for relevance in judged.get(query, {}).values()) for query in queries}
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
