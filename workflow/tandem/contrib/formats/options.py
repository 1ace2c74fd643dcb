"""Datasets in further formats: the keys of each source's entries."""

from collections.abc import Sequence
from itertools import filterfalse
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tandem.config.base import Count, Distinct, Items, Names, problem
from tandem.config.datasets import (
    UNLABELLED,
    Dataset,
    Derived,
    HashSplits,
    Inheriting,
    OfSearched,
    Published,
    QueriesRef,
    SplitsOf,
)
from tandem.config.references import DatasetRef, Reference
from tandem.data.reading import is_leftover
from tandem.extras.copied_splits import CopiesSplits
from tandem.extras.split_names import group_qrels

QRELS_FILES = "qrels/*"  # in BEIR's layout
UNLABELLED_FILE = "unlabelled.query.txt"


def _check_pattern(corpus: str | None) -> str | None:
    if corpus and "*" in corpus and (corpus.startswith("/") or "**" in corpus):
        raise problem(
            f" is {corpus}; of a pattern each `*` is a part of one name, in a folder below `path`"
        )
    return corpus


def find_judged_splits(folder: Path) -> set[str]:
    """Return the splits that a folder in BEIR's layout has judgements of."""
    paths = filterfalse(is_leftover, sorted(folder.glob(QRELS_FILES)))
    return set(group_qrels(filter(Path.is_file, paths)))


class WithDomains(Dataset):
    """A source whose passages may have domains, in a file of their own."""

    domains: str | None = Field(
        None, description="passages' domains: .tsv (id, domain), .jsonl, .parquet"
    )
    domain_fields: tuple[str, str] | None = Field(
        None,
        strict=False,
        description="columns or fields with id and domain; null: an id's usual names, domain",
    )


class Beir(WithDomains):
    """A folder in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/."""

    requires = ("corpus.jsonl", "queries.jsonl")
    reads, shared_from = (*requires, "answers.jsonl", QRELS_FILES), 0
    file_keys = ("domains",)
    source: Literal["beir"]

    def find_splits(self, folder: Path) -> set[str] | None:
        """Return the splits that the folder has judgements of."""
        return find_judged_splits(folder)


