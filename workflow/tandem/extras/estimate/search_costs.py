"""Cost functions of search by what encoders make: exact, of terms, and through indexes that are built.

Operations are those of distances, a multiplication and its addition counting as two; a product code, or signs, cost
one table look-up a byte in a search. `faiss` is what all of a machine's threads do together, `faiss_alone` one thread,
`flat_search` exact search (see config/hardware/).
"""

from math import log2
from types import SimpleNamespace

from tandem.config.indexes import INDEXES
from tandem.extras.estimate.model_costs import active_terms, token_rows
from tandem.extras.estimate.resources import MIB, Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import LIGHT, bm25_memory, bm25_rows
from tandem.plan.graph import Stage
from tandem.retrieval.exact import STRETCH_BYTES
from tandem.retrieval.index_types import count_lists, fill_sizes, sample_size

ROUNDS = 10  # of k-means for inverted lists (retrieval/faiss_search.py)
CODE_ROUNDS, CODE_SAMPLE = 25, 256  # of k-means for a part of a code, and vectors a centroid at most (FAISS's)
ROTATIONS, ROTATION_ROUNDS = 50, 4  # of OPQ, and rounds of its codes in each (FAISS's)
EF_SEARCH = 16  # candidates of a search in a graph by default (FAISS's)
BYTES = {"fp16": 2.0, "8bit": 1.0, "6bit": 0.75, "4bit": 0.5}
GROUP = 1024  # queries whose candidates are held together
ALONE = 100  # queries that trade-offs search for one at a time
RESCORED = 10  # proposals of many queries together that are rescored while one of a query's files is read
ORDER = 24  # bytes a passage whose id's place in alphabetical order is mapped


