"""The costs of building one of FAISS's indexes, and of searching through it.

Operations are those of distances; a multiplication and its addition count as two. Signs, and a GPU's product codes,
cost one table look-up per byte in a search. `faiss` is the rate of all of a machine's threads together, `faiss_alone`
that of one thread, `flat_search` that of exact search, `scanned` that of bytes of vectors or codes that a processor
reads for one query after another (see config/hardware/).
"""

from math import ceil, log2
from types import SimpleNamespace

from tandem.contrib.indexes.index_types import count_links, count_lists, fill_sizes, sample_size
from tandem.contrib.indexes.options import FAISS_INDEXES
from tandem.extras.estimate.model_costs import count_rows
from tandem.extras.estimate.resources import MIB, Setting, Work, cost, params_of
from tandem.extras.searched_indexes import index_size
from tandem.plan.graph import Stage
from tandem.retrieval.exact import STRETCH_BYTES

_KMEANS_ROUNDS = 10  # for inverted lists (extras/kmeans.py)
# FAISS's own settings for learned parts.
_CODE_ROUNDS = 25  # of k-means for a part of a code
_VECTORS_PER_CENTROID = 256  # at most
_ROTATIONS = 50  # rounds of OPQ
_CODE_ROUNDS_PER_ROTATION = 4
_ROTATION_CENTROIDS = 256  # of the codes to which a rotation is fitted
_DEFAULT_EF_SEARCH = 16  # candidates of a search in a graph
_DEFAULT_EF_CONSTRUCTION = 40  # candidates while a graph is built

_BYTES_PER_NUMBER = {"fp16": 2.0, "8bit": 1.0, "6bit": 0.75, "4bit": 0.5}
_BYTES_PER_FLOAT = 4.0
_BYTES_PER_LINK = 4
_BYTES_PER_LISTED_ID = 8
# The cost of reading a vector or code for one query, in addition to its own bytes. Measured on one core: 60 ns for 128
# floats, 21 to 31 ns for as many bytes, 13 to 20 ns for codes of 32 bytes.
_BYTES_PER_VISIT = 160
_QUERIES_IN_MEMORY = 1024  # queries whose candidates are held together
_INDEX_PROCESS_BYTES = 150 * MIB


