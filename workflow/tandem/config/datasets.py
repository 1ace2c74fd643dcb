"""Datasets: the keys of every dataset, and those of each source."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from tandem.config.base import Analyzer, Distinct, Items, Section, by_value
from tandem.config.references import DatasetRef, NoParameter, Note, Reference
from tandem.errors import UserError
from tandem.plugins import Declarations
from tandem.registry import Registry

UNLABELLED = "unlabelled"  # the split of queries without labels
SplitsOf = Callable[[str], set[str] | None]  # dataset → its splits, None where they are unknown
UNSPACED = ("zh", "ja", "th", "lo", "km", "my")  # languages written without spaces
Split = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")]
AnswerMatch = Literal["string", "regex", "kilt"]
Normalize = Literal["nfc", "none"]


class File(Section):
    """Where a file is downloaded from."""

    url: str = Field(pattern="^(https?|file)://", description="address")
    sha256: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="of the download itself, as are md5 and bytes"
    )
    md5: str | None = Field(
        None, pattern="^[0-9a-f]{32}$", description="if its publisher states no sha256"
    )
    bytes: int | None = Field(None, ge=0, description="size")
    member: str | None = Field(
        None, description="the file (or folder, ending in `/`) inside the archive of `url`"
    )


class MtebTask(Section):
    """Which task of MTEB a dataset is, for `tandem export --mteb`."""

    task: str = Field(
        pattern=r"^[\w.-]+$", description="its name there, such as NanoSciFactRetrieval"
    )
    split: str = Field("test", description="its name for the split that is reported")
    subset: str = Field("default", description="its name for the subset")
    main_score: str = Field("ndcg_at_10", description="its name for the score that counts")
    languages: Items[str] | None = Field(
        None, min_length=1, description="such as deu-Latn; null: eng-Latn, of `en`"
    )


class Dataset(Section):
    """An entry of `datasets`: the keys of every source."""

    reads_files: ClassVar[bool] = True  # whether the source reads files, from `path` or downloaded
    # files in `path` that are read, packed or not; {key} is the entry's value
    reads: ClassVar[tuple[str, ...]] = ()
    # files without which `path` is refused
    requires: ClassVar[tuple[str, ...]] = ()
    # keys of the entry that name such files; without these and `reads`, all files count
    file_keys: ClassVar[tuple[str, ...]] = ()
    always_has: ClassVar[tuple[str, ...]] = ()  # its splits, if they are always the same
    # number of passages from which on jobs share the reading of them (`Source.count`)
    shared_from: ClassVar[int | None] = None
    # the key that names the dataset whose passages it has, in their order
    corpus_key: ClassVar[str | None] = None
    # the key that names the dataset whose place it takes in a paper's table
    collection_key: ClassVar[str | None] = None
    # keys that choose training queries by the hash of their ids
    choosing_keys: ClassVar[tuple[str, ...]] = ()

    source: str = Field(
        description="where the collection comes from; decides which further keys there are"
    )
    path: Annotated[str | None, NoParameter()] = Field(
        None, description="the folder with the dataset's files; absent: they are downloaded"
    )
    files: Annotated[dict[str, File] | None, NoParameter()] = Field(
        None, description="file name → where it is downloaded from"
    )
    language: Annotated[str, Note()] = Field(
        "en", description="ISO 639-1; decides the analyzer and the unit of lengths"
    )
    analyzer: Annotated[Analyzer, Note()] = Field("default", description="of BM25")
    measures: Annotated[Items[str] | None, Note()] = Field(
        None, min_length=1, description="reported measures; `score.measures` overrides"
    )
    score_split: Annotated[Split | None, Note()] = Field(
        None, description="the split that is reported; null: test, else dev"
    )
    relevance: Annotated[Literal["qrels", "answers"], Note()] = Field(
        "qrels", description="answers: passages with an answer are relevant"
    )
    match: Annotated[AnswerMatch, Note()] = Field(
        "string", description="how an answer is found in a passage"
    )
    ignore_identical_ids: Annotated[bool, Note()] = Field(
        False, description="a result with the query's own id is dropped before scoring"
    )
    normalize: Normalize = Field(
        "nfc", description="Unicode form of passages, queries and answers; none: as they are"
    )
    title: bool | None = Field(None, description="false: titles are left out")
    train_queries: int | None = Field(None, ge=1, description="at most this many training queries")
    dev_queries: int | None = Field(None, ge=1, description="at most this many dev queries")
    test_queries: int | None = Field(None, ge=1, description="at most this many test queries")
    dev_from_train: float | None = Field(
        None, gt=0, lt=1, description="share of train that becomes dev"
    )
    dev_from_train_most: int | None = Field(
        None, ge=1, description="at most this many of them, by a hash of their ids"
    )
    train_from_test: float | None = Field(
        None, gt=0, lt=1, description="share of test that becomes train, by ids"
    )
    near_duplicates: float | None = Field(
        None,
        gt=0,
        le=1,
        description="passages that share so much (Jaccard) with a relevant one are relevant too",
    )
    unknown_documents: Literal["warn", "drop", "error"] | None = Field(
        None, description="labels of absent passages"
    )
    blank_queries: Literal["drop", "error"] | None = Field(
        None, description="what happens to queries without text"
    )
    licence: Annotated[str | None, Note()] = Field(None, description="of the collection")
    description: Annotated[str | None, Note()] = Field(None, description="of the collection")
    homepage: Annotated[str | None, Note()] = Field(None, description="of the collection")
    mteb: Annotated[MtebTask | None, Note()] = Field(None, description="which task of MTEB it is")
    access: Annotated[Literal["download", "licence", "local"], Note()] = Field(
        "download", description="licence: on request"
    )
    where: Annotated[str | None, Note()] = Field(
        None, description="of access licence or local: where to obtain it, what to put in `path`"
    )
    bytes: Annotated[int | None, Note()] = Field(None, ge=0, description="size of the download")
    tokens: Annotated[dict[str, float] | None, Note()] = Field(
        None, description="mean tokens of a passage and a query, for `estimate`"
    )
    counts: Annotated[dict[str, Annotated[int, Field(ge=0)]] | None, Note()] = Field(
        None, description="expected: passages, queries by split, train_qrels, …"
    )
    checksum: Annotated[str | None, NoParameter()] = Field(
        None, description="sha256 of the collection"
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return the splits that follow from those of other datasets, here none; None if these are unknown.

        Args:
            splits_of: returns the splits of another dataset by its name.
        """
        return set()

    def find_splits(self, folder: Path) -> set[str] | None:
        """Return the splits that the names of the files in its folder show, here None."""
        return None


