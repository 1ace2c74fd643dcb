"""Indexes of vectors and of weights of terms: a model per type, and the searches by which they are compared."""

from typing import Literal, get_args

from pydantic import Field

from tandem.config.base import Section, by_value


class Index(Section):
    """An entry of `indexes`: the keys of every type."""

    type: str = Field(description="decides which further keys there are")
    rescore: bool = Field(
        True, description="rank by exact scores of the vectors; false: by the index's own"
    )
    rescore_factor: int = Field(2, ge=1, description="ask the index for this many times the depth")
    recall_queries: int = Field(
        100, ge=0, description="queries whose recall against exact search is measured"
    )


class _Parts(Index):
    part: int = Field(
        1 << 20, ge=1, description="passages that are added at once: what a job holds in memory"
    )


class _Learned(Index):
    train_sample: int | None = Field(
        None, ge=1, description="training passages; null: 64 per list, at least 65,536"
    )
    seed: int | None = Field(None, ge=0, description="null: the configuration's")


class _Lists(Index):
    nlist: int | None = Field(
        None, ge=1, description="inverted lists; null: the power of two up to 4 √passages"
    )
    nprobe: int = Field(32, ge=1, description="lists that are searched")


class _Product(Index):
    m: int | None = Field(
        None, ge=1, description="parts of a vector; null: one for every eight dimensions"
    )
    bits: int = Field(8, ge=1, le=12, description="of a part's code")
    opq: bool = Field(True, description="learn a rotation first")


class _Graph(Index):
    m: int = Field(32, ge=2, le=512, description="links of a node")
    ef_construction: int = Field(
        200, ge=1, description="width of the search when the graph is built"
    )
    ef_search: int = Field(128, ge=1, description="width of the search")
    part: int = Field(
        1 << 22,
        ge=1,
        description="passages of one graph; where there are several, each is searched",
    )


class _Quantiser(Index):
    sq: Literal["8bit", "6bit", "4bit", "fp16"] = Field(
        "8bit", description="of a dimension; fp16: lossless"
    )


class FlatIndex(_Parts):
    """All vectors as they are."""

    type: Literal["flat"]


class SqIndex(_Quantiser, _Learned, _Parts):
    """Scalar quantisation."""

    type: Literal["sq"]


class BinaryIndex(_Parts):
    """The signs of a vector's numbers, a bit each, by the Hamming distance."""

    type: Literal["binary"]
    rescore_factor: int = Field(4, ge=1, description="ask the index for this many times the depth")


class PqIndex(_Product, _Learned, _Parts):
    """Product quantisation."""

    type: Literal["pq"]


class IvfFlatIndex(_Lists, _Learned, _Parts):
    """Inverted lists of vectors as they are."""

    type: Literal["ivf_flat"]


class IvfSqIndex(_Quantiser, _Lists, _Learned, _Parts):
    """Inverted lists, scalar quantisation."""

    type: Literal["ivf_sq"]


class IvfPqIndex(_Product, _Lists, _Learned, _Parts):
    """Inverted lists, product quantisation."""

    type: Literal["ivf_pq"]


class HnswIndex(_Graph):
    """A graph of vectors as they are."""

    type: Literal["hnsw"]


class HnswSqIndex(_Quantiser, _Graph, _Learned):
    """A graph, scalar quantisation."""

    type: Literal["hnsw_sq"]


class FactoryIndex(_Learned, _Parts):
    """An index by FAISS's own name."""

    type: Literal["factory"] = "factory"
    factory: str = Field(description="FAISS's factory string, such as OPQ64,IVF1024,PQ64")
    nprobe: int | None = Field(None, ge=1, description="where it has lists; null: FAISS's")
    ef_search: int | None = Field(None, ge=1, description="where it is a graph; null: FAISS's")
    ef_construction: int | None = Field(
        None, ge=1, description="where it is a graph; null: FAISS's"
    )


AnyIvfIndex = IvfFlatIndex | IvfSqIndex | IvfPqIndex
IndexEntry = (
    FlatIndex
    | SqIndex
    | BinaryIndex
    | PqIndex
    | AnyIvfIndex
    | HnswIndex
    | HnswSqIndex
    | FactoryIndex
)
INDEXES: dict[str, type[IndexEntry]] = by_value("type", *get_args(IndexEntry))


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
