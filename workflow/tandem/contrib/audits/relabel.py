"""Stage `relabel`: judgements of a split with the labels that annotators, or judges, give to a pool's passages.

DuReader-retrieval §2.3. Annotators give labels to unlabelled passages; if they saw labelled passages, too, they also
correct labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from tandem.cluster.progress import warn
from tandem.contrib.audits.options import FalseNegativesParams, RelabelParams, list_decisive_files
from tandem.contrib.audits.packages import ReviewSummary, read_accepted
from tandem.contrib.audits.sheets import Pair, read_verdicts
from tandem.data import tables
from tandem.data.collection import QRELS, Collection
from tandem.errors import UserError
from tandem.extras.judgements import read_judgements
from tandem.extras.unchanged_files import require_unchanged
from tandem.retrieval.inputs import require_dataset
from tandem.store.artifact import Artifact
from tandem.store.files import fingerprint, sha256, write_json
from tandem.store.job import Job, writing

# query id → document id → whether it is relevant, in the pool's order
SheetAnswers = dict[str, dict[str, bool]]


@dataclass(frozen=True)
class Relabelling:
    """The decisions about a pool's passages, and who made them.

    Attributes:
        facts: for the manifest: whose verdict it is, and where it comes from.
        warnings: for users of the labels.
        review: the result of the review, if packages were reviewed.
    """

    answers: SheetAnswers
    facts: dict[str, str | int | float]
    warnings: list[str] = field(default_factory=list)
    review: ReviewSummary | None = None


def run(job: Job[RelabelParams]) -> None:
    """Write the split's judgements with the labels that annotators, or the judges, gave to passages of a pool.

    Writes qrels.parquet (the dataset's judgements of the split, corrected, and the new positives), changes.json, and
    for reviewed packages summary.json: whether each has passed, and how far reviewers and annotators agree.

    Inputs: dataset; pool, of `false_negatives`. `job.execution.path` is a filled sheet, or a folder of packages, of
    which those count that have passed their review. Without a path, the verdict on the sheet's unlabelled passages is
    the machine's. The manifest states this, also if a language model filled in rows of the sheet and its name was not
    removed from them.
    """
    require_dataset(job, "pool")
    pool, collection = job.inputs["pool"], Collection(job.inputs["dataset"])
    split = pool.params_as(FalseNegativesParams).split
    if job.params.split not in (None, split):
        raise UserError(
            f"{pool.folder}: is a pool of split {split}, but split is {job.params.split}"
        )

    verdicts = read_decisions(job)
    judged = read_judgements(collection, split)
    rows = [
        *correct_judgements(judged, verdicts.answers, split),
        *list_new_positives(judged, verdicts.answers, split),
    ]
    looked_at = pq.read_table(pool.path("queries.parquet"))["query_id"].to_pylist()
    changes = describe_changes(looked_at, judged, verdicts.answers)
    with writing(job) as draft:
        batches = tables.make_batches(rows, tables.QRELS_SCHEMA)
        tables.write_batches(draft.path(QRELS), batches, tables.QRELS_SCHEMA)
        write_json(draft.path("changes.json"), {"split": split, **verdicts.facts, **changes})
        if verdicts.review:
            write_json(draft.path("summary.json"), verdicts.review.model_dump())
        for line in verdicts.warnings:
            warn(job, draft, line)
        draft.facts |= {
            **verdicts.facts,
            "qrels": len(rows),
            "new_positives": changes["new_positives"],
        }


def read_decisions(job: Job[RelabelParams]) -> Relabelling:
    """Read the verdicts of a filled sheet or of reviewed packages; without either, take the judges' verdicts."""
    pool = job.inputs["pool"]
    if job.execution.path is None:
        return _ask_judges(job.params, pool)
    path = Path(job.execution.path)
    if path.is_dir():
        return _read_packages(path, job.params.fingerprint, pool)
    return _read_sheet(path, job.params.fingerprint, pool)


def _ask_judges(params: RelabelParams, pool: Artifact) -> Relabelling:
    threshold = params.threshold
    if threshold is None:
        threshold = pool.params_as(FalseNegativesParams).threshold
    answers = judge_by_machine(pool, threshold)
    verdicts = [verdict for own in answers.values() for verdict in own.values()]
    warnings = []
    if not any(verdicts):
        none = f"the judges find none of {len(verdicts):,} passages relevant (above {threshold:g})"
        warnings = [f"{none}, and labels stay as they are; people's verdicts are read from a sheet"]
    return Relabelling(answers, {"verdict": "machine", "threshold": threshold}, warnings)


def _read_packages(folder: Path, expected: str | None, pool: Artifact) -> Relabelling:
    require_unchanged(folder, expected, fingerprint(folder, list_decisive_files(folder)))
    accepted, review = read_accepted(folder, pool)
    count = len(review.packages)
    facts: dict[str, str | int | float] = {
        "verdict": "annotators",
        "sheet": folder.name,
        "packages": count,
        "accepted": review.accepted,
    }
    warnings = []
    left_out = count - review.accepted
    if left_out:
        warnings.append(
            f"{left_out:,} of {count:,} packages have not passed their review and are left out"
        )
    return Relabelling(_sort_verdicts(accepted, pool), facts, warnings, review)


def _read_sheet(path: Path, expected: str | None, pool: Artifact) -> Relabelling:
    answers, machine_made = read_sheet_answers(path, expected, pool)
    if not machine_made:
        return Relabelling(answers, {"verdict": "annotators", "sheet": path.name})
    warning = f"a language model gave {machine_made:,} of the sheet's verdicts, not annotators"
    return Relabelling(
        answers, {"verdict": "machine", "sheet": path.name, "machine_made": machine_made}, [warning]
    )


def correct_judgements(
    judged: dict[str, dict[str, int]], answers: SheetAnswers, split: str
) -> Iterator[tuple[str, str, int, str]]:
    """Yield the rows of qrels.parquet for earlier judgements, each as corrected by annotators."""
    for query, relevances in judged.items():
        verdicts = answers.get(query, {})
        for doc, relevance in relevances.items():
            yield query, doc, correct_relevance(relevance, verdicts.get(doc)), split


def list_new_positives(
    judged: dict[str, dict[str, int]], answers: SheetAnswers, split: str
) -> Iterator[tuple[str, str, int, str]]:
    """Yield the rows of qrels.parquet for relevant passages that nobody had judged before."""
    for query, verdicts in answers.items():
        known = judged.get(query, {})
        for doc, is_relevant in verdicts.items():
            if is_relevant and doc not in known:
                yield query, doc, 1, split


def correct_relevance(relevance: int, verdict: bool | None) -> int:
    """Return a judgement after an annotator's verdict: unchanged if the verdict agrees, or if there is none."""
    if verdict is None or verdict == (relevance > 0):
        return relevance
    return int(verdict)


def judge_by_machine(pool: Artifact, threshold: float) -> SheetAnswers:
    """Return the judges' verdict on every unlabelled passage of the sheet: positive if it scores above the threshold.

    A pool that was ranked without judges is a `UserError`: its scores are not probabilities.
    """
    if not any(role.startswith("judge.") for role in pool.upstream):
        raise UserError(
            f"{pool.folder}: was ranked without a judge and has no verdict; name a filled sheet or a judge"
        )
    answers: SheetAnswers = {}
    for query, doc, score, is_open, relevance in tables.stream_rows(
        pool.path("pool.parquet"), "query_id", "doc_id", "score", "asked", "relevance"
    ):
        if is_open and relevance is None:
            answers.setdefault(query, {})[doc] = score > threshold
    return answers


def read_sheet_answers(
    path: Path, expected: str | None, pool: Artifact
) -> tuple[SheetAnswers, int]:
    """Return the sheet's verdicts, query by query in the pool's order, and how many of them a language model filled in.

    Rows without a verdict are left out. A `UserError` if the file differs from the planned one, for an invalid verdict,
    for a passage that is not in the pool or may not be relabelled, and for two rows that contradict each other.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; name a filled sheet")
    require_unchanged(path, expected, sha256(path) if expected else None)
    labelled = pool.params_as(FalseNegativesParams).labelled
    # query → document → its relevance (None if unlabelled), and whether it is on the sheet
    pooled: dict[str, dict[str, tuple[int | None, bool]]] = {}
    for query, doc, relevance, is_open in tables.stream_rows(
        pool.path("pool.parquet"), "query_id", "doc_id", "relevance", "asked"
    ):
        pooled.setdefault(query, {})[doc] = relevance, is_open

    def require_open(where: str, query: str, doc: str) -> None:
        """Refuse a verdict on a passage that is not in the pool, or whose label is not asked about."""
        if query not in pooled:
            raise UserError(
                f"{where}: query_id {query!r} is not in {pool.folder}; ids must stay as they were"
            )
        if doc not in pooled[query]:
            raise UserError(
                f"{where}: doc_id {doc!r} was not pooled for query {query}; ids must stay as they were"
            )
        relevance, is_open = pooled[query][doc]
        if relevance is not None and not (labelled and is_open):
            raise UserError(
                f"{where}: {doc} is labelled already for query {query}; leave the row out"
            )

    verdicts, machine_made = read_verdicts(path, require_open)
    return _sort_verdicts(verdicts, pool), len(machine_made)


def _sort_verdicts(verdicts: dict[Pair, bool], pool: Artifact) -> SheetAnswers:
    """Return verdicts query by query, in the pool's order."""
    answers: SheetAnswers = {}
    for query, doc in tables.stream_rows(pool.path("pool.parquet"), "query_id", "doc_id"):
        if (query, doc) in verdicts:
            answers.setdefault(query, {})[doc] = verdicts[query, doc]
    return answers


def describe_changes(
    queries: Sequence[str],
    judged: dict[str, dict[str, int]],
    answers: SheetAnswers,
    least: int = 1,
) -> dict[str, object]:
    """Describe the effect of new labels: the mean number of positives and the share of queries with new ones.

    A judgement of at least `least` is a positive. If positives were withdrawn, `removed_positives` counts them.
    """
    before: dict[str, int] = {}
    new: dict[str, int] = {}
    removed: dict[str, int] = {}
    for query in queries:
        relevances, verdicts = judged.get(query, {}), answers.get(query, {})
        positives = {doc for doc, relevance in relevances.items() if relevance >= least}
        before[query] = len(positives)
        new[query] = sum(
            is_relevant for doc, is_relevant in verdicts.items() if doc not in positives
        )
        removed[query] = sum(
            not is_relevant for doc, is_relevant in verdicts.items() if doc in positives
        )
    after = {query: before[query] + new[query] - removed[query] for query in queries}
    with_new = [query for query in queries if new[query]]
    changed = [query for query in queries if new[query] or removed[query]]
    changes: dict[str, object] = {
        "queries": len(queries),
        "asked_about": sum(map(len, answers.values())),
        "new_positives": sum(new.values()),
        "changed": len(with_new),
        "percent_changed": round(100 * len(with_new) / len(queries), 2),
        "positives_per_query": {
            "before": round(sum(before.values()) / len(queries), 4),
            "after": round(sum(after.values()) / len(queries), 4),
        },
        "changes": {query: {"before": before[query], "after": after[query]} for query in changed},
    }
    if any(removed.values()):
        changes["removed_positives"] = sum(removed.values())
    return changes
