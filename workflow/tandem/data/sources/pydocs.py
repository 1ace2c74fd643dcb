"""API documentation of installed packages: real text that every machine has after installation.

The query is the summary line of a function's, class's or method's docstring, the passage is the rest. Nothing is
imported: the docstrings are read from the files. Equal passages are one passage, so that a query may have several.
Ids are hashes of the normalised texts, the split is a hash of the query's, and corpus and queries are sorted by id:
packages of the same versions give the same collection on every machine.
"""

import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from tandem.cluster.progress import Progress
from tandem.cluster.work import map_in_order
from tandem.config import datasets
from tandem.data.sources import DatasetJob, Judgement, Passage, Query, Source, dataset_format
from tandem.data.sources.docstrings import WHITE_SPACE, list_docstrings, split_docstring
from tandem.errors import UserError

Module = tuple[str, Path]  # dotted name, file
_Pair = tuple[str, str]  # a query, the passage that answers it

_PASSAGE_WORDS = 250  # longest passage, unless the entry sets another or null for no limit
_QUERY_WORDS = range(3, 31)
_LEAST_WORDS = 12  # of two or more letters in a passage
_ASCII_SHARE = 0.95  # of a passage's characters; a query must be all ASCII
_WORD_BREAK = re.compile(r"[._]+|(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[A-Za-z]{2,}")
# "axis (int): …" documents a parameter, "See foo" and "Deprecated" nothing at all.
_PARAMETER = re.compile(r"^[\w\s,*/]+(\s\([^)]*\)+)?\s*:|^\w+\s+\(.*\)\)?:")
_EMPTY_TALK = re.compile(
    r"deprecated|see |test |this (function|method|class) is deprecated|alias |same as|todo|overrid|internal|helper",
    re.IGNORECASE,
)
# Tests, copies of other packages and generated parts say nothing about the package's own interface.
_SKIPPED = frozenset(
    {"tests", "test", "testing", "benchmarks", "externals", "site-packages", "__pycache__"}
    | {"_vendor", "_vendored", "vendor", "_dist_ver"}
)


@dataset_format("pydocs")
class PyDocsSource(Source):
    """Docstrings of `packages`, names of installed top-level packages.

    A passage's title is, with `heading: module`, the words of the module's path.
    """

    def __init__(self, job: DatasetJob, entry: datasets.PyDocs) -> None:
        super().__init__(job, entry)
        if not entry.packages:
            raise UserError(
                f"packages: {entry.packages}; a list of names of installed packages is needed"
            )
        self._titled = entry.heading == "module"
        self._longest = (
            entry.passage_words if "passage_words" in entry.model_fields_set else _PASSAGE_WORDS
        )
        self._splits = entry.hash_splits or datasets.HashSplits()
        self._workers = job.execution.workers or 1
        self._modules = find_modules(entry.packages)
        self.places = {"corpus": "pydocs passages", "queries": "pydocs queries"}
        self.facts["files"] = len(self._modules)

    def read_corpus(self) -> Iterator[Passage]:
        for doc_id, (module, text) in sorted(self._pairs.passages.items()):
            yield doc_id, make_heading(module) if self._titled else "", text

    def read_queries(self) -> Iterator[Query]:
        for query_id, (normal, text) in sorted(self._pairs.queries.items()):
            yield query_id, text, self._splits.of(hash_query(normal))

    def read_qrels(self) -> Iterator[Judgement]:
        for query_id, doc_id in sorted(self._pairs.answers):
            yield query_id, doc_id, 1, self._splits.of(hash_query(self._pairs.queries[query_id][0]))

    @cached_property
    def _pairs(self) -> "_Pairs":
        pairs = _Pairs({}, {}, set())
        count = 0
        results = map_in_order(
            partial(extract_pairs, longest=self._longest), self._modules, self._workers
        )
        with Progress("pydocs", len(self._modules), "files") as progress:
            for (module, _), extracted in zip(self._modules, results, strict=True):
                for query, passage in extracted:
                    normal = normalise_words(query)
                    query_id = f"q{hash_text(normal)}"
                    doc_id = hash_text(normalise_words(passage))
                    pairs.queries.setdefault(query_id, (normal, query))
                    pairs.passages.setdefault(doc_id, (module, passage))
                    pairs.answers.add((query_id, doc_id))
                count += len(extracted)
                progress.add(1)
        self.facts["pairs"] = count
        return pairs


