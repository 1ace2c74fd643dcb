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

QRELS_FILES = "qrels/*"  # of BEIR's layout
UNLABELLED_FILE = "unlabelled.query.txt"


def _check_pattern(corpus: str | None) -> str | None:
    if corpus and "*" in corpus and (corpus.startswith("/") or "**" in corpus):
        raise problem(
            f" is {corpus}; of a pattern each `*` is a part of one name, in a folder below `path`"
        )
    return corpus


def find_judged_splits(folder: Path) -> set[str]:
    """Return the splits whose judgements a folder in BEIR's layout has."""
    paths = filterfalse(is_leftover, sorted(folder.glob(QRELS_FILES)))
    return set(group_qrels(filter(Path.is_file, paths)))


class WithDomains(Dataset):
    """A source whose passages may have domains, by a file of their own."""

    domains: str | None = Field(
        None, description="passages' domains: .tsv (id, domain), .jsonl, .parquet"
    )
    domain_fields: tuple[str, str] | None = Field(
        None,
        strict=False,
        description="its columns or fields with id and domain; null: an id's usual ones, domain",
    )


class Beir(WithDomains):
    """A folder as BEIR has it: corpus.jsonl, queries.jsonl, qrels/."""

    requires = ("corpus.jsonl", "queries.jsonl")
    reads, shared_from = (*requires, "answers.jsonl", QRELS_FILES), 0
    file_keys = ("domains",)
    source: Literal["beir"]

    def find_splits(self, folder: Path) -> set[str] | None:
        """Return those whose judgements the folder has."""
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
        """Return those of the queries' dataset."""
        return splits_of(self.queries_of) if self.queries_of else set()

    def find_splits(self, folder: Path) -> set[str] | None:
        """Return those whose judgements the folder has."""
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

    # fewer are read before ir_datasets would have made its document store
    reads_files, shared_from = False, 1 << 25
    source: Literal["ir_datasets"]
    id: str | None = Field(None, description="the id that has the passages")
    splits: dict[str, Names] | None = Field(
        None, description="split → ids; absent: what the package suggests"
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
    """Training files alone, a query with its positives and negatives each: FlagEmbedding's, Tevatron's, DPR's."""

    file_keys = ("lists", "corpus")
    source: Literal["training_lists"]
    lists: dict[str, Names] | None = Field(None, description="split → .jsonl or .json files")
    corpus: str | None = Field(
        None, description="passages by the lists' ids; null: those that the lists hold"
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return those that have lists."""
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
    """KILT's files: a snapshot of Wikipedia, and data sets with the pages that answer."""

    file_keys = ("corpus", "questions")
    source: Literal["kilt"]
    corpus: str = Field("kilt_knowledgesource.json", description="file of the pages")
    questions: dict[str, str] | None = Field(
        None, description="split → file of a data set, such as nq-dev-kilt.jsonl"
    )
    unit: Literal["page", "paragraph"] = Field("page", description="what a passage is")


class EntityQuestions(Published):
    """EntityQuestions over DPR's passages."""

    reads, file_keys, shared_from = ("dataset/*/P*.json",), ("corpus",), 0
    always_has = ("train", "dev", "test")
    source: Literal["entity_questions"]
    corpus: str = Field("psgs_w100.tsv", description="file of the passages")


class DuReader2(Published):
    """DuReader 2.0's raw files, from which DuReader-retrieval was made."""

    file_keys = ("splits",)
    source: Literal["dureader2"]
    splits: dict[str, Items[str]] | None = Field(None, description="split → raw files")
    unit: Literal["characters", "words"] = Field("characters", description="of the span-level F1")
    threshold: float = Field(0.5, gt=0, le=1, description="a passage is positive from this F1 on")
    passage_characters: int = Field(256, ge=1, description="length of a passage")


Language = Annotated[str, Field(pattern="^[a-z]{2,3}(_[A-Z]{2})?$")]  # as apt names it


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
        "*", description="pattern of what their names have before `Packages` and `Translation-xx`"
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
    """Return names of the ranges of positions that some last positions bound, the last range without an end.

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
    """Long documents: neighbouring passages of a dataset with the same title, put together."""

    source: Literal["joined"]
    of: DatasetRef = Field(
        description="the dataset; labels of passages become those of their documents"
    )
    most: int | None = Field(
        None, ge=2, description="passages of a document at most; null: all with the title"
    )
    positions: Annotated[Items[Count], AfterValidator(_rising)] = Field(
        (),
        description="last positions of ranges: [1, 4] adds splits <split>_p1, _p2to4 and _p5on of the queries whose "
        "relevant passage stands there in its document",
    )
    split: str = Field("test", description="of `positions`: whose queries they are")

    def map_copies(self) -> dict[str, str]:
        """Return those by position."""
        return {f"{self.split}_{name}": self.split for name in position_names(self.positions)}


class Domains(Inheriting):
    """The passages of some domains of a dataset, and the queries with a relevant one among them."""

    source: Literal["domains"]
    of: DatasetRef = Field(description="the dataset, whose passages have domains")
    only: Distinct[str] | None = Field(None, description="the domains whose passages stay")
    without: Distinct[str] | None = Field(None, description="or those whose passages go")

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
        description="a dataset over the same passages, whose training queries stand beside; null: none",
    )
    most: int | None = Field(
        None, ge=1, description="crop at most so many, chosen by a hash; null: every sentence"
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return nothing: its queries are not the dataset's."""
        return set()


class Unlabelled(Inheriting):
    """A dataset with further queries that have no labels, as its split `unlabelled`."""

    reads = (UNLABELLED_FILE,)
    corpus_key = collection_key = "of"
    choosing_keys = ("share",)
    source: Literal["unlabelled"]
    of: DatasetRef = Field(
        description="the dataset; its queries: `queries_of`, `share`, or unlabelled.query.txt in `path`"
    )
    queries_of: QueriesRef | None = Field(
        None, description="another dataset, whose training queries they are"
    )
    share: float | None = Field(
        None, gt=0, lt=1, description="share of the training queries of `of` without labels"
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return those of the dataset, and that of the further queries."""
        labelled = splits_of(self.of)
        return labelled and labelled | {UNLABELLED}


def _check_several(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) < 2:
        raise problem(" names one dataset; allowed: two or more")
    return names


class UnionDataset(Derived):
    """Several datasets as one: passages, queries and labels are put together."""

    source: Literal["union"]
    of: Annotated[Distinct[DatasetRef], AfterValidator(_check_several)] = Field(
        description="`<dataset>.` precedes their ids"
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return those of all its datasets; None where those of one are unknown."""
        every: set[str] = set()
        for name in self.of:
            splits = splits_of(name)
            if splits is None:
                return None
            every |= splits
        return every
