"""Indexes of weights of terms, entries of `indexes`, and the parameters of the stages that store and search weights."""

from operator import not_
from typing import ClassVar, Literal

from pydantic import Field

from tandem.config.base import Section
from tandem.config.indexes import AnyIndex
from tandem.extras.tradeoffs_options import TradeoffsParams
from tandem.stages.base import Params
from tandem.stages.retrieval import EmbeddingsParams, RetrieveParams, RunParams


class TermIndex(AnyIndex):
    """An entry of `indexes` that searches weights of terms."""

    searches: ClassVar[str] = "weights of terms"


class FrequencyIndex(TermIndex):
    """Weights of a passage's terms as their frequencies, scored by BM25 (DeepCT)."""

    type: Literal["bm25"]
    scale: float = Field(100.0, gt=0, description="a weight w is the frequency round(scale · w)")
    k1: float = Field(10.0, ge=0, description="how soon a term's frequency saturates")
    b: float = Field(0.9, ge=0, le=1, description="how much a passage's length counts")


class PrunedIndex(TermIndex):
    """Weights of terms, without the terms that very many passages have (SpaDE)."""

    type: Literal["pruned"]
    above: float = Field(
        0.7,
        gt=0,
        lt=1,
        description="terms that a larger share of the passages contains are ignored",
    )


class SeismicBuild(Section):
    """How many of the weights of terms Seismic's index keeps."""

    postings: int = Field(
        3500,
        ge=1,
        description="passages in a term's list on average, those with the largest weights",
    )
    centroid_fraction: float = Field(
        0.1, gt=0, le=1, description="blocks of a list, as a share of its passages"
    )
    summary_energy: float = Field(
        0.4, gt=0, le=1, description="share of a block's weights that its summary keeps"
    )


class SeismicSearch(Section):
    """How much of Seismic's lists a query searches."""

    query_cut: int = Field(
        10, ge=1, description="largest terms of a query, whose lists are searched"
    )
    heap_factor: float = Field(
        0.8,
        gt=0,
        le=1,
        description="a block is scored if its summary's score times this exceeds the worst result so far",
    )


class SeismicIndex(SeismicBuild, SeismicSearch, TermIndex):
    """Approximate search of weights of terms by the package pyseismic-lsr (Bruch et al. 2024)."""

    type: Literal["seismic"]


ExactTermIndex = FrequencyIndex | PrunedIndex
"""What an exact search makes of the weights of passages before it multiplies them."""


class TermWeightsParams(EmbeddingsParams):
    """Weights of the terms of passages or queries, computed by a sparse encoder."""

    dtype: Literal["fp32", "fp16"] = Field("fp16", description="of the weights on disk")


class RetrieveTermsParams(RetrieveParams):
    """Exact search by dot products of weights of terms over all passages."""

    index: ExactTermIndex | None = Field(
        None,
        exclude_if=not_,
        discriminator="type",
        description="how passages' weights are transformed; null: not at all",
    )


class ImpactsParams(Params):
    """Lucene's inverted index of weights of terms, rounded to a byte."""


class SearchImpactsParams(RunParams):
    """Search of an inverted index of weights of terms."""


class SeismicParams(SeismicBuild, Params):
    """Seismic's approximate index of weights of terms."""


class SearchSeismicParams(SeismicSearch, RunParams):
    """Search in Seismic, and exact scores of the passages that it returns."""


class NamedSeismic(SeismicSearch):
    """A Seismic index among the indexes that are compared."""

    name: str = Field(description="its entry of `indexes`")


class TermTradeoffsParams(TradeoffsParams):
    """Recall, latency and size of searches of weights of terms."""

    seismic: tuple[NamedSeismic, ...] = Field(
        (), exclude_if=not_, description="how the inputs `seismic` are searched"
    )
