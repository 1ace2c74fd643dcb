"""Options of classical scores in place of BM25, a model per type; parameters of the stages `bm25s` and `lsi`."""

from operator import not_
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field

from tandem.config.similarities import JavaClass, Similarity
from tandem.stages.base import Params

# analyzers of the engine bm25s
JavaFree = Literal["default", "porter", "none", "whitespace", "jieba"]
WITHOUT_JAVA = get_args(JavaFree)
_PACKAGE = "org.apache.lucene.search.similarities"


class LuceneSimilarity(Similarity):
    """A score that Lucene computes.

    Frequencies tf and lengths |d| are in terms, and p(t) = (cf(t) + 1) / (terms of the collection + 1), as in Lucene:

        dirichlet        max(0, ln(1 + tf / (μ p(t))) + ln(μ / (|d| + μ))): Zhai and Lafferty 2001, but not below 0
        jelinek_mercer   ln(1 + (1 - λ) tf / |d| / (λ p(t)))
        dfr              In, L, H2: f / (f + 1) · log2((N + 1) / (df + 1/2)) with f = tf · log2(1 + mean |d| / |d|)
        boolean          1

    each summed over the query's terms that the passage has, as often as the query has them.
    """

    engine: ClassVar[str] = "lucene"


class Dirichlet(LuceneSimilarity):
    """Query likelihood, smoothed by Dirichlet's prior (Zhai and Lafferty 2001)."""

    type: Literal["dirichlet"]
    mu: float = Field(1000.0, gt=0, description="weight of the collection, as a number of terms")

    def build_for_lucene(self, java: JavaClass) -> Any:
        """See `Similarity.build_for_lucene`."""
        return java(f"{_PACKAGE}.LMDirichletSimilarity")(self.mu)


class JelinekMercer(LuceneSimilarity):
    """Query likelihood, smoothed by linear interpolation with the collection (Jelinek and Mercer 1980)."""

    type: Literal["jelinek_mercer"]
    collection_weight: float = Field(
        0.1, gt=0, lt=1, description="λ: 0.1 suits short queries, 0.7 long ones"
    )

    def build_for_lucene(self, java: JavaClass) -> Any:
        """See `Similarity.build_for_lucene`."""
        return java(f"{_PACKAGE}.LMJelinekMercerSimilarity")(self.collection_weight)


class Dfr(LuceneSimilarity):
    """Divergence from randomness (Amati and van Rijsbergen 2002)."""

    type: Literal["dfr"]
    basic_model: Literal["G", "IF", "In", "Ine"] = Field(
        "In", description="of randomness, as Lucene names them"
    )
    after_effect: Literal["B", "L"] = Field("L", description="B: Bernoulli's, L: Laplace's")
    normalization: Literal["H1", "H2", "H3", "Z"] = Field(
        "H2", description="of a term's frequency by length"
    )

    def build_for_lucene(self, java: JavaClass) -> Any:
        """See `Similarity.build_for_lucene`."""
        basic_model = java(f"{_PACKAGE}.BasicModel{self.basic_model}")()
        after_effect = java(f"{_PACKAGE}.AfterEffect{self.after_effect}")()
        normalization = java(f"{_PACKAGE}.Normalization{self.normalization}")()
        return java(f"{_PACKAGE}.DFRSimilarity")(basic_model, after_effect, normalization)


class Boolean(LuceneSimilarity):
    """One point for every term that query and passage share; a term counts as often as the query has it."""

    type: Literal["boolean"]

    def build_for_lucene(self, java: JavaClass) -> Any:
        """See `Similarity.build_for_lucene`."""
        return java(f"{_PACKAGE}.BooleanSimilarity")()


class TfIdf(Similarity):
    """The cosine of TF-IDF vectors (Salton, Wong and Yang 1975)."""

    engine: ClassVar[str] = "bm25s"
    type: Literal["tf_idf"]
    sublinear: bool = Field(False, description="1 + ln(frequency) instead of a term's frequency")


class Lsi(TfIdf):
    """Latent semantic indexing: the cosine of TF-IDF vectors in few dimensions (Deerwester et al. 1990)."""

    stage: ClassVar[str] = "lsi"
    type: Literal["lsi"]  # type: ignore[assignment]
    dimensions: int = Field(
        200, ge=1, description="singular values that are kept; fewer than passages and terms"
    )


class Bm25sParams(Params):
    """Passages as numbered terms."""

    analyzer: JavaFree = Field("default", description="how texts become terms")
    language: str = Field("en", description="of the texts, ISO 639-1")
    fields: bool = Field(
        False, exclude_if=not_, description="title and text as separate fields, instead of together"
    )


class LsiParams(Params):
    """Passages in few dimensions: the largest singular values of their TF-IDF vectors."""

    sublinear: bool = Field(False, description="1 + ln(frequency) instead of a term's frequency")
    dimensions: int = Field(200, ge=1, description="singular values that are kept")
