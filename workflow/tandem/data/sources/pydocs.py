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
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tandem.artifact import Job
from tandem.data.sources import Judgement, Passage, Query, Source
from tandem.data.sources.docstrings import SPACE, Documented, docstrings, summary_and_body
from tandem.errors import UserError
from tandem.progress import Progress

# ---- tandem.data.sources.pydocs
HEADINGS = ("none", "module")
WORD_BREAK = re.compile(r"[._]+|(?<=[a-z0-9])(?=[A-Z])")


class PyDocs(Source):
    """Docstrings of `packages`.

    Parameters: `packages`, names of installed top-level packages; `heading`, a passage's title: `none` or `module`, the
    words of the module's path; `passage_words`, the longest passage, 250 by default, null for no limit.
    """

    PARAMS = frozenset({"packages", "heading", "passage_words"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        params = job.params
        packages, self._heading = params.get("packages"), params.get("heading", "none")
        self._longest, self._workers = params.get("passage_words", 250), int(job.execution.workers or 1)
        if not isinstance(packages, list) or not packages or not all(isinstance(name, str) for name in packages):
            raise UserError(f"packages: {packages!r}; a list of names of installed packages is needed")
        if self._heading not in HEADINGS:
            raise UserError(f"heading: {self._heading!r}; allowed are {', '.join(HEADINGS)}")
        if self._longest is not None and (type(self._longest) is not int or self._longest < 1):
            raise UserError(f"passage_words: {self._longest!r}; a whole number from 1 is allowed, or null for no limit")
        self._modules = find_modules(packages)
        self.places = {"corpus": "pydocs passages", "queries": "pydocs queries"}
        self.facts["files"] = len(self._modules)
        self._collected: Collected | None = None

    def corpus(self) -> Iterator[Passage]:
        """(passage id, heading, text), sorted by id."""
        for doc_id, (module, text) in sorted(self._collection().passages.items()):
            yield doc_id, heading(module) if self._heading == "module" else "", text

    def queries(self) -> Iterator[Query]:
        """(query id, text, split), sorted by id."""
        for query_id, (normal, text) in sorted(self._collection().queries.items()):
            yield query_id, text, split_of(normal)

    def qrels(self) -> Iterator[Judgement]:
        """(query id, passage id, 1, split), sorted by query and passage id."""
        collected = self._collection()
        for query_id, doc_id in sorted(collected.answers):
            yield query_id, doc_id, 1, split_of(collected.queries[query_id][0])

    def _collection(self) -> Collected:
        """The collection, extracted at the first call."""
        if self._collected is None:
            self._collected = Collected()
            with Progress("pydocs", len(self._modules), "files") as progress:
                for module, pairs in _pairs(self._modules, self._longest, self._workers):
                    self._collected.add(module, pairs)
                    progress.add(1)
            self.facts["pairs"] = self._collected.pairs
        return self._collected


def heading(module: str) -> str:
    """The words of a module's path, each once: `numpy.ma.core` → `numpy ma core`."""
    return " ".join(dict.fromkeys(word for word in WORD_BREAK.split(module) if word))


def _pairs(modules: list[Module], longest: int | None, workers: int) -> Iterator[tuple[str, list[Pair]]]:
    """(module, its pairs) in the order of the modules, whatever the number of processes."""
    read = partial(_module_pairs, longest=longest)
    names = (module.name for module in modules)
    if workers <= 1:
        yield from zip(names, map(read, modules), strict=True)
        return
    # Spawned, not forked: this process may hold threads of Arrow.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from zip(names, pool.map(read, modules, chunksize=32), strict=True)


def _module_pairs(module: Module, longest: int | None) -> list[Pair]:
    """Pairs of one module; none of a file that is not UTF-8."""
    try:
        source = module.path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return []
    return [pair for documented in docstrings(source) if (pair := pair_of(documented, longest))]


# ---- tandem.data.sources.pydocs
# Tests, copies of other packages and generated parts say nothing about the package's own interface.
SKIPPED = frozenset(
    {"tests", "test", "testing", "benchmarks", "externals", "site-packages", "__pycache__"}
    | {"_vendor", "_vendored", "vendor", "_dist_ver"}
)


@dataclass(frozen=True, order=True)
class Module:
    """A module's dotted name and its file."""

    name: str
    path: Path


def find_modules(packages: Iterable[str]) -> list[Module]:
    """Modules of all packages, sorted by dotted name: neither the file system nor the packages' order shows.

    Raises:
        UserError: a package is not installed, or is no Python source.
    """
    found = {module for package in set(packages) for module in _modules_of(package)}
    return sorted(found)


def _modules_of(package: str) -> list[Module]:
    """Modules of one top-level package, or the module itself if it is a single file."""
    # Only a dotted name would make find_spec import something.
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None:
        raise UserError(f"packages: {package!r} is not installed; install it or leave it out")
    if spec.submodule_search_locations is None:
        if not spec.origin or not spec.origin.endswith(".py"):
            raise UserError(f"packages: {package!r} is not written in Python; leave it out")
        return [Module(package, Path(spec.origin))]
    roots = [Path(location) for location in spec.submodule_search_locations]
    return [
        Module(_dotted(package, root, path), path) for root in roots for path in root.rglob("*.py") if _told(root, path)
    ]


def _told(root: Path, path: Path) -> bool:
    """Whether a file belongs to the package's own interface."""
    inside = path.relative_to(root)
    return SKIPPED.isdisjoint(inside.parts[:-1]) and not path.name.startswith("test_") and path.name != "conftest.py"


def _dotted(package: str, root: Path, path: Path) -> str:
    """`numpy.linalg` of numpy/linalg/__init__.py, `numpy.linalg._linalg` of numpy/linalg/_linalg.py."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))


# ---- tandem.data.sources.pydocs
QUERY_WORDS = range(3, 31)
PASSAGE_WORDS = 12  # at least so many words of two or more letters
ASCII_SHARE = 0.95  # of a passage's characters; a query must be all ASCII
WORD = re.compile(r"[A-Za-z]{2,}")
# "axis (int): …" documents a parameter, "See foo" and "Deprecated" nothing at all.
PARAMETER = re.compile(r"^[\w\s,*/]+(\s\([^)]*\)+)?\s*:|^\w+\s+\(.*\)\)?:")
EMPTY_TALK = re.compile(
    r"deprecated|see |test |this (function|method|class) is deprecated|alias |same as|todo|overrid|internal|helper",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Pair:
    """A query and the passage that answers it."""

    query: str
    passage: str


def pair_of(documented: Documented, longest: int | None) -> Pair | None:
    """The pair of a documented object, or None where a filter drops it.

    Args:
        documented: the object's name and docstring.
        longest: most words of a passage, the rest is cut off; None for no limit.
    """
    parts = summary_and_body(documented.docstring)
    if parts is None or not is_query(parts[0]):
        return None
    query, body = parts
    if not body or sum(map(str.isascii, body)) < ASCII_SHARE * len(body):
        return None
    body = SPACE.sub(" ", masked(body, documented.name)).replace(query, " ").strip()
    if len(WORD.findall(body)) < PASSAGE_WORDS:
        return None
    return Pair(query, " ".join(body.split()[:longest]))


def is_query(summary: str) -> bool:
    """Whether a summary is a sentence one could search with."""
    return (
        len(summary.split()) in QUERY_WORDS
        and summary.isascii()
        and not PARAMETER.match(summary)
        and not EMPTY_TALK.match(summary)
    )


def masked(body: str, name: str) -> str:
    """A passage without the object's own name; names of up to two letters stay."""
    if len(name.strip("_")) <= 2:
        return body
    return re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", " ", body)


def normalised(text: str) -> str:
    """Lower-case letters and digits, everything else a blank: what makes two texts the same."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


# ---- tandem.data.sources.pydocs
class Collected:
    """Passages, queries and which answers which; of equal ones the first counts.

    Attributes:
        passages: passage id → (module, text).
        queries: query id → (normalised text, text).
        answers: (query id, passage id).
        pairs: how many pairs were added.
    """

    def __init__(self) -> None:
        self.passages: dict[str, tuple[str, str]] = {}
        self.queries: dict[str, tuple[str, str]] = {}
        self.answers: set[tuple[str, str]] = set()
        self.pairs = 0

    def add(self, module: str, pairs: list[Pair]) -> None:
        """Add the pairs of a module."""
        for pair in pairs:
            normal = normalised(pair.query)
            query_id, doc_id = f"q{short_hash(normal)}", short_hash(normalised(pair.passage))
            self.queries.setdefault(query_id, (normal, pair.query))
            self.passages.setdefault(doc_id, (module, pair.passage))
            self.answers.add((query_id, doc_id))
        self.pairs += len(pairs)


def short_hash(text: str) -> str:
    """First 10 hex digits of the sha1 of a text."""
    return hashlib.sha1(text.encode()).hexdigest()[:10]


def split_of(normal_query: str) -> str:
    """8 % of the queries are test, 4 % dev, the others train: the first 32 bits of their sha1, modulo 100."""
    bucket = int(hashlib.sha1(normal_query.encode()).hexdigest()[:8], 16) % 100
    return "test" if bucket < 8 else "dev" if bucket < 12 else "train"
