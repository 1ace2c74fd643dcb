"""Stage `relabel`: a split's judgements with the positives that annotators, or the judges, found in a pool."""

from pathlib import Path
from typing import Any

from tandem.artifact import Job, write_json, writing
from tandem.audits.false_negatives.answers import Answers, by_machine, by_sheet
from tandem.audits.false_negatives.judgements import known
from tandem.data import tables
from tandem.data.collection import QRELS, Collection
from tandem.errors import UserError
from tandem.retrieval.inputs import require_dataset


def run(job: Job) -> None:
    """Write qrels.parquet (the dataset's judgements of the split and the new positives) and changes.json.

    Params: threshold (the machine's verdict is positive above it), split and fingerprint, both checked if given.
    Inputs: dataset; pool, of `false_negatives`. `job.execution.path` is a filled sheet; without one the verdict is
    the machine's, of the passages on the sheet, and the manifest says so.
    """
    require_dataset(job, "pool")
    pool, collection = job.inputs["pool"], Collection(job.inputs["dataset"])
    split = job.params.get("split", pool.params["split"])
    if split != pool.params["split"]:
        raise UserError(f"{pool.folder}: is a pool of split {pool.params['split']}, but split is {split}")
    path = job.execution.path
    if path:
        told: dict[str, Any] = {"verdict": "annotators", "sheet": Path(path).name}
        answers = by_sheet(Path(path), job.params.get("fingerprint"), pool)
    else:
        threshold = job.params.get("threshold", pool.params["threshold"])
        told, answers = {"verdict": "machine", "threshold": threshold}, by_machine(pool, threshold)
    added = [(query, doc, 1, split) for query, docs in answers.items() for doc, relevant in docs.items() if relevant]
    judged = known(collection, split)
    before = [(query, doc, relevance, split) for query, docs in judged.items() for doc, relevance in docs.items()]
    changes = describe(collection.queries(split), judged, answers)
    with writing(job) as draft:
        tables.write(draft.path(QRELS), tables.batches([*before, *added], tables.QRELS_SCHEMA), tables.QRELS_SCHEMA)
        write_json(draft.path("changes.json"), {"split": split, **told, **changes})
        draft.facts |= {**told, "qrels": len(before) + len(added), "new_positives": len(added)}


def describe(queries: dict[str, str], judged: dict[str, dict[str, int]], answers: Answers) -> dict[str, Any]:
    """What the new labels change: DuReader-retrieval §2.3 tells the mean number of positives and the share of queries.

    Args:
        queries: of the split; the means are over all of them.
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
