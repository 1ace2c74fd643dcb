"""How passages are found: BM25, encoding, re-ranking, aggregations."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from tandem.config.base import (
    Analyzer,
    Choice,
    IfSet,
    Items,
    Precision,
    Section,
    equals,
    problem,
)
from tandem.config.references import CrossEncoderRef, Reference
from tandem.config.similarities import AnySimilarity
from tandem.registry import Registry

# Methods of aggregating windows, by name; a package of `contrib/` and plugins register theirs by the same decorator.
aggregation: Registry[Callable[..., Any]] = Registry("aggregation", "aggregation", "retrieval")
# Engines of lexical search: `(job) -> LexicalEngine` of `tandem.retrieval.lexical`. An engine's name is also the kind
# of its index, and its role.
lexical_engine: Registry[Callable[..., Any]] = Registry(
    "engine", "lexical_engine", "retrieval.lexical"
)
# Engines of exact search: `() -> SearchEngine` of `tandem.retrieval.exact`. They compute the same bytes.
search_engine: Registry[Callable[[], Any]] = Registry(
    "engine", "search_engine", "retrieval", decides=False
)
CPU_ENGINE = "faiss"  # the engine of exact search if no package adds another, or without a GPU


def find_gpu_engine() -> str | None:
    """Return the engine of exact search for GPUs, which a package adds; None if no package does."""
    return next((name for name in search_engine if name != CPU_ENGINE), None)


def searches_on_gpu(engine: str | None) -> bool:
    """Return whether exact search by this `execution.engine` computes on a GPU where there is one; None: no search."""
    if engine == "auto":
        return find_gpu_engine() is not None
    return engine != CPU_ENGINE


Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Engine = Annotated[str, Choice(lexical_engine)]
Formula = Literal["lucene", "bm25+", "bm25l"]
Match = Literal["any", "all"]
Normalization = Literal["min_max", "z_score", "none"]


class Bm25Tuning(Section):
    """How k1 and b are chosen for variants of `sparse` that are `tuned`."""

    k1: Items[Weight] = Field(
        (0.3, 0.6, 0.9, 1.2, 1.5, 2.0), min_length=1, description="values that are tried"
    )
    b: Items[Share] = Field((0.2, 0.4, 0.6, 0.8), min_length=1, description="values that are tried")
    measure: str = Field("RR@10", description="the measure that is highest for the best values")
    split: str = Field("dev", description="whose queries decide")
    queries: int | None = Field(
        None, ge=1, description="number of judged queries of the split; null: all"
    )


class Bm25(Section):
    """BM25."""

    k1: float = Field(0.9, ge=0, description="saturation of a term's frequency")
    b: float = Field(0.4, ge=0, le=1, description="normalisation by the passage's length")
    analyzer: Analyzer | None = Field(None, description="null: the dataset's")
    engine: Engine = Field("lucene", description="bm25s needs no Java")
    tune: Bm25Tuning = Field(
        Bm25Tuning(), description="how `tuned` variants of `sparse` choose k1 and b"
    )


class FieldWeights(Section):
    """Weights of a passage's fields in BM25F; a field without a weight is not searched."""

    title: float | None = Field(None, ge=1, description="weight of the title")
    text: float | None = Field(None, ge=1, description="weight of the text")

    @field_validator("title", "text", mode="before")
    @classmethod
    def _weight_alone(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            raise problem(
                " is a section, but takes its weight alone; a b of its own stands beside fields, in field_b"
            )
        return value

    def weights(self) -> dict[str, float]:
        """Return field → weight of the fields that are searched."""
        return self.model_dump(exclude_none=True)


class FieldLengths(Section):
    """How much the length of each of a passage's fields counts in BM25F."""

    title: float | None = Field(None, ge=0, le=1, description="b of the title; null: the variant's")
    text: float | None = Field(None, ge=0, le=1, description="b of the text; null: the variant's")

    def own(self) -> dict[str, float]:
        """Return field → b of the fields that have their own."""
        return self.model_dump(exclude_none=True)


class Rm3(Section):
    """Pseudo-relevance feedback."""

    fb_terms: int = Field(10, ge=1, description="terms that are added to a query")
    fb_docs: int = Field(10, ge=1, le=50, description="passages that they are taken from")
    original_query_weight: float = Field(
        0.5, ge=0, le=1, description="weight of the query's own terms"
    )


class LexicalMethod(Section):
    """How BM25, or another classical score, is computed, apart from k1 and b: keys of `sparse` and of its stages."""

    formula: Formula = Field("lucene", description="the last two are of bm25s")
    delta: float | None = Field(None, ge=0, description="of bm25+ (null: 1) and bm25l (null: 0.5)")
    fields: FieldWeights | None = Field(
        None, description="search title and text apart, by BM25F, with these weights"
    )
    field_b: IfSet[FieldLengths | None] = Field(
        None, description="each field's own b, together with `fields`; only of the engine bm25s"
    )
    rm3: Rm3 | None = Field(None, description="pseudo-relevance feedback")
    similarity: IfSet[AnySimilarity | None] = Field(None, description="scores instead of BM25")
    match: Match = Field(
        "any",
        exclude_if=equals("any"),
        description="passages with any term of the query, or with all: Boolean OR and AND",
    )


class QueryTexts(Section):
    """Which generated texts are appended to a query (GAR)."""

    from_: Annotated[str, Reference("texts of queries", "generated")] = Field(
        alias="from",
        description="entry of `generations` that reads queries; its texts are of the split searched for",
    )
    number: int = Field(
        1,
        ge=1,
        description="texts appended to a query, the first ones; at most the entry's `number`",
    )


class Sparse(LexicalMethod):
    """A variant of BM25, or another classical score, an entry of `sparse`."""

    engine: Engine | None = Field(None, description="null: that of `bm25`")
    analyzer: Analyzer | None = Field(None, description="null: that of `bm25`")
    k1: float | None = Field(None, ge=0, description="null: that of `bm25`")
    b: float | None = Field(None, ge=0, le=1, description="null: that of `bm25`")
    tuned: bool = Field(False, description="k1 and b are chosen by `bm25.tune`")
    expand: QueryTexts | None = Field(
        None, description="generated texts that are appended to each query; null: none"
    )


class Depth(Section):
    """Passages per query of the runs, by split."""

    train: int = Field(100, ge=1, description="of training queries")
    dev: int = Field(100, ge=1, description="of dev queries")
    test: int = Field(
        1000, ge=1, description="also of further test sets, and of dev where dev is reported"
    )


class Inference(Section):
    """How an encoder's forward passes are computed.

    Cross-encoders score pairs alike in re-ranking, denoising and distillation, so that all share the scores.
    """

    precision: Precision = Field("auto", description="auto: bf16 where that is faster")
    batch_tokens: int = Field(4096, ge=64, description="tokens of a batch, padding included")


class Rerank(Inference):
    """Re-ranking."""

    depth: int = Field(50, ge=1, description="passages per query that are re-ranked")


class Lengths(Section):
    """Longest texts, in tokens."""

    query: int = Field(32, ge=1, description="tokens of a query")
    passage: int = Field(128, ge=1, description="tokens of a passage")
    pair: int | None = Field(
        None,
        ge=8,
        description="tokens of a cross-encoder's pair, special ones included; null: what both texts have",
    )
    titles: Literal["joined", "segment"] = Field(
        "joined", description="a dual encoder reads title and text as one text, or as two segments"
    )


class Encode(Inference):
    """Vectors of queries and passages."""

    block: int = Field(16384, ge=1, description="passages per file of vectors")
    dtype: Literal["fp32", "fp16", "int8"] = Field(
        "fp16",
        description="of passages' vectors on disk, fp32 of queries' too; int8 has a scale for each vector",
    )

    @property
    def query_dtype(self) -> Literal["fp32", "fp16"]:
        """The type of queries' vectors."""
        return "fp32" if self.dtype == "fp32" else "fp16"


Ties = Annotated[Literal["doc_id", "trec_eval"], Field(exclude_if=equals("doc_id"))]


class OnSplits(Section):
    """An entry whose runs exist only on some splits."""

    def has_split(self, split: str) -> bool:
        """Return whether it may have a run on a split."""
        return True


class Choosing(Section):
    """An entry that is chosen, or whose parameters may be, by the value of a measure on a split with labels."""

    @property
    def chosen_on(self) -> str | None:
        """The split whose queries decide; None: nothing is chosen."""
        return None

    @property
    def chosen_by(self) -> dict[str, str]:
        """Key of the entry → the measure that it names."""
        return {}


class Ensemble(Section):
    """Several cross-encoders as one, an entry of `ensembles`."""

    of: Items[CrossEncoderRef] = Field(
        min_length=1, description="cross-encoders; means of logits (denoising: of probabilities)"
    )


class Reranks(Section):
    """An entry that may stand behind the `+` of a run; its block is registered by `@plans_reranking`."""

    # whether it orders passages by comparing them, so that a run of one depth is not a part of a deeper one
    orders_together: ClassVar[bool] = False


class Scorer(Section):
    """A plugin's scorer of pairs, an entry of `scorers`."""

    scorer: str = Field(description="name that it is registered by, with `@pair_scorer`")
    params: dict[str, Any] = Field({}, description="its options: its keyword-only parameters")
