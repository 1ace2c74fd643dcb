"""The roles of files: passages, queries, judgements and answers, with the names that their fields have."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tandem.errors import UserError


@dataclass(frozen=True)
class Role:
    """The kind of records that a file holds, and the names of their fields.

    Attributes:
        fields: field → its possible names in JSON, Parquet or a header line; the first one present counts.
        columns: number of columns of a tab-separated line without a header → their fields; `-` is not read.
        line: description of such a line, for errors.
        optional: fields that may be missing.
        alone: whether optional fields may be missing only if there are no other fields, which could be meant for them.
        spaced: whether a line without tabs is separated by white space, as TREC's are.
    """

    fields: dict[str, tuple[str, ...]]
    columns: dict[int, tuple[str, ...]]
    line: str
    optional: frozenset[str] = frozenset()
    alone: bool = False
    spaced: bool = False

    def columns_of(self, line: str) -> list[str]:
        """Return the columns of a line: separated by tabs, or without tabs, if `spaced`, by white space."""
        if self.spaced and "\t" not in line:
            return line.split()
        return line.split("\t")

    def resolve(self, where: str, names: Collection[str]) -> dict[str, str]:
        """Return field → its name among `names`, for those present; a `UserError` if a required field is missing."""
        resolved: dict[str, str] = {}
        most = len(self.fields) - len(self.optional)
        for field, allowed in self.fields.items():
            name = next((name for name in allowed if name in names), None)
            if name is not None:
                resolved[field] = name
            elif field not in self.optional or (self.alone and len(names) > most):
                raise UserError(
                    f"{where}: no {field}; a field named {' or '.join(allowed)} is needed"
                )
        return resolved


QUERY_IDS = ("_id", "id", "query_id", "query-id", "qid")
DOC_IDS = ("_id", "id", "doc_id", "docid", "pid", "docno", "document_id", "passage_id")
_TEXT_FIELDS = ("text", "contents", "content", "body", "passage", "passage_text")

PASSAGES_ROLE = Role(
    fields={"id": DOC_IDS, "title": ("title",), "text": _TEXT_FIELDS},
    columns={2: ("id", "text"), 3: ("id", "title", "text")},
    line="id, text or id, title, text, by tabs",
    optional=frozenset({"title"}),
)
QUERIES_ROLE = Role(
    {"id": QUERY_IDS, "text": ("text", "query", "question")},
    {2: ("id", "text")},
    "id, text, by a tab",
)
QRELS_ROLE = Role(
    fields={
        "query": ("query_id", "query-id", "qid"),
        "document": (
            "doc_id",
            "corpus-id",
            "corpus_id",
            "docid",
            "pid",
            "docno",
            "document_id",
            "passage_id",
        ),
        "relevance": ("relevance", "score", "rel", "label"),
    },
    columns={
        2: ("query", "document"),
        3: ("query", "document", "relevance"),
        4: ("query", "-", "document", "relevance"),
    },
    line="query id, 0, document id, relevance by white space, or query id, document id[, relevance] by tabs",
    optional=frozenset({"relevance"}),
    alone=True,
    spaced=True,
)
ANSWERS_ROLE = Role(
    {"id": (*QUERY_IDS, "question_id"), "answers": ("answers",)}, {}, "id, answer, …, by tabs"
)
ID_NAMES = {
    *DOC_IDS,
    *QRELS_ROLE.fields["query"],
    *QRELS_ROLE.fields["document"],
    *ANSWERS_ROLE.fields["id"],
}


def make_domains_role(names: tuple[str, str] | None) -> Role:
    """Return the role of a file with passages' domains, whose fields have two names; None: the usual ones.

    A JSON record may lack the domain: its passage has none.
    """
    document: tuple[str, ...] = DOC_IDS
    domain: tuple[str, ...] = ("domain",)
    if names:
        document_name, domain_name = names
        document = (document_name, document_name.lower())
        domain = (domain_name, domain_name.lower())
    return Role(
        {"id": document, "domain": domain},
        {2: ("id", "domain")},
        "id, domain, by a tab",
        optional=frozenset({"domain"}),
    )


def match_columns(
    where: str, names: Sequence[str], role: Role, marked: bool = False
) -> tuple[str, ...] | None:
    """Return the field of each column by its name, `-` if not read; None if the names are a record.

    Names that begin with that of an id are a header, not a record, unless they are `marked`: a header that lacks a
    needed field raises a `UserError`.
    """
    names = [name.strip().lower() for name in names]
    fields: dict[str, str] = {}  # column → its field
    for field, allowed in role.fields.items():
        # of several names of a field, the role's first counts
        present = [name for name in allowed if name in names]
        if present:
            fields[present[0]] = field
    columns = []
    for number, name in enumerate(names):
        is_first = names.index(name) == number
        columns.append(fields.get(name, "-") if is_first else "-")
    is_complete = role.fields.keys() - role.optional <= set(columns)
    if not is_complete and (marked or names[0] not in ID_NAMES):
        return None
    role.resolve(where, names)
    twice = next((name for name in fields if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{where}: several columns {twice}; rename those that are not meant")
    return tuple(columns)
