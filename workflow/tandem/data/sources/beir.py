"""A folder in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/{train,dev,test}.tsv`.

Lines end at "\\n" only: texts carry U+2028 and other characters that Python's `splitlines` takes for line ends.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tandem.data.collection import SPLITS
from tandem.errors import UserError


class Beir:
    """The folder named by `--run.path`; see `Source`."""

    PARAMS: frozenset[str] = frozenset()

    def __init__(self, params: dict[str, Any], execution: dict[str, Any]) -> None:
        if not execution.get("path"):
            raise UserError("path: missing; name the folder that holds corpus.jsonl, queries.jsonl and qrels/")
        folder = Path(execution["path"])
        self._corpus, self._queries = folder / "corpus.jsonl", folder / "queries.jsonl"
        self._qrels = {split: path for split in SPLITS if (path := folder / "qrels" / f"{split}.tsv").is_file()}
        for path in (folder, self._corpus, self._queries):
            if not path.exists():
                raise UserError(f"{path}: no such file; a BEIR folder holds corpus.jsonl, queries.jsonl and qrels/")
        if not self._qrels:
            raise UserError(f"{folder / 'qrels'}: no qrels; at least one of train.tsv, dev.tsv, test.tsv is needed")
        self.places = {"corpus": str(self._corpus), "queries": str(self._queries)}
        self.facts: dict[str, Any] = {}

    def corpus(self) -> Iterator[tuple[str, str, str]]:
        """(document id, title, text) of each line of corpus.jsonl; a missing title is empty."""
        for where, record in _records(self._corpus):
            yield (
                _text(where, record, "_id"),
                _text(where, record, "title") if record.get("title") else "",
                _text(where, record, "text"),
            )

    def queries(self) -> Iterator[tuple[str, str, str]]:
        """(query id, text, "") of each line of queries.jsonl: the split is that of the qrels naming the query."""
        for where, record in _records(self._queries):
            yield _text(where, record, "_id"), _text(where, record, "text"), ""

    def qrels(self) -> Iterator[tuple[str, str, int, str]]:
        """(query id, document id, relevance, split) of each line of the qrels, header lines left out."""
        for split, path in self._qrels.items():
            for number, line in _lines(path):
                fields = line.split("\t")
                if number == 1 and fields[-1] == "score":
                    continue
                try:
                    query, doc, relevance = fields
                    yield query, doc, int(relevance), split
                except ValueError:
                    found = f"{path}:{number}: {line!r} is no judgement"
                    raise UserError(f"{found}; a line is query-id, corpus-id and a whole number, by tabs") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, line without its end) of a UTF-8 file."""
    number = 0
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 after line {number} ({error.reason}); convert it to UTF-8") from None


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line`, JSON object) of each line."""
    for number, line in _lines(path):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            found = f"{path}:{number}: not valid JSON, {error.msg} at column {error.colno}"
            raise UserError(f"{found}; one JSON object a line is allowed") from None
        if not isinstance(record, dict):
            raise UserError(f"{path}:{number}: a JSON {type(record).__name__}; one JSON object a line is allowed")
        yield f"{path}:{number}", record


def _text(where: str, record: dict[str, Any], key: str) -> str:
    """A record's field as text; whole numbers are allowed as ids."""
    value = record.get(key)
    if key == "_id" and type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise UserError(f"{where}: {key} is {json.dumps(value)[:60]}; a text is needed")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UserError(f"{where}: {key} holds half of a surrogate pair; valid Unicode is needed") from None
    return value
