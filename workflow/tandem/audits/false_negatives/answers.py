"""What was found of the passages of a pool: by annotators on a sheet, or by the judges that ranked it."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from tandem.audits.false_negatives.verdicts import Verdict, read_verdicts
from tandem.data import tables
from tandem.errors import UserError
from tandem.store.artifact import Artifact
from tandem.store.files import fingerprint

Answers = dict[str, dict[str, bool]]  # query id → document id → whether it is relevant, in the pool's order


def by_machine(pool: Artifact, threshold: float) -> Answers:
    """The judges' verdict on every passage of the sheet: positive if its score is above the threshold.

    Raises:
        UserError: the pool was ranked without judges, so that its scores are no probabilities.
    """
    if not any(role.startswith("judge.") for role in pool.upstream):
        raise UserError(f"{pool.folder}: was ranked without a judge and has no verdict; name a filled sheet or a judge")
    answers: Answers = {}
    rows = pq.read_table(pool.path("pool.parquet"), columns=["query_id", "doc_id", "score", "asked"])
    for query, doc, score, asked in tables.rows(rows):
        if asked:
            answers.setdefault(query, {})[doc] = score > threshold
    return answers


def by_sheet(path: Path, expected: str | None, pool: Artifact) -> Answers:
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
    said: dict[tuple[str, str], Verdict] = {}
    for one in read_verdicts(path):
        _require_asked(path, one, unlabelled, pool)
        first = said.setdefault((one.query, one.doc), one)
        if first.relevant != one.relevant:
            both = f"{one.doc} for query {one.query} is {_word(one)} here and {_word(first)} in row {first.row}"
            raise UserError(f"{path}:{one.row}: {both}; keep one of the rows")
    answers: Answers = {}
    for query, docs in unlabelled.items():
        answers |= {query: mine} if (mine := dict(_of(query, docs, said))) else {}
    return answers


def _require_asked(path: Path, one: Verdict, unlabelled: dict[str, dict[str, bool]], pool: Artifact) -> None:
    """Refuse a row about something else than an unlabelled passage of the pool."""
    if one.query not in unlabelled:
        raise UserError(f"{path}:{one.row}: query_id {one.query!r} is not in {pool.folder}; ids must stay as they were")
    if one.doc not in unlabelled[one.query]:
        found = f"{path}:{one.row}: doc_id {one.doc!r} was not pooled for query {one.query}"
        raise UserError(f"{found}; ids must stay as they were")
    if not unlabelled[one.query][one.doc]:
        raise UserError(f"{path}:{one.row}: {one.doc} is labelled already for query {one.query}; leave the row out")


def _of(query: str, docs: dict[str, bool], said: dict[tuple[str, str], Verdict]) -> Iterator[tuple[str, bool]]:
    """What was said of a query's passages, in the pool's order."""
    for doc in docs:
        if (query, doc) in said:
            yield doc, said[query, doc].relevant


def _word(verdict: Verdict) -> str:
    return "relevant" if verdict.relevant else "not relevant"
