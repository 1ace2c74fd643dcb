"""Where datasets come from: a class per format, and one per way to derive a dataset from others.

A source streams the corpus, the queries and the qrels in an order that is the same on every machine. It may hold all
queries and qrels in memory, but never the whole corpus. To add a format, write a module of this package with a subclass
of `Source` under `@dataset_format("<name>")`: nothing else lists formats. `entry` of its `__init__` is annotated with
the model of the format's entries. The models of the formats here stand in `tandem.config.datasets`, so that planning
imports none of these modules.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

from tandem.config import datasets
from tandem.config.parsing import read
from tandem.config.references import parameters_of
from tandem.data.reading import PACKED_ENDS, PACKING_ERRORS, open_bytes, strip_packing
from tandem.errors import UserError
from tandem.registry import Registry
from tandem.stages.base import Json
from tandem.stages.data import DatasetParams
from tandem.store.job import Job

Passage = tuple[str, str, str]  # document id, title, text
# query id, text, split; the split is empty where only qrels or answers decide it
Query = tuple[str, str, str]
Judgement = tuple[str, str, int, str]  # query id, document id, relevance, split
Answers = tuple[str, list[str]]  # query id, the texts that count as an answer
Domain = tuple[str, str]  # document id, domain
# query id, document id, label, its teacher's score if there is one
Listed = tuple[str, str, int, float | None]
DatasetJob = Job[DatasetParams]
_DEEPEST_FOLDERS = 3  # folders of a listing below the one that is named
_MOST_FILES = 10_000  # files that are looked at
_HEAD_BYTES = 1 << 16  # bytes of a file's beginning


@dataclass(frozen=True)
class Listing:
    """Files below a folder: their paths relative to it, without the end that says how they are packed.

    Attributes:
        place: what a dataset's `path` is: the folder, or the archive that has been unpacked there.
    """

    folder: Path
    names: tuple[str, ...]
    place: Path

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Self:
        """Return the files of one folder or archive, or some files by their names; not what editors and systems leave.

        Raises:
            UserError: nothing is there, or several folders are named.
        """
        # Here: it brings what downloads, and the formats alone need none of that.
        from tandem.data.dataset_files import drop_leftovers, is_archive, open_folder

        for path in paths:
            if not path.exists():
                raise UserError(f"--data {path}: no such file or folder")
            if path.is_dir() and len(paths) > 1:
                raise UserError(
                    f"--data {path}: a folder beside other data; one folder, or only files, are allowed"
                )
        place = folder = paths[0]
        files = list(paths)
        if len(paths) == 1 and is_archive(place):
            folder = open_folder(place)
        if folder.is_dir():
            # `*`, `*/*`, … instead of `**`: the files of upper folders come first.
            found = chain.from_iterable(
                folder.glob("*/" * depth + "*") for depth in range(_DEEPEST_FOLDERS)
            )
            files = drop_leftovers(islice(filter(Path.is_file, found), _MOST_FILES))
        else:
            if any(path.is_absolute() for path in files):
                files = [path.absolute() for path in files]
            place = folder = Path(os.path.commonpath([path.parent for path in files]))
        names = (strip_packing(path.relative_to(folder).as_posix()) for path in files)
        return cls(folder, tuple(sorted(set(names))), place)

    def matching(self, *patterns: str) -> list[str]:
        """Return the names that fit a pattern; `*` does not cross `/`."""
        names = []
        for name in self.names:
            depth = name.count("/")
            if any(
                depth == pattern.count("/") and fnmatchcase(name, pattern) for pattern in patterns
            ):
                names.append(name)
        return names

    def path(self, name: str) -> Path:
        """Return the file of a name, packed or not."""
        paths = (self.folder / f"{name}{end}" for end in ("", *PACKED_ENDS))
        return next((path for path in paths if path.is_file()), self.folder / name)

    def head(self, name: str) -> bytes:
        """Return the beginning of a file, unpacked; empty where it cannot be read."""
        try:
            with open_bytes(self.path(name)) as file:
                return file.read(_HEAD_BYTES)
        except (*PACKING_ERRORS, UserError):
            return b""


class Source(ABC):
    """Read the parts of a dataset in its format.

    Attributes:
        places: names of the corpus and the queries in errors: `corpus` and `queries` → a file or a phrase; a row number
            is added, counted from 1, which is the line number where the format has one record a line.
        facts: counts worth keeping in the manifest; complete once everything has been read.
        warnings: lines about what was read that the stage's warnings repeat; complete likewise.
        literal_matches: whether relevance `LITERAL_MATCH` in its judgements is this project's mark, not a grade.
    """

    literal_matches: bool = False

    def __init__(self, job: DatasetJob, entry: Any) -> None:
        """Check the entry's own keys and the files; nothing that takes long."""
        self.places: dict[str, str] = {}
        self.facts: dict[str, Any] = {}
        self.warnings: list[str] = []

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        """Return the keys of an entry that reads these files, beside `source` and `path`; else None."""
        return None

    @abstractmethod
    def read_corpus(self) -> Iterator[Passage]:
        """Yield (document id, title, text) of every passage."""

    def count(self) -> int | None:
        """Return the number of passages where `read_corpus_from` is fast, else None.

        Jobs can share reading the corpus then.
        """
        return None

    def read_corpus_from(self, row: int) -> Iterator[Passage]:
        """Yield the corpus without the passages before a row; used where `count` tells a number."""
        return islice(self.read_corpus(), row, None)

    @abstractmethod
    def read_queries(self) -> Iterator[Query]:
        """Yield (query id, text, split) of every query; the split is empty where only the qrels decide it."""

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield (query id, document id, relevance, split) of every judgement; empty where answers decide relevance."""
        yield from ()

    def locate_judgement(self, query: str, document: str) -> str:
        """Return where the last judgement of a pair stands, for errors.

        This is `file:line` where judgements are lines of a file.
        """
        return "qrels"

    def read_answers(self) -> Iterator[Answers]:
        """Yield (query id, answers) of every question that has some."""
        yield from ()

    def read_domains(self) -> Iterator[Domain]:
        """Yield (document id, domain) of every passage that has one, in any order."""
        yield from ()

    def read_lists(self) -> Iterator[Listed]:
        """Yield (query id, document id, label, score) of the format's own training lists; label > 0 is positive.

        In the format's order; the rows of a query stand together. A positive is also a judgement of `qrels`.
        """
        yield from ()


dataset_format: Registry[type[Source]] = datasets.dataset_format


def open_source(job: DatasetJob) -> Source:
    """Return the source of a dataset, its own keys validated.

    Raises:
        UserError: an unknown source, an unknown or wrong key, or a missing file.
    """
    name = job.params.source
    values = job.params.model_extra or {}
    if name not in dataset_format:
        raise UserError(
            f"source: {name!r} is unknown; allowed are {', '.join(sorted(dataset_format))}"
        )
    source = dataset_format[name]
    model = parameters_of(datasets.entry_model(source))
    return source(job, read(model, {"source": name, **values}))
