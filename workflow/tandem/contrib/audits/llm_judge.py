"""Stage `judge_llm`: a language model grades pairs that nobody judged, and some that people judged (UMBRELA).

Its labels are a machine's. Every file that holds them states that, and their agreement with people's is measured.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress, warn
from tandem.contrib.audits.agreement import measure_agreement
from tandem.contrib.audits.false_negatives import read_run
from tandem.contrib.audits.options import JudgeLlmParams
from tandem.contrib.audits.relabel import SheetAnswers, describe_changes
from tandem.contrib.audits.sheets import FILLED_BY, SHEET_COLUMNS
from tandem.data import tables
from tandem.data.collection import EXCLUDED, LITERAL_MATCH, QRELS, Collection, join_contents
from tandem.data.rows import IdRows, index_passages
from tandem.data.tables import QRELS_SCHEMA
from tandem.errors import UserError
from tandem.extras.judgements import read_judgements
from tandem.extras.language_models.answers import count_at_once, open_answers
from tandem.extras.language_models.prompts import (
    CHAT,
    GRADE,
    RELEVANCE_GRADES,
    read_grade,
    write_grade_prompt,
)
from tandem.extras.spreadsheets import read_filled_rows, write_sheet
from tandem.retrieval.inputs import require_dataset
from tandem.store.files import write_json
from tandem.store.job import Draft, Job, writing

MADE_BY = "made_by"  # the column that names the model behind a label, or `people`
LABELS_SCHEMA = QRELS_SCHEMA.append(pa.field(MADE_BY, pa.string()))
GRADES_SCHEMA = pa.schema([
    ("query_id", pa.string()), ("doc_id", pa.string()), ("grade", pa.int32()), ("people", pa.int32()),
    (MADE_BY, pa.string()),
])  # fmt: skip


class JudgedPair(NamedTuple):
    """A query, a passage, and people's judgement of them: a relevance, None if nobody judged."""

    query: str
    doc: str
    people: int | None


def run(job: Job[JudgeLlmParams]) -> None:
    """Grade the unjudged passages at the top of runs and on a pool's sheet, and a sample of judged pairs.

    Inputs: dataset; pool, of `false_negatives`, whose queries are graded; `run.<i>`.
    Writes grades.parquet (each pair with its grade, null if the answer named none), qrels.parquet (people's labels
    and the model's, for `score`), sheet.csv (the pool's sheet with the model's verdicts), changes.json as `relabel`
    does, and summary.json with the agreement. Each answer is stored before the next question.
    """
    params, split = job.params, job.params.split
    require_dataset(job, "pool", *(role for role in sorted(job.inputs) if role.startswith("run.")))
    collection = Collection(job.inputs["dataset"])
    judged, docs = read_judgements(collection, split), index_passages(collection)
    highest = max(
        (max(relevances.values(), default=0) for relevances in judged.values()), default=0
    )
    if params.scale == "graded" and highest > len(RELEVANCE_GRADES) - 1:
        problem = (
            f"audits.llm_judge.scale is graded, but the highest label of split {split} is {highest}"
        )
        raise UserError(
            f"{problem}; grades go from 0 to {len(RELEVANCE_GRADES) - 1}, choose binary"
        )
    looked_at = pq.read_table(job.inputs["pool"].path("queries.parquet"))["query_id"].to_pylist()
    texts = collection.queries(split)
    queries = {query: texts[query] for query in looked_at}
    pairs = [
        *list_unjudged(job, collection, queries, judged, docs),
        *sample_judged(judged, docs, params.sample, params.seed),
    ]

    with writing(job) as draft:
        grades = ask(job, draft, pairs, texts, collection)
        rows = []
        machine: dict[tuple[str, str], int] = {}  # grades of pairs that people did not judge
        for pair, grade in zip(pairs, grades, strict=True):
            rows.append((pair.query, pair.doc, grade, pair.people, params.model))
            if pair.people is None and grade is not None:
                machine[pair.query, pair.doc] = grade
        tables.write_batches(
            draft.path("grades.parquet"), tables.make_batches(rows, GRADES_SCHEMA), GRADES_SCHEMA
        )

        labels = []
        for query, relevances in judged.items():
            labels += [(query, doc, label, split, "people") for doc, label in relevances.items()]
        answers: SheetAnswers = {query: {} for query in queries}
        for (query, doc), grade in machine.items():
            is_relevant = grade >= params.relevant_from
            answers[query][doc] = is_relevant
            labels.append(
                (
                    query,
                    doc,
                    grade if params.scale == "graded" else int(is_relevant),
                    split,
                    params.model,
                )
            )
        tables.write_batches(
            draft.path(QRELS), tables.make_batches(labels, LABELS_SCHEMA), LABELS_SCHEMA
        )
        write_sheet(
            draft.path("sheet.csv"), (*SHEET_COLUMNS, "grade", FILLED_BY), _fill_sheet(job, machine)
        )

        changes = describe_changes(looked_at, judged, answers, _find_lowest_relevant(params))
        write_json(
            draft.path("changes.json"), {"split": split, "verdict": "language model", **changes}
        )
        write_json(draft.path("summary.json"), summarise_grades(params, pairs, grades))


