"""apt's lists of packages: a package's long description is a passage, and its synopsis (the line before it) a query.

The lists are those of an apt repository's index, `…_Packages` and `…_Translation-<language>`, whose records are deb822:
fields as in RFC 822, with a blank line between records. `Packages` has a package's source and section. The
translations, including the one into English, have the descriptions, by package and the md5 of the English description.

A release's descriptions are some 30 MB and are held in memory: equal ones become one passage, in the order of names.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tandem.config.datasets import UNSPACED, HashSplits
from tandem.contrib.formats.options import Deb822
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import iterate_lines
from tandem.data.sources import (
    DatasetJob,
    Domain,
    Judgement,
    Listing,
    Passage,
    Query,
    Source,
    dataset_format,
)
from tandem.data.splits import USUAL_SPLITS
from tandem.errors import UserError
from tandem.stages.base import Json

# suffixes that apt and archives give to packed lists; .gz is not part of them
_PACKED_LIST_ENDS = (".xz", ".bz2", ".lz4", ".zst")
_ENGLISH = "en"
_DESCRIPTION_WORDS = 5  # shorter descriptions say nothing
_SYNOPSIS_WORDS = 2  # in English; a package with a shorter one has no passage
_SYNOPSIS_CHARACTERS = 6  # shorter translations are not queries
# synopses with more relevant passages, such as "transitional package", are not queries
_MOST_RELEVANT = 10
_BLANK_LINE = "."  # represents an empty line of a description


class Package(NamedTuple):
    """A package as `Packages` describes it."""

    source: str  # several packages may be built from one source
    section: str
    md5: str  # of its English description
    description: str  # whole in lists without translations, else only the synopsis


class Synopsis(NamedTuple):
    """A query."""

    package: str  # the first package by name that has this synopsis
    split: str
    passages: list[str]  # the relevant passages, in the order of their packages


@dataset_format("deb822")
class Deb822Source(Source):
    """Reads the lists in `path`.

    Passages are the `descriptions` of one language, queries the `synopses` of another or the same. The sha256 of the
    name of its package's source decides a query's split; if it has several sources, the smallest hash does. Thereby the
    near-copies among the descriptions of one source stay in one split. Translated queries have the English one's split.
    """

    def __init__(self, job: DatasetJob, entry: Deb822) -> None:
        super().__init__(job, entry)
        self._splits = entry.hash_splits or HashSplits(dev=("10-15",), test=("0-10",))
        self._descriptions = entry.descriptions
        self._synopses = entry.synopses
        files = DatasetFiles(job)
        self._place = files.place
        self._packages = find_lists(files, f"{entry.lists}Packages")
        if not self._packages:
            raise UserError(
                f"{files.place}: holds no {entry.lists}Packages, packed or plain; apt-get update brings it"
            )
        self._translations: dict[str, list[Path]] = {}
        for language in dict.fromkeys((_ENGLISH, entry.descriptions, entry.synopses)):
            name = f"{entry.lists}Translation-{language}"
            self._translations[language] = find_lists(files, name)
            if language != _ENGLISH and not self._translations[language]:
                how = f"apt-get update -o Acquire::Languages={_ENGLISH},{language} brings it"
                raise UserError(f"{files.place}: holds no {name}, packed or plain; {how}")
        place = self._packages[0] if len(self._packages) == 1 else files.place
        self.places = {"corpus": f"{place} package", "queries": f"{place} synopsis"}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        return (
            {}
            if listing.matching("*Packages", *(f"*Packages{end}" for end in _PACKED_LIST_ENDS))
            else None
        )

    def read_corpus(self) -> Iterator[Passage]:
        """Yield each description once; its id is the name of the first package that has it."""
        return ((name, "", text) for text, name in self._collection.passages.items())

    def read_queries(self) -> Iterator[Query]:
        return ((f"q-{query.package}", text, query.split) for text, query in self._queries.items())

    def read_qrels(self) -> Iterator[Judgement]:
        for query in self._queries.values():
            for passage in query.passages:
                yield f"q-{query.package}", passage, 1, query.split

    def read_domains(self) -> Iterator[Domain]:
        """Yield the section of the package that each passage is named after, if it has one."""
        for name in self._collection.passages.values():
            if section := self._collection.packages[name].section:
                yield name, section

    @cached_property
    def _collection(self) -> "Descriptions":
        packages = read_packages(self._packages)
        english = read_translation(self._translations[_ENGLISH], _ENGLISH)
        texts = english
        if self._descriptions != _ENGLISH:
            texts = read_translation(self._translations[self._descriptions], self._descriptions)
        collection = Descriptions(packages, {}, {}, {})
        counts: Counter[str] = Counter()
        for name, package in sorted(packages.items()):
            of_english = english.get((name, package.md5), package.description)
            description = of_english if texts is english else texts.get((name, package.md5), "")
            synopsis = get_synopsis(of_english)
            text = get_description(description)
            if (
                len(synopsis.split()) < _SYNOPSIS_WORDS
                or count_description_words(text, self._descriptions) < _DESCRIPTION_WORDS
            ):
                counts["short_or_absent"] += 1
                continue
            passage = collection.passages.setdefault(text, name)
            counts["of_equal_description"] += passage != name
            collection.passage_of[name], collection.synopses[name] = passage, synopsis
        if not collection.passages:
            needed = f"apt-get update -o Acquire::Languages={self._descriptions} brings them"
            raise UserError(f"{self._place}: no package of the lists has a description; {needed}")
        self.facts |= {"packages": len(packages), **counts}
        return collection

    @cached_property
    def _queries(self) -> dict[str, Synopsis]:
        """Return text → query, in the order of the first packages that have the texts."""
        english = self._english_queries()
        return english if self._synopses == _ENGLISH else self._translated_queries(english)

    def _english_queries(self) -> dict[str, Synopsis]:
        collection = self._collection
        packages: dict[str, list[str]] = {}
        for name, synopsis in collection.synopses.items():
            packages.setdefault(synopsis, []).append(name)
        queries: dict[str, Synopsis] = {}
        for synopsis, names in packages.items():
            passages = list(dict.fromkeys(collection.passage_of[name] for name in names))
            if len(passages) <= _MOST_RELEVANT:
                source = min(collection.packages[name].source for name in names)
                queries[synopsis] = Synopsis(
                    names[0], self._splits.of(hash_source(source)), passages
                )
        self.facts["of_many_passages"] = len(packages) - len(queries)
        return queries

    def _translated_queries(self, english: dict[str, Synopsis]) -> dict[str, Synopsis]:
        """Return the translations of English queries: those of the packages whose names are passages' ids."""
        collection = self._collection
        translations = read_translation(self._translations[self._synopses], self._synopses)
        packages: dict[str, list[str]] = {}
        self.facts["untranslated"] = 0
        for name in collection.passages.values():
            original = collection.synopses[name]
            text = get_synopsis(translations.get((name, collection.packages[name].md5), ""))
            if len(text) < _SYNOPSIS_CHARACTERS or text.casefold() == original.casefold():
                self.facts["untranslated"] += 1
            elif original in english:
                packages.setdefault(text, []).append(name)
        queries: dict[str, Synopsis] = {}
        for text, names in packages.items():
            if len(names) <= _MOST_RELEVANT:
                splits = (english[collection.synopses[name]].split for name in names)
                # One text may translate several queries: if any of these is in train, the text is not in a test split.
                queries[text] = Synopsis(names[0], min(splits, key=USUAL_SPLITS.index), names)
        return queries


