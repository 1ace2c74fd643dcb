"""Indexes of vectors, whose types packages add, and of weights of terms: a model per type."""

from typing import ClassVar, Literal

from pydantic import Field

from tandem.config.base import Section, by_value
from tandem.errors import UserError
from tandem.plugins import Declarations, name_plugin


class Index(Section):
    """An entry of `indexes`: the keys of every type."""

    # the kinds of the stages that build it, and that search single vectors through it
    built_by: ClassVar[str]
    searched_by: ClassVar[str]

    type: str = Field(description="decides which further keys there are")
    rescore: bool = Field(
        True, description="rank by exact scores of the vectors; false: by the index's own"
    )
    rescore_factor: int = Field(2, ge=1, description="ask the index for this many times the depth")
    recall_queries: int = Field(
        100, ge=0, description="queries whose recall against exact search is measured"
    )


# By type, of indexes of vectors.
INDEXES: Declarations[type[Index]] = Declarations()


def register_index(*types: type[Index]) -> None:
    """Add types of entries of `indexes`, each by its literal `type`.

    Raises:
        UserError: another index has the type.
    """
    for name, model in by_value("type", *types).items():
        if name in INDEXES or name in TERM_INDEXES:
            raise UserError(f"type {name} of indexes is registered twice; rename one of them")
        INDEXES[name] = model
        name_plugin(name)


class TermIndex(Section):
    """An entry of `indexes` that searches weights of terms."""

    type: str = Field(description="decides which further keys there are")


class FrequencyIndex(TermIndex):
    """Weights of a passage's terms as their frequencies, scored by BM25 (DeepCT)."""

    type: Literal["bm25"]
    scale: float = Field(100.0, gt=0, description="a weight w is the frequency round(scale · w)")
    k1: float = Field(10.0, ge=0, description="how soon a term's frequency saturates")
    b: float = Field(0.9, ge=0, le=1, description="how much a passage's length counts")


class PrunedIndex(TermIndex):
    """Weights of terms but for those that very many passages have (SpaDE)."""

    type: Literal["pruned"]
    above: float = Field(
        0.7,
        gt=0,
        lt=1,
        description="terms that a larger share of the passages has count for nothing",
    )


class SeismicBuild(Section):
    """What Seismic keeps of weights of terms."""

    postings: int = Field(
        3500,
        ge=1,
        description="passages of a term's list on average, those with the largest weights",
    )
    centroid_fraction: float = Field(
        0.1, gt=0, le=1, description="blocks of a list, as a share of its passages"
    )
    summary_energy: float = Field(
        0.4, gt=0, le=1, description="share of a block's weights that its summary keeps"
    )


class SeismicSearch(Section):
    """How much of Seismic's lists a query looks at."""

    query_cut: int = Field(
        10, ge=1, description="terms of a query whose lists are searched, the largest"
    )
    heap_factor: float = Field(
        0.8,
        gt=0,
        le=1,
        description="a block is looked at if its summary times this beats the worst result so far",
    )


class SeismicIndex(SeismicBuild, SeismicSearch, TermIndex):
    """Approximate search of weights of terms by the package pyseismic-lsr (Bruch et al. 2024)."""

    type: Literal["seismic"]


ExactTermIndex = FrequencyIndex | PrunedIndex
"""What an exact search makes of the weights of passages before it multiplies them."""
TermIndexEntry = ExactTermIndex | SeismicIndex
TERM_INDEXES: dict[str, type[TermIndexEntry]] = by_value(
    "type", FrequencyIndex, PrunedIndex, SeismicIndex
)
