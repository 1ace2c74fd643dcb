"""API documentation of installed packages: real text that every machine has after installation.

The query is the summary line of a function's, class's or method's docstring, the passage is the rest. Nothing is
imported: the docstrings are read from the files. Equal passages are one passage, so that a query may have several.
Ids are hashes of the normalised texts, the split is a hash of the query's, and corpus and queries are sorted by id:
packages of the same versions give the same collection on every machine.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from tandem.cluster.progress import Progress
from tandem.data.sources import Judgement, Passage, Query, Source
from tandem.data.sources.pydocs.collect import Collected, split_of
from tandem.data.sources.pydocs.docstrings import docstrings
from tandem.data.sources.pydocs.pairs import Pair, pair_of
from tandem.data.sources.pydocs.walk import Module, find_modules
from tandem.errors import UserError
from tandem.store.job import Job

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