class Descriptions(NamedTuple):
    """Packages and their descriptions, in the order of names."""

    packages: dict[str, Package]
    passages: dict[str, str]  # text → the package whose name is its id
    passage_of: dict[str, str]  # package → the package whose name is the id of its passage
    synopses: dict[str, str]  # package → its English synopsis


def find_lists(files: DatasetFiles, name: str) -> list[Path]:
    """Return the lists whose names match a pattern, packed or not, sorted by name."""
    return sorted({*files.glob(name, required=False), *files.glob(f"{name}.*", required=False)})


def read_packages(paths: list[Path]) -> dict[str, Package]:
    """Return the packages of some lists by name; if a package occurs several times, the first counts."""
    packages: dict[str, Package] = {}
    for path in paths:
        for where, record in read_deb822(path):
            name = require(where, record, "package")
            if name.split() != [name]:
                raise UserError(f"{where}: package {name!r}; a name without white space is needed")
            source = record.get("source", "").split() or [name]  # a version may follow
            # a section in another archive area is `contrib/games`
            section = record.get("section", "").rpartition("/")[2]
            values = (record.get("description-md5", ""), record.get("description", ""))
            packages.setdefault(name, Package(source[0], section, *values))
    return packages


def read_translation(paths: list[Path], language: str) -> dict[tuple[str, str], str]:
    """Return the descriptions of some lists by package and md5 of the English one."""
    descriptions: dict[tuple[str, str], str] = {}
    for path in paths:
        for where, record in read_deb822(path):
            key = require(where, record, "package"), require(where, record, "description-md5")
            descriptions.setdefault(key, require(where, record, f"description-{language.lower()}"))
    return descriptions


def read_deb822(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (`file:line` of its first field, field in lower case → value) of each record of a deb822 file.

    Continuation lines of a value follow it after a line feed, without their leading white space.
    """
    start = 0
    record = dict[str, str]()
    field = ""
    for number, line in iterate_lines(path):
        # a line may consist of a no-break space, and then continues a field
        if not line.strip(" \t"):
            if record:
                yield f"{path}:{start}", record
            record = {}
            field = ""
        elif line[0] in " \t":
            if not field:
                raise UserError(
                    f"{path}:{number}: a line that continues nothing; a field, `Name: value`, is needed"
                )
            record[field] += f"\n{line.strip()}"
        else:
            name, colon, value = line.partition(":")
            if not colon or " " in name:
                raise UserError(f"{path}:{number}: no field; a line of deb822 is `Name: value`")
            start = start if record else number
            field = name.lower()
            record[field] = value.strip()
    if record:
        yield f"{path}:{start}", record


def require(where: str, record: dict[str, str], field: str) -> str:
    """Return a field of a record; a `UserError` if it is missing."""
    if not record.get(field):
        raise UserError(f"{where}: a record without {field}; a list of apt's is needed")
    return record[field]


def get_synopsis(description: str) -> str:
    """Return a description's first line."""
    return " ".join(description.partition("\n")[0].split())


def get_description(description: str) -> str:
    """Return what follows a description's first line, as one line."""
    paragraphs = (line for line in description.split("\n")[1:] if line != _BLANK_LINE)
    return " ".join(" ".join(paragraphs).split())


def count_description_words(text: str, language: str) -> int:
    """Return the number of a text's words; in a language written without spaces, two characters count as one."""
    is_unspaced = language.partition("_")[0] in UNSPACED
    return len(text) // 2 if is_unspaced else len(text.split())


def hash_source(source: str) -> int:
    """Return the number that decides the split of a source's packages: the sha256 of its name."""
    return int(hashlib.sha256(source.encode()).hexdigest(), 16)
