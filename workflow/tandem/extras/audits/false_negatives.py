"""Stages `false_negatives` and `relabel`: unlabelled passages that may be relevant, and judgements with their labels.

DuReader-retrieval §2.3 and A.1: the union of five systems' top 50 is ranked by the mean of four cross-encoders, the top
5 are labelled by people, and the labels found so are added to the judgements.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.data import tables
from tandem.data.collection import QRELS, QUERIES, Collection
from tandem.data.rows import IdRows, doc_rows, query_rows
from tandem.data.splits import subset
from tandem.errors import UserError
from tandem.extras.audits.pools import FUSION, Array, Counts, Pool, fused, pools, read_run, system_names
from tandem.extras.sheets import FORMULA, filled_rows, one_line, safe, shortened, write_sheet
from tandem.report.page import FOLDERS, render
from tandem.retrieval.inputs import require_dataset
from tandem.stages.evaluation import FalseNegativesParams, RelabelParams
from tandem.store.artifact import Artifact
from tandem.store.files import fingerprint, write_json, write_text
from tandem.store.job import Draft, Job, writing

FOLDERS.append(Path(__file__).parent / "assets")
GROUP = 32  # queries judged together: a line of progress after each
PAGE = 5000  # passages on the page; a browser shows no more in comfort, the CSV has all
COLUMNS = ("query_id", "doc_id", "query", "title", "passage", "score", "rank", "verdict")
POOL_SCHEMA = pa.schema([
    ("query_id", pa.string()), ("doc_id", pa.string()), ("rank", pa.int32()), ("score", pa.float32()),
    ("systems", pa.list_(pa.string())), ("relevance", pa.int32()), ("asked", pa.bool_()),
])  # fmt: skip
FILLED = ("query_id", "doc_id", "verdict")
VERDICTS = {"1": True, "yes": True, "0": False, "no": False}
Rank = Callable[[Sequence[Pool]], Iterable[tuple[Array, float]]]  # scores of each pool, and of its best positive


def run(job: Job[FalseNegativesParams]) -> None:
    """Pool the systems' results, rank them and write what annotators need.

    Inputs: dataset; `run.<i>`; `judge.<i>` and `judge_tokens.<i>` (cross-encoders, whose mean probability ranks).
    Without judges reciprocal rank fusion of the runs ranks, and there is no verdict.
    Writes pool.parquet, queries.parquet (query_id, split: what was looked at), sheet.csv and sheet.html (to fill
    in, for `relabel`), and summary.json.
    """
    params, judges = job.params, [model.key for model in job.many("judge")]
    if not job.many("run"):
        raise UserError("false_negatives: no run; give at least one as run.0")
    require_dataset(job, *(role for role in sorted(job.inputs) if role.startswith(("run.", "judge_tokens."))))
    collection, names = Collection(job.inputs["dataset"]), system_names(job)
    docs, texts = doc_rows(collection), collection.queries(params.split)
    chosen = subset(dict.fromkeys(texts, params.split), {params.split: params.queries})
    queries = {query: text for query, text in texts.items() if query in chosen}
    results = [read_run(artifact, params.split, queries, params.depth, docs) for artifact in job.many("run")]
    scored_by = f"mean probability of {', '.join(judges)}" if judges else f"reciprocal rank fusion (k = {FUSION})"
    counts = Counts(names, params.top, params.threshold if judges else None)
    sheet: list[pa.Table] = []
    with writing(job) as draft, pq.ParquetWriter(draft.path("pool.parquet"), POOL_SCHEMA) as writer:
        source = pools(results, judgements(collection, params.split), queries, docs)
        rank = judge_ranking(job, query_rows(collection)) if judges else partial(map, _by_ranks)
        for group in ranked(source, rank, docs, Progress(f"false_negatives {job.key}", len(queries), "queries")):
            for pool in group:
                counts.add(pool)
            rows = table(group, names, docs, params.top)
            writer.write_table(rows)
            sheet.append(rows.filter(rows["asked"]).select(["query_id", "doc_id", "score", "rank"]))
        summary = counts.summary()
        write_sheets(draft, list(sheet_rows(pa.concat_tables(sheet), queries, collection)), job.key, scored_by)
        looked_at = {"query_id": list(queries), "split": [params.split] * len(queries)}
        pq.write_table(pa.table(looked_at), draft.path(QUERIES))
        head = {"split": params.split, "scored_by": scored_by, "judges": judges}
        write_json(
            draft.path("summary.json"), head | summary | params.model_dump(include={"depth", "top", "threshold"})
        )
        draft.facts |= {"queries": summary["queries"], "asked": summary["asked"], "scored_by": scored_by}


def judgements(collection: Collection, split: str) -> dict[str, dict[str, int]]:
    """Query id → document id → relevance of a split, in file order; empty where nothing is judged.

    A dataset of questions with answers has no qrels.
    """
    splits = pq.read_table(collection.artifact.path(QRELS), columns=["split"])["split"].unique()
    return collection.qrels(split) if split in splits.to_pylist() else {}


def ranked(source: Iterator[Pool], rank: Rank, docs: IdRows, progress: Progress) -> Iterator[list[Pool]]:
    """The pools, ranked, a group of queries at a time."""
    with progress:
        while group := list(islice(source, GROUP)):
            for pool, (scores, best) in zip(group, rank(group), strict=True):
                pool.rank(scores, best, docs)
            progress.add(len(group))
            yield group


def _by_ranks(pool: Pool) -> tuple[Array, float]:
    """Fused scores of the pooled passages, and of the best positive: 0 if no system has one, NaN if there is none."""
    scores, positives = fused(pool.ranks), pool.positives
    best = float(scores[np.isin(pool.rows, positives)].max(initial=0)) if len(positives) else float("nan")
    return scores, best


def judge_ranking(job: Job[FalseNegativesParams], queries: IdRows) -> Rank:
    """The mean probability of the inputs `judge.<i>` with their `judge_tokens.<i>` (DuReader-retrieval A.1).

    The best positive is scored whether pooled or not; pairs that were scored before come from their stores.
    """
    # The judges bring torch, which takes seconds to import.
    from tandem.models.device import use_workers
    from tandem.retrieval.pair_scores import mean_probability, open_judges

    use_workers(job.execution.workers)
    judges = open_judges(job)

    def rank(group: Sequence[Pool]) -> Iterator[tuple[Array, float]]:
        """Of each pool: the judges' mean probabilities of its passages, and what its best positive has."""
        passages = [np.concatenate([pool.rows, pool.positives]) for pool in group]
        sizes = [len(rows) for rows in passages]
        repeated = np.repeat(queries.rows([pool.query for pool in group]), sizes)
        scores = mean_probability(judges, repeated, np.concatenate(passages))
        for pool, own in zip(group, np.split(scores, np.cumsum(sizes)[:-1]), strict=True):
            positives = own[len(pool.rows) :]
            yield own[: len(pool.rows)], float(positives.max()) if len(positives) else float("nan")

    return rank