@index_size("index")
class IndexSize:
    """An index in numbers."""

    def __init__(self, stage: Stage, setting: Setting) -> None:
        passages = stage.upstream["passages"]
        self.rows = round(count_rows(passages, setting))
        self.dimension = setting.dimension(passages)
        # rate of the whole machine's search: exact search's on GPUs
        self.rate = "faiss" if setting.execution.index_gpu == "none" else "flat_search"

        params = fill_sizes(stage.params, self.rows, self.dimension)
        keys = FAISS_INDEXES[params.type].model_fields
        values = {key: value if key in keys else None for key, value in params.model_dump().items()}
        self.params = SimpleNamespace(**values)  # sized for the corpus; None if the type lacks it

        self.nlist = count_lists(params) or 0  # inverted lists
        # A graph (HNSW) has twice m links per passage in its lowest layer, which holds all passages.
        self.links = 2 * count_links(params)
        # number of passages that it learns from
        self.sample = sample_size(params, self.rows) if "train_sample" in keys else 0

    @property
    def row_bytes(self) -> float:
        """Return the bytes per passage: vector or code, id in a list, links. For factory strings float32 is assumed."""
        listed = _BYTES_PER_LISTED_ID if self.nlist else 0
        return self.code_bytes + listed + _BYTES_PER_LINK * self.links

    @property
    def code_bytes(self) -> float:
        """Return the bytes of a vector or its code."""
        if self.params.type == "binary":
            return self.dimension / 8
        if self.params.bits:
            return float(self.params.m * self.params.bits / 8)
        return _BYTES_PER_NUMBER.get(self.params.sq or "", _BYTES_PER_FLOAT) * self.dimension

    @property
    def comparison(self) -> float:
        """Return the operations to compare a query with a passage."""
        if self.params.type == "binary":
            return self.code_bytes
        if self.params.bits:
            return float(self.params.m)
        return 2.0 * self.dimension

    @property
    def code_centroids(self) -> int:
        """Return the number of centroids of each part of a code, as its bits allow; 0 without codes."""
        return 1 << self.params.bits if self.params.bits else 0

    def count_learning(self) -> tuple[float, float]:
        """Return the operations of learning from the sample: by all threads (lists), and one (rotation and codes)."""
        lists = _KMEANS_ROUNDS * 2.0 * self.sample * self.nlist * self.dimension
        if not self.code_centroids:
            return lists, 0.0

        vectors = min(self.sample, _VECTORS_PER_CENTROID * self.code_centroids)
        codes = _CODE_ROUNDS * 2.0 * vectors * self.code_centroids * self.dimension
        if self.params.opq:
            vectors = min(self.sample, _VECTORS_PER_CENTROID * _ROTATION_CENTROIDS)
            per_number = 2 * self.dimension + _CODE_ROUNDS_PER_ROTATION * _ROTATION_CENTROIDS
            codes += _ROTATIONS * 2.0 * vectors * self.dimension * per_number
        return lists, codes

    def count_filling(self) -> tuple[float, float, float]:
        """Return the operations of adding all passages, by all threads and by one, and a graph's hops.

        All threads compare passages with lists; one computes codes and grows links.

        A hop to a neighbour waits for memory, whatever the dimension, and there are more of them in a larger graph
        (Malkov and Yashunin 2018, §4.2).
        """
        comparison = 2.0 * self.dimension
        codes = self.rows * self.code_centroids * comparison
        candidates = self.params.ef_construction or _DEFAULT_EF_CONSTRUCTION
        compared = float(self.rows * candidates * self.links)
        return (
            self.rows * self.nlist * comparison,
            codes + compared * comparison,
            self.count_hops(compared),
        )

    def count_hops(self, compared: float) -> float:
        """Return the hops of a graph's search that compares `compared` nodes."""
        return compared * log2(max(2, min(self.rows, self.params.part)))

    def count_compared_nodes(self, ef_search: int | None) -> float:
        """Return the number of a graph's nodes that a query is compared with; 0 without a graph."""
        if not self.links:
            return 0.0
        graphs = ceil(self.rows / self.params.part)
        return float(graphs) * (ef_search or _DEFAULT_EF_SEARCH) * self.links

    def list_searches(
        self, queries: float, nprobe: int | None, ef_search: int | None
    ) -> dict[str, float]:
        """Return the work of searching for `queries` queries, by its rate."""
        distance = 2.0 * self.dimension
        compared = self.count_compared_nodes(ef_search)
        if compared:
            hops = queries * self.count_hops(compared)
            return {self.rate: queries * compared * distance, "hops": hops}
        visited = self.rows * min(1.0, (nprobe or 1) / self.nlist) if self.nlist else self.rows
        listed = queries * self.nlist * distance
        if self.rate == "faiss" and (self.nlist or self.params.bits or self.params.sq):
            read = visited * (_BYTES_PER_VISIT + self.code_bytes)
            return {self.rate: listed, "scanned": queries * read}
        return {self.rate: listed + queries * visited * self.comparison}


@cost("index")
def estimate_index(stage: Stage, setting: Setting) -> Work:
    """Estimate training by one job, and filling, which shards divide."""
    index = IndexSize(stage, setting)
    learned_together, learned_alone = index.count_learning()
    filled_together, filled_alone, hops = index.count_filling()

    copies = 2 if index.params.opq else 1  # the rotated vectors, too
    sample = _BYTES_PER_FLOAT * index.dimension * index.sample * copies
    part = min(index.rows, index.params.part) * index.row_bytes
    return Work(
        rows=((index.rate, filled_together), ("faiss_alone", filled_alone), ("hops", hops)),
        alone=((index.rate, learned_together), ("faiss_alone", learned_alone)),
        memory=_INDEX_PROCESS_BYTES + max(sample, part),
        disk=index.rows * index.row_bytes + 4 * index.nlist * index.dimension,
    )


@cost("ann")
def estimate_ann(stage: Stage, setting: Setting) -> Work:
    """Estimate searching an index, scoring its proposals, and the exact search with which its recall is compared."""
    params, queries = params_of(stage), setting.queries(stage)
    index = IndexSize(stage.upstream["index"], setting)
    depth = min(params.depth, index.rows)

    searches = index.list_searches(queries, params.nprobe, params.ef_search)
    proposed, operations = depth, searches.pop(index.rate)
    if params.rescore:
        proposed = min(depth * params.rescore_factor, index.rows)
        operations += 2.0 * queries * proposed * index.dimension

    compared_exactly = float(min(params.recall_queries, queries)) * index.rows
    memory = (
        _INDEX_PROCESS_BYTES
        + 40.0 * min(queries, _QUERIES_IN_MEMORY) * proposed
        + index.rows * index.row_bytes
    )
    if compared_exactly:  # a stretch of vectors, mapped from disk and in float32
        memory += 1.5 * min(STRETCH_BYTES, _BYTES_PER_FLOAT * index.rows * index.dimension)

    rows = (
        (index.rate, operations),
        *searches.items(),
        ("faiss", 2 * compared_exactly * index.dimension),
        ("compared", compared_exactly),
    )
    return Work(rows=rows, memory=memory, run=setting.run(stage, depth))