class IndexSize:
    """An index in numbers."""

    def __init__(self, stage: Stage, setting: Setting) -> None:
        passages = stage.upstream["passages"]
        is_late = passages.declared.vectors == "token"
        self.rows = round(token_rows(passages, setting)) if is_late else setting.passages(passages)
        self.dimension = setting.dimension(passages)
        params = fill_sizes(stage.params, self.rows, self.dimension)
        keys = INDEXES[params.type].model_fields
        values = {key: value if key in keys else None for key, value in params.model_dump().items()}
        self.params = SimpleNamespace(**values)  # sized for the corpus; None what the type lacks
        self.nlist = count_lists(params) or 0  # inverted lists
        self.links = 2 * params.m if "ef_construction" in keys and params.m else 0  # of a passage in the lowest layer
        self.sample = sample_size(params, self.rows) if "train_sample" in keys else 0  # passages that it learns from

    @property
    def each(self) -> float:
        """Bytes of a passage: its vector or code, its id in a list, its links. FAISS's own words count as float32."""
        return self.code + (8 if self.nlist else 0) + 4 * self.links

    @property
    def code(self) -> float:
        """Bytes of a vector or its code."""
        if self.params.type == "binary":
            return self.dimension / 8
        if self.params.bits:
            return float(self.params.m * self.params.bits / 8)
        return BYTES.get(self.params.sq or "", 4.0) * self.dimension

    @property
    def compared(self) -> float:
        """Operations to compare a query with a passage."""
        if self.params.type == "binary":
            return self.code
        return float(self.params.m) if self.params.bits else 2.0 * self.dimension

    def trained(self) -> tuple[float, float]:
        """Operations to learn from the sample: of all threads (lists), and of one (rotation and codes)."""
        centroids, n, d = 1 << (self.params.bits or 0), self.sample, self.dimension
        few, alone = min(n, CODE_SAMPLE * centroids), 0.0
        if self.params.bits:
            alone = CODE_ROUNDS * 2.0 * few * centroids * d
            if self.params.opq:
                alone += ROTATIONS * 2.0 * min(n, CODE_SAMPLE * 256) * d * (2 * d + ROTATION_ROUNDS * 256)
        return ROUNDS * 2.0 * n * self.nlist * d, alone

    def filled(self) -> tuple[float, float, float]:
        """Operations to add all passages, of all threads (lists) and of one (codes, links); a graph's steps on the way.

        A step to a neighbour waits for memory, whatever the dimension, and there are more of them in a larger graph
        (Malkov and Yashunin 2018, §4.2).
        """
        each = 2.0 * self.dimension
        codes = (1 << self.params.bits) * each if self.params.bits else 0.0
        compared = self.rows * self.params.ef_construction * self.links if self.links else 0.0
        return self.rows * self.nlist * each, self.rows * codes + compared * each, self.hops(compared)

    def hops(self, compared: float) -> float:
        """Steps of a graph's search that compares so many nodes."""
        return compared * log2(max(2, min(self.rows, self.params.part)))

    def compared_nodes(self, ef_search: int | None) -> float:
        """Nodes of graphs that a query is compared with; 0 without a graph."""
        return float(-(-self.rows // self.params.part)) * (ef_search or EF_SEARCH) * self.links if self.links else 0.0

    def searched(self, nprobe: int | None, ef_search: int | None) -> float:
        """Operations of one query."""
        if self.links:
            return self.compared_nodes(ef_search) * 2.0 * self.dimension
        if self.nlist:
            seen = self.rows * min(1.0, (nprobe or 1) / self.nlist)
            return self.nlist * 2.0 * self.dimension + seen * self.compared
        return self.rows * self.compared


def together(setting: Setting) -> str:
    """The rate at which all of a machine searches: exact search's on GPUs."""
    return "faiss" if setting.execution.index_gpu == "none" else "flat_search"


def stretch(index: IndexSize) -> float:
    """Bytes of the vectors that are searched exactly at once, mapped from disk and in float32."""
    return 1.5 * min(STRETCH_BYTES, 4.0 * index.rows * index.dimension)


@cost("index")
def build(stage: Stage, setting: Setting) -> Work:
    """Training by one job; filling, which shards share."""
    index, rate = IndexSize(stage, setting), together(setting)
    (learned, codes), (listed, added, hops) = index.trained(), index.filled()
    sample = 4.0 * index.dimension * index.sample * (2 if index.params.opq else 1)
    part = min(index.rows, index.params.part) * index.each
    return Work(
        rows=((rate, listed), ("faiss_alone", added), ("hops", hops)),
        alone=((rate, learned), ("faiss_alone", codes)),
        memory=150 * MIB + max(sample, part),
        disk=index.rows * index.each + 4 * index.nlist * index.dimension,
    )


@cost("topics")
def topics(stage: Stage, setting: Setting) -> Work:
    """k-means of the training queries' vectors."""
    embeddings = stage.upstream["queries"]
    queries, dimension = setting.queries(embeddings, "train"), setting.dimension(embeddings)
    operations = (ROUNDS + 1) * 2.0 * queries * params_of(stage).clusters * dimension
    return Work(rows=(("faiss", operations),), memory=150 * MIB + 8.0 * queries * dimension, disk=12 * queries)


@cost("ann")
def ann(stage: Stage, setting: Setting) -> Work:
    """Searching an index, scoring its proposals exactly, and the exact search that its recall is measured against."""
    index, params, queries = IndexSize(stage.upstream["index"], setting), params_of(stage), setting.queries(stage)
    depth = min(params.depth, index.rows)
    proposed = min(depth * params.rescore_factor, index.rows) if params.rescore else depth
    each = index.searched(params.nprobe, params.ef_search)
    each += 2.0 * proposed * index.dimension if params.rescore else 0.0
    exact = float(min(params.recall_queries, queries)) * index.rows
    memory = 150 * MIB + 40.0 * min(queries, GROUP) * proposed + index.rows * index.each
    memory += stretch(index) if exact else 0.0
    rows = (
        (together(setting), queries * each),
        ("hops", queries * index.hops(index.compared_nodes(params.ef_search))),
        ("faiss", 2 * exact * index.dimension),
        ("compared", exact),
    )
    return Work(rows=rows, memory=memory, run=setting.run(stage, depth))


@cost("maxsim")
def maxsim(stage: Stage, setting: Setting) -> Work:
    """Products of every query's tokens with every passage's, or an index's search for each and the most promising's."""
    params, count, passages = params_of(stage), setting.passages(stage), stage.upstream["passages"]
    tokens, query_tokens = token_rows(passages, setting), token_rows(stage.upstream["queries"], setting)
    memory, searches = 1024.0 * MIB, dict[str, float]()
    if "index" in stage.upstream:
        index = IndexSize(stage.upstream["index"], setting)
        searches["hops"] = query_tokens * index.hops(index.compared_nodes(params.ef_search))
        searches[together(setting)] = query_tokens * index.searched(params.nprobe, params.ef_search)
        tokens *= min(1.0, params.depth * params.rescore_factor / max(1, count))
        memory += index.rows * (index.each + (0 if params.rescore else 8))
    products = 2.0 * query_tokens * tokens * setting.dimension(passages)
    rows = (*searches.items(), ("flat_search", products))
    return Work(rows=rows, memory=memory, run=setting.run(stage, min(params.depth, count)))


@cost("tradeoffs")
def tradeoffs(stage: Stage, setting: Setting) -> Work:
    """Every setting of every index: a query at a time by one thread, all together by all; and exact search once.

    Of tokens' vectors the passages that an index proposes are scored by MaxSim, whichever vectors decide.
    """
    params, passages = params_of(stage), setting.passages(stage)
    queries, sweep = min(params.queries, setting.queries(stage)), params.sweep
    single, batched = min(queries, ALONE) * (params.repeats + 1), queries * (params.repeats + 2)
    files = -(-passages // params_of(stage.upstream["passages"]).block)
    all_at_once, one_by_one, hops, rescored = 0.0, 0.0, 0.0, 0.0
    asked_by, products = stage.upstream["queries"], 0.0
    is_late = asked_by.declared.vectors == "token"
    tokens = token_rows(asked_by, setting) / max(1, setting.queries(stage)) if is_late else 1.0
    indexes = [IndexSize(above, setting) for role, above in stage.upstream.items() if role.startswith("index.")]
    for index in indexes:
        settings: list[tuple[int | None, int | None]] = [(None, None)]
        if index.links:
            settings = [(None, ef) for ef in sweep.ef_search]
        elif index.nlist:
            settings = [(n, None) for n in [n for n in sweep.nprobe if n <= index.nlist] or [index.nlist]]
        each = tokens * len(sweep.rescore) * sum(index.searched(*values) for values in settings)
        all_at_once += each * batched
        one_by_one += each * single
        nodes = len(sweep.rescore) * sum(index.compared_nodes(ef) for _, ef in settings)
        hops += tokens * index.hops(nodes) * (single + batched)
        proposed = min(passages, max(params.k) * sweep.rescore_factor)
        if is_late:
            searches = len(settings) * len(sweep.rescore) * (single + batched)
            products += searches * proposed * tokens * index.rows / max(1, passages) * 2.0 * index.dimension
        else:
            read = single * min(proposed, files) + batched * proposed / RESCORED
            rescored += len(settings) * sum(sweep.rescore) * read
    exact = tokens * queries * indexes[0].rows
    rows = (
        (together(setting), all_at_once),
        ("faiss_alone", one_by_one),
        ("faiss", 2 * exact * indexes[0].dimension),
        ("compared", exact),
        ("hops", hops),
        ("rescored", rescored),
        ("flat_search", products),
    )
    memory = 0.0 if is_late else stretch(indexes[0])
    return Work(rows=rows, memory=150 * MIB + memory + max(index.rows * index.each for index in indexes))


@cost("retrieve")
def retrieve(stage: Stage, setting: Setting) -> Work:
    """Exact inner-product search of every query against every passage."""
    passages, split = setting.passages(stage), params_of(stage.upstream["queries"]).split
    queries = setting.queries(stage, split)
    compared = float(queries * passages)
    dimension, depth = setting.dimension(stage.upstream["passages"]), params_of(stage).depth
    rows = (("flat_search", 2 * compared * dimension), ("compared", compared))
    # The best of a group of queries have a quarter (retrieve.py), two stretches of vectors a third (faiss_search.py).
    allowed = (setting.execution.search_memory or 2048) * MIB
    held = min(allowed / 4, 16 * queries * depth) + min(allowed / 3, 6 * passages * dimension)
    return Work(rows=rows, memory=LIGHT + held + ORDER * passages, run=setting.run(stage, split=split))


@cost("average_rank")
def average_rank(stage: Stage, setting: Setting) -> Work:
    """Ranking the relevant passage of every query among all of a small collection."""
    dimension = setting.dimension(stage.upstream["passages"])
    return Work(rows=(("flat_search", 2.0 * setting.queries(stage) * setting.passages(stage) * dimension),))


@cost("retrieve_sparse")
def retrieve_sparse(stage: Stage, setting: Setting) -> Work:
    """At most a product for each of a query's weights with every passage."""
    active = active_terms(stage.upstream["queries"], setting)
    operations = 2.0 * setting.queries(stage) * setting.passages(stage) * active
    return Work(rows=(("flat_search", operations),), run=setting.run(stage))


@cost("impacts")
def impacts(stage: Stage, setting: Setting) -> Work:
    """Lucene's index of rounded weights: about two bytes each."""
    rows = (("indexed", setting.passages(stage)),)
    return Work(rows=rows, memory=1024 * MIB, disk=2 * weights_of(stage, setting))


def weights_of(stage: Stage, setting: Setting) -> float:
    """Weights of terms of all passages."""
    return setting.passages(stage) * active_terms(stage.upstream["passages"], setting)


@cost("search_impacts")
def search_impacts(stage: Stage, setting: Setting) -> Work:
    """A search by BM25 whose queries have several times the terms."""
    rows = bm25_rows(stage, setting, setting.queries(stage), params_of(stage).depth, terms=5)
    return Work(rows=rows, memory=bm25_memory(stage, setting), run=setting.run(stage))


@cost("seismic")
def seismic(stage: Stage, setting: Setting) -> Work:
    """Seismic's index: the weights, and lists of the largest of them; in memory while it is built."""
    rows, weights = (("indexed", setting.passages(stage)),), weights_of(stage, setting)
    return Work(rows=rows, memory=1024 * MIB + 24.0 * weights, disk=12 * weights)


@cost("search_seismic")
def search_seismic(stage: Stage, setting: Setting) -> Work:
    """A search through few lists, and exact scores of as many passages as a run is deep."""
    active = active_terms(stage.upstream["passages"], setting)
    rows = (("flat_search", 2.0 * setting.queries(stage) * params_of(stage).depth * active),)
    return Work(rows=rows, memory=1024 * MIB + 24.0 * active * setting.passages(stage), run=setting.run(stage))


@cost("term_tradeoffs")
def term_tradeoffs(stage: Stage, setting: Setting) -> Work:
    """A few searches of a sample of queries, exact and in Lucene."""
    params = params_of(stage)
    searched = min(params.queries, setting.queries(stage)) * (params.repeats + 2)
    rows = bm25_rows(stage, setting, searched, max(params.k), terms=10)
    return Work(rows=rows, memory=1024 * MIB + 12.0 * weights_of(stage, setting))
