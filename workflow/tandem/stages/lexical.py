"""Lexical retrieval: indexes of Lucene and bm25s, the choice of k1 and b, BM25's runs."""

from operator import not_
from typing import Literal, get_args

from pydantic import Field

from tandem.config.base import Analyzer
from tandem.config.retrieval import Bm25Tuning, Engine, FieldLengths, FieldWeights, Formula, Rm3
from tandem.stages.base import Kind, Params, Part
from tandem.stages.retrieval import RunParams

Stemmer = Literal["porter", "krovetz", "none"]  # of Anserini's English analyzer, all with its stop words
Split = Literal["whitespace", "jieba"]  # texts are split into terms before the engine sees them
JavaFree = Literal["default", "porter", "none", "whitespace", "jieba"]  # analyzers of the engine bm25s

STEMMERS, SPLIT_BEFORE, ANALYZERS = get_args(Stemmer), get_args(Split), get_args(Analyzer)
WITHOUT_JAVA, ENGINES = get_args(JavaFree), get_args(Engine)  # an engine is also the kind of its index, and its role
# Languages that Anserini has an analyzer for; it would silently take any other for English.
LANGUAGES = (
    *("ar", "bn", "da", "de", "en", "es", "fa", "fi", "fr", "hi", "hu", "id", "it"),
    *("ja", "ko", "nl", "no", "pl", "pt", "ru", "sv", "te", "th", "tr", "uk", "zh"),
)
FORMULAS: dict[str, float | None] = {"lucene": None, "bm25+": 1.0, "bm25l": 0.5}  # with the δ of the formula's paper


class LuceneParams(Params):
    """Anserini's inverted index."""

    analyzer: Analyzer = Field("default", description="how texts become terms")
    language: str = Field("en", description="of the texts, ISO 639-1")
    vectors: bool = Field(False, description="keep passages' own terms, which RM3 needs")
    fields: bool = Field(False, description="index title and text separately too")


class Bm25sParams(Params):
    """Passages as numbered terms."""

    analyzer: JavaFree = Field("default", description="how texts become terms")
    language: str = Field("en", description="of the texts, ISO 639-1")
    fields: bool = Field(False, exclude_if=not_, description="title and text apart, instead of together")


class Bm25Variant(RunParams):
    """How BM25 scores, beside k1 and b."""

    queries: int | None = Field(None, ge=1, description="search for the first so many queries; null: all")
    rm3: Rm3 | None = Field(None, description="of Lucene: expand queries")
    fields: FieldWeights | None = Field(None, description="search title and text by BM25F")
    field_b: FieldLengths | None = Field(None, exclude_if=not_, description="of bm25s: fields' own b")
    formula: Formula = Field("lucene", description="the last two are of bm25s")
    delta: float | None = Field(None, ge=0, description="of bm25+ and bm25l; null: that of the paper")


class Bm25Params(Bm25Variant):
    """A run of BM25."""

    k1: float | None = Field(None, ge=0, description="how soon a term's frequency saturates; null: tuned")
    b: float | None = Field(None, ge=0, le=1, description="how much a passage's length counts; null: tuned")


class TuneBm25Params(Bm25Tuning, Bm25Variant):
    """Choice of k1 and b on a split with labels."""

    ignore_identical_ids: bool = Field(False, description="leave out the document whose id is the query's")


KINDS = (
    Kind("lucene", "retrieval.lexical.lucene_index:run", LuceneParams, env="lexical", threads="all",
        shard="retrieval.lexical.lucene_index:run_shard", part=Part(1 << 20, "passages"), box="Sparse search",
        holds="index"),
    Kind("bm25s", "retrieval.lexical.bm25s:run", Bm25sParams, env="lexical", box="Sparse search", holds="index"),
    Kind("bm25", "retrieval.lexical.bm25:run", Bm25Params, version=2, env="lexical", threads="all",
        shard="retrieval.lexical.bm25:run_shard", part=Part(4096, "queries"), box="Sparse search"),
    Kind("tune_bm25", "retrieval.lexical.bm25:run_tuning", TuneBm25Params, env="lexical", threads="all",
        box="Sparse search"),
)  # fmt: skip