Hundredths = Annotated[str, Field(pattern="^[0-9]{1,2}-([0-9]{1,2}|100)$")]


class HashSplits(Section):
    """Splits by the queries' hashes modulo 100; `8-24` includes 8 and excludes 24."""

    dev: Items[Hundredths] = Field(("8-12",), description="those that are dev")
    test: Items[Hundredths] = Field(("0-8",), description="those that are test")

    def of(self, number: int) -> str:
        """Return the split of a hash."""
        for name, parts in (("test", self.test), ("dev", self.dev)):
            if any(
                int(start) <= number % 100 < int(end)
                for start, _, end in (part.partition("-") for part in parts)
            ):
                return name
        return "train"


class Published(Dataset):
    """A published collection; its texts stay as they are, since others' results are of these texts."""

    normalize: Normalize = Field(
        "none", description="as for every dataset, but its texts stay as they were published"
    )


class PyDocs(Published):
    """Docstrings of installed Python packages."""

    reads_files = False
    always_has = ("train", "dev", "test")
    source: Literal["pydocs"]
    packages: Items[str] | None = Field(None, description="import names")
    heading: Literal["none", "module"] | None = Field(None, description="the passages' titles")
    passage_words: int | None = Field(None, ge=1, description="longer passages are cut")
    hash_splits: HashSplits | None = Field(
        None, description="which queries are dev and test; the others are train"
    )