class Pair(Dataset):
    """The queries of one dataset over the passages of another."""

    reads = Beir.reads[1:]  # without a corpus
    corpus_key = "corpus_of"
    source: Literal["pair"]
    corpus_of: Annotated[str, Reference("dataset", "corpus")] = Field(
        description="the dataset whose passages are searched"
    )
    queries_of: QueriesRef | None = Field(
        None, description="dataset of the queries; null: `path` has them and their labels"
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return the splits of the queries' dataset."""
        return splits_of(self.queries_of) if self.queries_of else set()

    def find_splits(self, folder: Path) -> set[str] | None:
        """Return the splits that the folder has judgements of."""
        return find_judged_splits(folder)


class Files(WithDomains):
    """Files of common formats."""

    file_keys, shared_from = ("corpus", "queries", "qrels", "answers", "domains"), 0
    source: Literal["files"]
    corpus: Annotated[str | None, AfterValidator(_check_pattern)] = Field(
        None,
        description="passages: .tsv or .csv (id, [title,] text), .jsonl, .json, .parquet, .trec",
    )
    queries: dict[str, str] | None = Field(
        None,
        description="split → file: .tsv or .csv (id, text), .jsonl, .json, .parquet, TREC topics",
    )
    qrels: dict[str, str] | None = Field(
        None, description="split → TREC file, or qid, docid[, rel] by tabs or in .csv"
    )
    answers: str | None = Field(
        None, description=".jsonl (_id, answers), .tsv or .csv (id, answer, …)"
    )

    @model_validator(mode="after")
    def _check_splits(self) -> Self:
        queries, qrels = set(self.queries or ()), set(self.qrels or ())
        if queries - qrels and qrels - queries:
            odd, left = min(qrels - queries), min(queries - qrels)
            raise problem(
                f".qrels.{odd}: queries has no such split, and {left} has no qrels; name both alike"
            )
        return self


class IrDatasets(Published):
    """A collection of the package ir_datasets."""

    # with fewer documents, reading is faster than building ir_datasets' document store
    reads_files, shared_from = False, 1 << 25
    source: Literal["ir_datasets"]
    id: str | None = Field(None, description="id of the collection with the passages")
    splits: dict[str, Names] | None = Field(
        None, description="split → ids; absent: those that the package's usual names suggest"
    )


class Dpr(Published):
    """DPR's files."""

    file_keys, shared_from = ("corpus", "questions"), 0
    source: Literal["dpr"]
    corpus: str = Field("psgs_w100.tsv", description="file of the passages")
    questions: dict[str, str] | None = Field(
        None, description="split → .qa.csv or biencoder .json file"
    )


class CMedQA2(Published):
    """Chinese medical questions and answers."""

    reads = (
        "question.csv",
        "question.zip",
        "answer.csv",
        "answer.zip",
        "*_candidates.txt",
        "*_candidates.zip",
    )
    always_has = ("train", "dev", "test")
    source: Literal["cmedqa2"]


class RocketQATsv(Published):
    """RocketQA's training files."""

    file_keys = ("dual", "cross")
    always_has = ("train",)
    source: Literal["rocketqa_tsv"]
    dual: str | None = Field(
        None, description="dual encoder's: query, title, positive, title, negative, 0"
    )
    cross: str | None = Field(None, description="cross-encoder's: query, title, text, label")


class Lotte(Published):
    """LoTTE: one domain and half, such as `writing/test`; the splits are `search` and `forum`."""

    reads, shared_from = ("collection.tsv", "qas.*.jsonl"), 0
    requires = ("collection.tsv",)
    source: Literal["lotte"]


class TrainingLists(Dataset):
    """Only training files, with a query, its positives and its negatives each: FlagEmbedding's, Tevatron's, DPR's."""

    file_keys = ("lists", "corpus")
    source: Literal["training_lists"]
    lists: dict[str, Names] | None = Field(None, description="split → .jsonl or .json files")
    corpus: str | None = Field(
        None, description="file of passages with the lists' ids; null: the passages in the lists"
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return the splits that have lists."""
        return set(self.lists or ())


class Squad(Published):
    """SQuAD's JSON format: paragraphs are passages, questions queries."""

    file_keys = ("files_of", "queries_of")
    source: Literal["squad"]
    files_of: dict[str, str] | None = Field(None, description="split → JSON file in SQuAD's format")
    queries_of: dict[str, str] | None = Field(
        None, description="split → file whose questions replace equal ids'"
    )


class Kilt(Published):
    """KILT's files: a snapshot of Wikipedia, and datasets with the pages that answer."""

    file_keys = ("corpus", "questions")
    source: Literal["kilt"]
    corpus: str = Field("kilt_knowledgesource.json", description="file of the pages")
    questions: dict[str, str] | None = Field(
        None, description="split → file of a dataset, such as nq-dev-kilt.jsonl"
    )
    unit: Literal["page", "paragraph"] = Field("page", description="what a passage is")


class EntityQuestions(Published):
    """EntityQuestions over DPR's passages."""

    reads, file_keys, shared_from = ("dataset/*/P*.json",), ("corpus",), 0
    always_has = ("train", "dev", "test")
    source: Literal["entity_questions"]
    corpus: str = Field("psgs_w100.tsv", description="file of the passages")


class DuReader2(Published):
    """DuReader 2.0's raw files, from which DuReader-retrieval was built."""

    file_keys = ("splits",)
    source: Literal["dureader2"]
    splits: dict[str, Items[str]] | None = Field(None, description="split → raw files")
    unit: Literal["characters", "words"] = Field(
        "characters", description="tokens of the span-level F1"
    )
    threshold: float = Field(0.5, gt=0, le=1, description="a passage is positive from this F1 on")
    passage_characters: int = Field(256, ge=1, description="length of a passage")


Language = Annotated[str, Field(pattern="^[a-z]{2,3}(_[A-Z]{2})?$")]  # in apt's form


def _below(pattern: str) -> str:
    if pattern.startswith("/") or "**" in pattern:
        raise problem(
            f" is {pattern}; a pattern of names below `path` is needed, each `*` a part of one name"
        )
    return pattern


# plain or packed
_LISTS = ("Packages", "Translation-en", "Translation-{descriptions}", "Translation-{synopses}")


class Deb822(Dataset):
    """apt's lists of packages: descriptions are passages, synopses queries."""

    reads = (*(f"{{lists}}{name}" for name in _LISTS), *(f"{{lists}}{name}.*" for name in _LISTS))
    always_has = ("train", "dev", "test")
    source: Literal["deb822"]
    lists: Annotated[str, AfterValidator(_below)] = Field(
        "*", description="pattern of the part of their names before `Packages` and `Translation-xx`"
    )
    descriptions: Language = Field("en", description="language of the passages")
    synopses: Language = Field("en", description="language of the queries")
    hash_splits: HashSplits | None = Field(
        None, description="by the sha256 of a package's source; null: 10-15 is dev, 0-10 test"
    )


def _rising(bounds: tuple[int, ...]) -> tuple[int, ...]:
    if list(bounds) != sorted(set(bounds)):
        raise problem(f" is {[*bounds]}; allowed: whole numbers that rise")
    return bounds


def position_names(bounds: Sequence[int]) -> list[str]:
    """Return the names of the ranges of positions with these last positions; the last range has no end.

    >>> position_names([1, 4])
    ['p1', 'p2to4', 'p5on']
    """
    if not bounds:
        return []
    starts = [1, *(bound + 1 for bound in bounds)]
    within = [
        f"p{start}" if start == end else f"p{start}to{end}"
        for start, end in zip(starts, bounds, strict=False)
    ]
    return [*within, f"p{starts[-1]}on"]


class Joined(CopiesSplits):
    """Long documents, each joined from neighbouring passages of a dataset with the same title."""

    source: Literal["joined"]
    of: DatasetRef = Field(
        description="the dataset; labels of passages become those of their documents"
    )
    most: int | None = Field(
        None, ge=2, description="passages of a document, at most; null: all with the title"
    )
    positions: Annotated[Items[Count], AfterValidator(_rising)] = Field(
        (),
        description="last positions of ranges: [1, 4] adds splits <split>_p1, _p2to4 and _p5on of the queries whose "
        "relevant passage is at such a position in its document",
    )
    split: str = Field("test", description="split whose queries `positions` copies")

    def map_copies(self) -> dict[str, str]:
        """Return the copies by position."""
        return {f"{self.split}_{name}": self.split for name in position_names(self.positions)}


class Domains(Inheriting):
    """The passages of some domains of a dataset, and the queries with a relevant passage among them."""

    source: Literal["domains"]
    of: DatasetRef = Field(description="the dataset, whose passages have domains")
    only: Distinct[str] | None = Field(None, description="domains whose passages are kept")
    without: Distinct[str] | None = Field(None, description="or domains whose passages are removed")

    @model_validator(mode="after")
    def _names_domains(self) -> Self:
        if (self.only is None) == (self.without is None):
            raise problem(": one of only and without is needed")
        return self


class CroppedSentences(OfSearched):
    """Sentences of passages as training queries, each with its passage as positive (DRAGON)."""

    always_has = ("train",)
    corpus_key = "of"
    choosing_keys = ("most",)
    source: Literal["cropped_sentences"]
    queries_of: QueriesRef | None = Field(
        None,
        description="a dataset over the same passages, whose training queries are added; null: none",
    )
    most: int | None = Field(
        None,
        ge=1,
        description="number of sentences to crop, at most, chosen by a hash; null: every sentence",
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return nothing: the dataset's queries are not inherited."""
        return set()


class Unlabelled(Inheriting):
    """A dataset with further queries that have no labels, as its split `unlabelled`."""

    reads = (UNLABELLED_FILE,)
    corpus_key = collection_key = "of"
    choosing_keys = ("share",)
    source: Literal["unlabelled"]
    of: DatasetRef = Field(
        description="the dataset; further queries are from `queries_of`, `share`, or unlabelled.query.txt in `path`"
    )
    queries_of: QueriesRef | None = Field(
        None, description="another dataset, whose training queries are added"
    )
    share: float | None = Field(
        None, gt=0, lt=1, description="share of the training queries of `of` that lose their labels"
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return the splits of the dataset, and that of the further queries."""
        labelled = splits_of(self.of)
        return labelled and labelled | {UNLABELLED}


def _check_several(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) < 2:
        raise problem(" names one dataset; allowed: two or more")
    return names


class UnionDataset(Derived):
    """Several datasets as one, with all their passages, queries and labels."""

    source: Literal["union"]
    of: Annotated[Distinct[DatasetRef], AfterValidator(_check_several)] = Field(
        description="the datasets; `<dataset>.` precedes their ids"
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return the splits of all its datasets; None if those of one are unknown."""
        every: set[str] = set()
        for name in self.of:
            splits = splits_of(name)
            if splits is None:
                return None
            every |= splits
        return every