def list_unjudged(
    job: Job[JudgeLlmParams],
    collection: Collection,
    queries: dict[str, str],
    judged: dict[str, dict[str, int]],
    docs: IdRows,
) -> Iterator[JudgedPair]:
    """Yield the unjudged passages of each query: those on the pool's sheet, and those at the top of each run."""
    known: dict[str, set[str]] = {query: set() for query in queries}
    for query, doc, is_open in tables.stream_rows(
        job.inputs["pool"].path("pool.parquet"), "query_id", "doc_id", "asked"
    ):
        if is_open:
            known[query].add(doc)
    params = job.params
    for artifact in job.many("run"):
        results = read_run(artifact, collection, queries, params, docs)
        for query, rows in results.items():
            known[query].update(docs.ids(rows))
    for query, own in known.items():
        yield from (
            JudgedPair(query, doc, None) for doc in sorted(own - judged.get(query, {}).keys())
        )


def sample_judged(
    judged: dict[str, dict[str, int]], docs: IdRows, most: int, seed: int
) -> list[JudgedPair]:
    """Draw at most `most` of a split's judged pairs whose passage the corpus has, evenly, in the file's order."""
    pairs = []
    for query, grades in judged.items():
        for doc, grade in grades.items():
            if grade not in (LITERAL_MATCH, EXCLUDED):  # these are not judgements of people
                pairs.append(JudgedPair(query, doc, grade))
    known = docs.rows([pair.doc for pair in pairs], missing_ok=True) >= 0
    pairs = list(compress(pairs, known))
    drawn = np.random.default_rng(seed).choice(len(pairs), min(most, len(pairs)), replace=False)
    return [pairs[number] for number in sorted(drawn)]


def ask(
    job: Job[JudgeLlmParams],
    draft: Draft,
    pairs: Sequence[JudgedPair],
    texts: dict[str, str],
    collection: Collection,
) -> list[int | None]:
    """Ask for the model's grade of each pair, None if its answer names none; count answers and tokens."""
    params, passages = job.params, collection.texts({pair.doc for pair in pairs})
    answers = open_answers(job, CHAT)
    grades: list[int | None] = []
    counts: Counter[str] = Counter(repaired=0, without_grade=0)

    def answer(pair: JudgedPair) -> str:
        prompt = write_grade_prompt(
            texts[pair.query], join_contents(*passages[pair.doc])[: params.characters]
        )
        return answers.complete(prompt, params.tokens).text

    try:
        with (
            Progress(f"{job.kind} {job.key}", len(pairs), "pairs") as progress,
            ThreadPoolExecutor(count_at_once(job)) as threads,
        ):
            for text in threads.map(answer, pairs):
                grade, mended = read_grade(text)
                grades.append(grade)
                counts.update(repaired=mended and grade is not None, without_grade=grade is None)
                progress.add(1)
    finally:
        answers.close()
    draft.facts |= {"pairs": len(pairs), **answers.counts, **counts}
    if counts["without_grade"]:
        warn(
            job,
            draft,
            f"{counts['without_grade']:,} of {len(pairs):,} answers name no grade and are left out",
        )
    return grades


def _find_lowest_relevant(params: JudgeLlmParams) -> int:
    """Return the lowest of people's labels that counts as relevant."""
    return params.relevant_from if params.scale == "graded" else 1


def _fill_sheet(
    job: Job[JudgeLlmParams], grades: dict[tuple[str, str], int]
) -> Iterator[list[object]]:
    """Yield the rows of the pool's sheet, with the model's verdict where it gave a grade."""
    for _, (query, doc, *texts, _) in read_filled_rows(
        job.inputs["pool"].path("sheet.csv"), SHEET_COLUMNS
    ):
        grade = grades.get((query, doc))
        filled = (
            ["", "", ""]
            if grade is None
            else [int(grade >= job.params.relevant_from), grade, job.params.model]
        )
        yield [query, doc, *texts, *filled]


def summarise_grades(
    params: JudgeLlmParams, pairs: Sequence[JudgedPair], grades: Sequence[int | None]
) -> dict[str, object]:
    """Return summary.json: the prompt, the count of each grade, and the agreement on pairs that people judged."""
    lowest = _find_lowest_relevant(params)
    unjudged: Counter[str] = Counter()  # by grade
    both: list[tuple[int, int]] = []  # people's label and the model's grade
    ungraded = 0  # pairs judged by people for which the answer names no grade
    for pair, grade in zip(pairs, grades, strict=True):
        if pair.people is None:
            unjudged[str(grade)] += 1
        elif grade is None:
            ungraded += 1
        else:
            both.append((pair.people, grade))

    verdicts = [(people >= lowest, grade >= params.relevant_from) for people, grade in both]
    agreements = {"relevant": measure_agreement(verdicts, 2)}
    if params.scale == "graded":
        labels = [(max(people, 0), grade) for people, grade in both]
        agreements["grades"] = measure_agreement(labels, len(RELEVANCE_GRADES))
    return {
        "split": params.split,
        "model": params.model,
        "prompt": GRADE,
        "relevant_from": params.relevant_from,
        "unjudged": {
            "pairs": unjudged.total(),
            "grades": {grade: unjudged[grade] for grade in RELEVANCE_GRADES},
        },
        "without_grade": {"unjudged": unjudged["None"], "judged": ungraded},
        "agreement": {name: own.model_dump() for name, own in agreements.items()},
    }
