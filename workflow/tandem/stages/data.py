"""Stages that need no model: datasets, their own training lists as runs, and BM25 with its indexes."""

from operator import not_
from typing import Literal, get_args

from pydantic import ConfigDict, Field

from tandem.config.base import Analyzer
from tandem.config.datasets import Dataset, Normalize, sources
from tandem.config.retrieval import LexicalMethod
from tandem.plugins import Declarations
from tandem.stages.base import Entry, Kind, Params, Part, Planned, Scoring
from tandem.stages.retrieval import RunParams

# stemmers of Anserini's English analyzer, each with its stop words
Stemmer = Literal["porter", "krovetz", "none"]
_Split = Literal["whitespace", "jieba"]  # texts are split into terms before the engine sees them

STEMMERS, SPLIT_BEFORE, ANALYZERS = get_args(Stemmer), get_args(_Split), get_args(Analyzer)
# Languages that Anserini has an analyzer for; it would silently take any other for English.
LANGUAGES = (
    "ar",
    "bn",
    "da",
    "de",
    "en",
    "es",
    "fa",
    "fi",
    "fr",
    "hi",
    "hu",
    "id",
    "it",
    "ja",
    "ko",
    "nl",
    "no",
    "pl",
    "pt",
    "ru",
    "sv",
    "te",
    "th",
    "tr",
    "uk",
    "zh",
)
# the file of stages that write texts of passages or queries, with the columns id, number, text and more
TEXTS_FILE = "generated.parquet"
# formula → the δ of its paper
FORMULAS: dict[str, float | None] = {"lucene": None, "bm25+": 1.0, "bm25l": 0.5}

# Name of a fact in a dataset's manifest → the class that observes its texts, an `Observer` of data.observers.
DATASET_OBSERVERS: Declarations[Entry] = Declarations()
# Name of a further part of datasets → the function that writes its file and returns its counts for statistics.json:
# `(checksum, source, passages, draft, warnings) -> counts`.
DATASET_PARTS: Declarations[Entry] = Declarations()
# What a stage does with a dataset (`analysed`, `tokenised`, `scored`) → the function that yields lines about the
# dataset; its arguments are the job and, for `tokenised`, the tokenizer.
DATASET_DOUBTS: Declarations[Entry] = Declarations()


class DatasetParams(Params):
    """Parameters of every dataset. The others are those of its source, which validates them by a model of its own."""

    model_config = ConfigDict(extra="allow", strict=True)

    source: str = Field(
        "files", description="the format, or how the dataset is derived from others"
    )
    normalize: Normalize = Field("none", description="Unicode form that texts are put into")
    title: bool = Field(True, description="false blanks titles")
    train_queries: int | None = Field(
        None, ge=1, description="most training queries, chosen by a hash; null: all"
    )
    dev_queries: int | None = Field(None, ge=1, description="most dev queries, likewise")
    test_queries: int | None = Field(None, ge=1, description="most test queries, likewise")
    dev_from_train: float | None = Field(
        None, gt=0, lt=1, description="share of train queries that become dev"
    )
    dev_from_train_most: int | None = Field(
        None, ge=1, exclude_if=not_, description="at most this many of them"
    )
    train_from_test: float | None = Field(
        None, gt=0, lt=1, description="share of test queries that become train"
    )
    counted_shares: list[str] = Field(
        [],
        exclude_if=not_,
        description="which of these two shares are of queries that were chosen by the hash of their ids before",
    )
    near_duplicates: float | None = Field(
        None, gt=0, le=1, description="similarity from which labels are shared"
    )
    unknown_documents: Literal["warn", "drop", "error"] = Field(
        "warn", description="labels of absent passages"
    )
    blank_queries: Literal["drop", "error"] = Field(
        "drop", description="queries without text: dropped or refused"
    )
    checksum: str | None = Field(
        None, description="expected sha256 of the source's rows; another one is a warning"
    )
    fingerprint: str | None = Field(None, description="hash of the files that `path` names")
    downloads: list[list[str | None]] | None = Field(
        None, description="(file, url, member, sha256, md5) each"
    )

    def most_queries(self, split: str) -> int | None:
        """Return the largest number of queries of a split; None for all."""
        limits = {"train": self.train_queries, "dev": self.dev_queries, "test": self.test_queries}
        return limits.get(split)


class GivenParams(Params):
    """Parameters of a run that consists of a dataset's own training lists."""

    split: str = Field("train", description="whose queries")
    depth: int = Field(1000, ge=1, description="most negatives of a query")


def _is_read_by_several(stage: Planned) -> bool:
    least = sources().get(stage.values["source"], Dataset).shared_from
    return least is not None and (stage.execution.get("counts") or {}).get("passages", 0) >= least


class LuceneParams(Params):
    """Anserini's inverted index."""

    analyzer: Analyzer = Field("default", description="how texts become terms")
    language: str = Field("en", description="language of the texts, ISO 639-1")
    vectors: bool = Field(False, description="keep passages' own terms, which RM3 needs")
    fields: bool = Field(False, description="index title and text separately too")


class Bm25Variant(LexicalMethod, RunParams):
    """A search by BM25, or by another classical score: its parameters except k1 and b."""

    queries: int | None = Field(
        None, ge=1, description="search for this many of the first queries; null: all"
    )
    texts: int = Field(
        0, ge=0, exclude_if=not_, description="number of generated texts appended to a query"
    )


class Bm25Params(Bm25Variant):
    """A run of BM25."""

    k1: float | None = Field(
        None, ge=0, description="how soon a term's frequency saturates; null: tuned"
    )
    b: float | None = Field(
        None, ge=0, le=1, description="how much a passage's length counts; null: tuned"
    )


# A shard of `dataset` mostly fails because of a line in a file, and would fail again.
KINDS = (
    Kind("dataset", "data.dataset:run", DatasetParams, version=2, threads="all", shard="data.dataset:run_shard",
        shard_retries=0, shard_if=_is_read_by_several, part=Part(1 << 20, "passages"), box="Collection",
        holds="collection", verb="reading", additions=(DATASET_OBSERVERS, DATASET_PARTS)),
    Kind("given", "data.given:run_given", GivenParams, version=2, box="Collection",
        scoring=Scoring(order_if=lambda _: True)),
    Kind("lucene", "retrieval.lexical.lucene_index:run", LuceneParams, env="lexical", threads="all",
        shard="retrieval.lexical.lucene_index:run_shard", part=Part(1 << 20, "passages"), box="Sparse search",
        holds="lexical index", verb="indexing"),
    Kind("bm25", "retrieval.lexical.bm25:run", Bm25Params, version=2, env="lexical", threads="all",
        shard="retrieval.lexical.bm25:run_shard", part=Part(4096, "queries"), box="Sparse search",
        scoring=Scoring(by="lexical", zero="always"), verb="searching"),
)  # fmt: skip