def table(group: list[Pool], names: list[str], docs: IdRows, top: int) -> pa.Table:
    """Ranked pools as rows of `POOL_SCHEMA`, query after query."""
    columns: dict[str, list[object]] = {name: [] for name in POOL_SCHEMA.names}
    for pool in group:
        columns["query_id"] += [pool.query] * len(pool.rows)
        columns["doc_id"] += docs.ids(pool.rows)
        columns["rank"] += range(1, len(pool.rows) + 1)
        columns["score"] += pool.scores.tolist()
        columns["systems"] += [[names[at] for at in np.flatnonzero(column)] for column in pool.ranks.T]
        columns["relevance"] += [pool.relevance.get(int(row)) for row in pool.rows]
        columns["asked"] += pool.open(top).tolist()
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in POOL_SCHEMA})


class SheetRow(NamedTuple):
    """A passage that annotators are asked about."""

    query_id: str
    doc_id: str
    query: str
    title: str
    passage: str
    score: str
    rank: int


def sheet_rows(rows: pa.Table, queries: dict[str, str], collection: Collection) -> Iterator[SheetRow]:
    """Rows of a pool with their texts, in the order of the queries and best first."""
    texts = collection.texts(rows["doc_id"].to_pylist())
    for query, doc, score, rank in tables.rows(rows):
        title, passage = map(one_line, texts[doc])
        yield SheetRow(query, doc, one_line(queries[query]), title, shortened(passage), f"{score:.6g}", rank)


def write_sheets(draft: Draft, rows: list[SheetRow], key: str, scored_by: str) -> None:
    """Write sheet.csv, and sheet.html, a page with buttons that stores the answers under `key` and saves the CSV."""
    write_sheet(draft.path("sheet.csv"), COLUMNS, ([*row[:2], *map(safe, row[2:5]), *row[5:], ""] for row in rows))
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.query_id)]
    ends = [end for end in accumulate(map(len, groups), initial=0) if end <= PAGE]
    how = {"key": key, "scored_by": scored_by, "columns": COLUMNS, "formula": FORMULA}
    page = render("sheet.html", groups=groups[: len(ends) - 1], total=len(rows), shown=ends[-1], **how)
    write_text(draft.path("sheet.html"), page)


Answers = dict[str, dict[str, bool]]  # query id → document id → whether it is relevant, in the pool's order


def relabel(job: Job[RelabelParams]) -> None:
    """The split's judgements with the positives that annotators, or the judges, found in a pool.

    Writes qrels.parquet (the dataset's judgements of the split and the new positives) and changes.json.

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


def sheet_answers(path: Path, expected: str | None, pool: Artifact) -> Answers:
    """The annotators' verdicts, query by query in the pool's order; rows without a verdict are left out.

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
    for row, (query, doc, verdict) in filled_rows(path, FILLED):
        if not verdict:
            continue
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
    return {query: own for query, own in answers.items() if own}


def describe(queries: dict[str, str], judged: dict[str, dict[str, int]], answers: Answers) -> dict[str, object]:
    """The effect of new labels: DuReader-retrieval §2.3 has the mean number of positives and the share of queries."""
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