class RocketQA(Published):
    """RocketQA's corpora."""

    reads = ("para.txt", "para.title.txt", "*.query.txt", "*.answers.txt", "qrels.*.tsv")
    requires = ("para.txt",)
    source: Literal["rocketqa"]


class DuReaderRetrieval(Published):
    """DuReader-retrieval's release."""

    reads = ("passage-collection/*", "dev/dev.json", "train/*.train.tsv")
    requires = ("passage-collection/passage2id.map.json", "dev/dev.json")
    always_has = ("train", "dev")
    source: Literal["dureader_retrieval"]


QueriesRef = Annotated[str, Reference("dataset", "queries")]


class Derived(Dataset):
    """A dataset that is made of others."""

    reads_files = False

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return the splits of the dataset that it is `of`."""
        of: str | None = getattr(self, "of", None)
        return splits_of(of) if of else set()


class Inheriting(Derived):
    """A dataset that takes over keys, such as the language, from the dataset that it is `of` (`INHERITED`)."""

    of: DatasetRef | None = Field(description="the dataset that it is made of")

    def complete(self, name: str, update: dict[str, Any]) -> Self:
        """Return the entry of a name with the values that it takes over; a `UserError` if they do not fit together."""
        return self.model_copy(update=update)


class CutDocuments(Inheriting):
    """A dataset of pieces of another's documents, `<document>#<number>`; a package adds its source."""

    of: DatasetRef = Field(
        description="the dataset; runs over the windows are aggregated to it (`aggregations`)"
    )
    factor: Annotated[int, Note(is_inherited=False)] = Field(
        10, ge=1, description="runs over windows go this many times as deep as those over documents"
    )


class OfSearched(Inheriting):
    """A dataset over the passages of another one: the one that it names, else the one that is searched."""

    of: DatasetRef | None = Field(
        None, description="the dataset whose passages it has; null: the one that is searched"
    )


class Group(Derived):
    """Several datasets whose scores are averaged with equal weight; it has no passages."""

    source: Literal["group"]
    of: Distinct[DatasetRef] = Field(description="the datasets")

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return the splits of the first dataset: the others have the same."""
        return splits_of(self.of[0])


# Source → the model of its entries, which planning knows without the classes that read them; packages add theirs.
DATASET_ENTRIES: Declarations[type[Dataset]] = Declarations(
    by_value(
        "source",
        *(PyDocs, RocketQA, DuReaderRetrieval),
        Group,
    ).items()
)
# The classes that read them.
dataset_format: Registry[Any] = Registry("dataset format", "dataset_format", "data.sources")


def register_source(*entries: type[Dataset]) -> None:
    """Add models of entries by their `source`, so that planning does not import the formats that read these.

    Raises:
        UserError: a source has a model already.
    """
    for name, entry in by_value("source", *entries).items():
        if name in DATASET_ENTRIES:
            raise UserError(f"source {name} is registered twice; rename one of them")
        DATASET_ENTRIES[name] = entry


def sources() -> dict[str, type[Dataset]]:
    """Return the model of each source's entries: those above, and the annotations of further formats."""
    further = [name for name in dataset_format if name not in DATASET_ENTRIES]
    return dict(DATASET_ENTRIES) | {name: entry_model(dataset_format[name]) for name in further}


def entry_model(source: type[Any]) -> type[Dataset]:
    """Return the model of a format's entries: the annotation of `entry` in its `__init__`; a `UserError` without it."""
    entry = inspect.signature(source, eval_str=True).parameters.get("entry")
    if entry is None or not (
        isinstance(entry.annotation, type) and issubclass(entry.annotation, Dataset)
    ):
        raise UserError(
            f"dataset format {source.__name__}: annotate `entry` of __init__ with a subclass of Dataset"
        )
    return entry.annotation