class _Pairs(NamedTuple):
    """Pairs of all modules as one collection: equal texts are one, and everything is named by a hash of its text."""

    passages: dict[str, tuple[str, str]]  # id → (module, text)
    # id → (normalised text, text); of equal ones the first counts
    queries: dict[str, tuple[str, str]]
    answers: set[tuple[str, str]]  # (query id, passage id)


def make_heading(module: str) -> str:
    """Return the words of a module's path, each once: `numpy.ma.core` → `numpy ma core`."""
    return " ".join(dict.fromkeys(word for word in _WORD_BREAK.split(module) if word))


def hash_text(text: str) -> str:
    """Return the first 10 hex digits of the sha1 of a text."""
    return hashlib.sha1(text.encode()).hexdigest()[:10]


def hash_query(normal_query: str) -> int:
    """Return the number that decides a query's split: the first 32 bits of its sha1."""
    return int(hashlib.sha1(normal_query.encode()).hexdigest()[:8], 16)


def find_modules(packages: Iterable[str]) -> list[Module]:
    """Return the modules of all packages, sorted by dotted name, whatever the order of packages and files.

    Raises:
        UserError: a package is not installed, or is not written in Python.
    """
    modules = set[Module]()
    for package in packages:
        modules.update(_find_modules_of(package))
    return sorted(modules)


def _find_modules_of(package: str) -> list[Module]:
    # Only a dotted name would make find_spec import something.
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None:
        raise UserError(f"packages: {package!r} is not installed; install it or leave it out")
    if spec.submodule_search_locations is None:
        if not spec.origin or not spec.origin.endswith(".py"):
            raise UserError(f"packages: {package!r} is not written in Python; leave it out")
        return [(package, Path(spec.origin))]
    modules = []
    for location in spec.submodule_search_locations:
        for path in Path(location).rglob("*.py"):
            *folders, name = path.relative_to(location).with_suffix("").parts
            if not _SKIPPED.isdisjoint(folders) or name.startswith("test_") or name == "conftest":
                continue
            parts = [package, *folders]
            if name != "__init__":
                parts.append(name)
            modules.append((".".join(parts), path))
    return modules


def extract_pairs(module: Module, longest: int | None) -> list[_Pair]:
    """Return the pairs of one module; none if its file is not UTF-8."""
    _, path = module
    try:
        source = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return []
    pairs = []
    for name, docstring in list_docstrings(source):
        pair = make_pair(name, docstring, longest)
        if pair:
            pairs.append(pair)
    return pairs


def make_pair(name: str, docstring: str, longest: int | None) -> _Pair | None:
    """Return the pair of an object, or None if a filter drops it.

    The passage must answer without naming the object itself, or any lexical match would retrieve it. A passage of more
    than `longest` words is cut to that length.
    """
    parts = split_docstring(docstring)
    if parts is None:
        return None
    query, body = parts
    if not is_query(query) or not body:
        return None
    ascii_characters = sum(map(str.isascii, body))
    if ascii_characters < _ASCII_SHARE * len(body):
        return None

    without_name = WHITE_SPACE.sub(" ", mask_name(body, name))
    passage = without_name.replace(query, " ").strip()
    if len(_WORD.findall(passage)) < _LEAST_WORDS:
        return None
    return query, " ".join(passage.split()[:longest])


def is_query(summary: str) -> bool:
    """Return whether a summary is a sentence one could search with."""
    if len(summary.split()) not in _QUERY_WORDS or not summary.isascii():
        return False
    return not _PARAMETER.match(summary) and not _EMPTY_TALK.match(summary)


def mask_name(body: str, name: str) -> str:
    """Return a passage without the object's own name; names of up to two letters stay."""
    if len(name.strip("_")) <= 2:
        return body
    return re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", " ", body)


def normalise_words(text: str) -> str:
    """Return lower-case letters and digits, all else blanks: texts that share this form count as equal."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))
