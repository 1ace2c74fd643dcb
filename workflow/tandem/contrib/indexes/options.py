"""FAISS's types of indexes: a model of the keys of each, and the parameters of the stages `index` and `ann`."""

from typing import ClassVar, Literal, get_args

from pydantic import Field

from tandem.config.base import by_value
from tandem.config.indexes import Index
from tandem.stages.base import Params
from tandem.stages.retrieval import RunParams

IndexType = Literal[
    "flat", "sq", "binary", "pq", "ivf_flat", "ivf_sq", "ivf_pq", "hnsw", "hnsw_sq", "factory"
]


class FaissIndex(Index):
    """An entry for one of FAISS's indexes."""

    built_by: ClassVar[str] = "index"
    searched_by: ClassVar[str] = "ann"
    # whether it is a graph of its vectors, and whether FAISS searches it on GPUs; for a factory its string decides
    is_graph: ClassVar[bool] = False
    has_gpu_form: ClassVar[bool] = False


class _Parts(FaissIndex):
    part: int = Field(
        1 << 20, ge=1, description="passages that are added at once and held in memory"
    )


class _Learned(FaissIndex):
    train_sample: int | None = Field(
        None, ge=1, description="training passages; null: 64 per list, at least 65,536"
    )
    seed: int | None = Field(
        None, ge=0, description="seed of sample and centroids; null: the configuration's"
    )


class _Lists(FaissIndex):
    has_gpu_form: ClassVar[bool] = True

    nlist: int | None = Field(
        None, ge=1, description="inverted lists; null: the power of two up to 4 √passages"
    )
    nprobe: int = Field(32, ge=1, description="lists that are searched")


class _Product(FaissIndex):
    m: int | None = Field(
        None, ge=1, description="parts of a vector; null: one for every eight dimensions"
    )
    bits: int = Field(8, ge=1, le=12, description="bits of a part's code")
    opq: bool = Field(True, description="learn a rotation first")


PASSAGES_OF_A_GRAPH = 1 << 22  # passages of one graph, unless configured


class _Graph(FaissIndex):
    is_graph: ClassVar[bool] = True

    m: int = Field(32, ge=2, le=512, description="links of a node")
    ef_construction: int = Field(
        200, ge=1, description="width of the search when the graph is built"
    )
    ef_search: int = Field(128, ge=1, description="width of the search")
    part: int = Field(
        PASSAGES_OF_A_GRAPH,
        ge=1,
        description="passages of one graph; if there are several graphs, each is searched",
    )


class _Quantiser(FaissIndex):
    sq: Literal["8bit", "6bit", "4bit", "fp16"] = Field(
        "8bit", description="bits of a dimension; fp16: lossless"
    )


class FlatIndex(_Parts):
    """All vectors as they are."""

    has_gpu_form: ClassVar[bool] = True

    type: Literal["flat"]


class SqIndex(_Quantiser, _Learned, _Parts):
    """Scalar quantisation."""

    type: Literal["sq"]


class BinaryIndex(_Parts):
    """The signs of a vector's numbers, a bit each, compared by the Hamming distance."""

    type: Literal["binary"]
    rescore_factor: int = Field(
        4, ge=1, description="the index is asked for this many times the depth"
    )


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
    """An index by FAISS's own name; for a graph, `part` has the default of `hnsw`."""

    type: Literal["factory"] = "factory"
    factory: str = Field(description="FAISS's factory string, such as OPQ64,IVF1024,PQ64")
    nprobe: int | None = Field(None, ge=1, description="lists to search, if any; null: FAISS's")
    ef_search: int | None = Field(None, ge=1, description="for a graph: candidates; null: FAISS's")
    ef_construction: int | None = Field(
        None, ge=1, description="for a graph: candidates while it is built; null: FAISS's"
    )


IndexEntry = (
    FlatIndex
    | SqIndex
    | BinaryIndex
    | PqIndex
    | IvfFlatIndex
    | IvfSqIndex
    | IvfPqIndex
    | HnswIndex
    | HnswSqIndex
    | FactoryIndex
)
FAISS_INDEXES: dict[str, type[IndexEntry]] = by_value("type", *get_args(IndexEntry))


class IndexParams(Params):
    """One of FAISS's indexes. Its type decides which of the optional parameters count."""

    type: IndexType = Field("factory", description="structure of the index")
    factory: str | None = Field(
        None, description="FAISS's own description, such as OPQ64,IVF1024,PQ64"
    )
    sq: Literal["8bit", "6bit", "4bit", "fp16"] = Field("8bit", description="bits of a dimension")
    m: int | None = Field(
        None, ge=1, description="parts of a code, or links of a node; null: from the dimension"
    )
    bits: int = Field(8, ge=1, le=12, description="bits of a part's code")
    opq: bool = Field(False, description="learn a rotation first")
    nlist: int | None = Field(
        None, ge=1, description="inverted lists; null: from the number of passages"
    )
    train_sample: int | None = Field(
        None, ge=1, description="passages for training; null: 64 per list, at least 65,536"
    )
    seed: int = Field(0, description="seed of the sample and the centroids")
    ef_construction: int | None = Field(None, ge=1, description="candidates while a graph is built")
    part: int = Field(1 << 20, ge=1, description="passages that are added together")


class AnnParams(RunParams):
    """Search through an index."""

    nprobe: int | None = Field(
        None, ge=1, description="lists that are searched; null: FAISS's default"
    )
    ef_search: int | None = Field(
        None, ge=1, description="candidates in a graph; null: FAISS's default"
    )
    rescore: bool = Field(True, description="rank by exact scores of the stored vectors")
    rescore_factor: int = Field(2, ge=1, description="the index proposes this many times the depth")
    recall_queries: int = Field(
        0, ge=0, description="queries whose recall against exact search is measured"
    )
