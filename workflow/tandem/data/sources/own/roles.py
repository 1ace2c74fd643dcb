"""What a file of one's own is for, and under which names and in which order its fields may come."""

from dataclasses import dataclass
from typing import Any

from tandem.errors import UserError


@dataclass(frozen=True)
class Role:
    """What the records of a file are.

    Attributes:
        fields: field → names that it may carry in JSON, Parquet or a header line; the first one found is taken.
        optional: fields that may be missing.
        columns: number of columns of a tab-separated line without a header → the fields they are; `-` is not read.
        spaced: whether a line without tabs is separated by white space, as TREC's are.
        line: what such a line is, for errors.
    """

    fields: dict[str, tuple[str, ...]]
    optional: frozenset[str]
    columns: dict[int, tuple[str, ...]]
    line: str
    spaced: bool = False

    def field_of(self, name: str) -> str | None:
        """The field that goes by a name."""
        return next((field for field, names in self.fields.items() if name in names), None)

    def resolve(self, where: str, names: Any) -> dict[str, str]:
        """Field → the name it has here, for those there are.

        Args:
            where: the record's place, for the error.
            names: what can be asked with `in`: a record, or its keys.
        Raises:
            UserError: a field is missing that is not optional.
        """
        found = {}
        for field, allowed in self.fields.items():
            name = next((name for name in allowed if name in names), None)
            if name is not None:
                found[field] = name
            elif field not in self.optional:
                raise UserError(f"{where}: no {field}; a field named {' or '.join(allowed)} is needed")
        return found


QUERY_IDS = ("_id", "id", "query_id", "query-id", "qid")
DOC_IDS = ("_id", "id", "doc_id", "docid", "pid")

PASSAGES = Role(
    fields={"id": DOC_IDS, "title": ("title",), "text": ("text", "contents")},
    optional=frozenset({"title"}),
    columns={2: ("id", "text"), 3: ("id", "title", "text")},
    line="id, text or id, title, text, by tabs",
)
QUERIES = Role(
    fields={"id": QUERY_IDS, "text": ("text", "query")},
    optional=frozenset(),
    columns={2: ("id", "text")},
    line="id, text, by a tab",
)
QRELS = Role(
    fields={
        "query": ("query_id", "query-id", "qid"),
        "document": ("doc_id", "corpus-id", "corpus_id", "docid", "pid"),
        "relevance": ("relevance", "score"),
    },
    optional=frozenset({"relevance"}),
    columns={
        2: ("query", "document"),
        3: ("query", "document", "relevance"),
        4: ("query", "-", "document", "relevance"),
    },
    line="query id, 0, document id, relevance by white space, or query id, document id[, relevance] by tabs",
    spaced=True,
)
ANSWERS = Role(
    fields={"id": QUERY_IDS, "answers": ("answers",)},
    optional=frozenset(),
    columns={},
    line="id, answer, …, by tabs",
)
