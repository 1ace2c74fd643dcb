"""What an index has to do: operations of FAISS to train, fill and search it, memory and disk.

Operations are those of distances, a multiplication and its addition counting as two; what a product code costs in a
search is one table look-up a byte. `faiss` is what all of a machine's threads do together, `faiss_alone` one thread,
`flat_search` exact search (see config/hardware/).
"""

from typing import Any

from tandem.estimating.work import LINE, MIB, Rows, Setting, Work
from tandem.plan.graph import Stage
from tandem.search.indexes.types import lists, sample_size, sized

ROUNDS = 10  # of k-means for inverted lists (search/indexes/kmeans.py)
CODE_ROUNDS, CODE_SAMPLE = 25, 256  # of k-means for a part of a code, and vectors a centroid at most (FAISS's)
ROTATIONS, ROTATION_ROUNDS = 50, 4  # of OPQ, and rounds of its codes in each (FAISS's)
FOUND = 16  # candidates of a search in a graph where nothing is told (FAISS's)
BYTES = {"fp16": 2.0, "8bit": 1.0, "6bit": 0.75, "4bit": 0.5}
GROUP = 1024  # queries whose candidates are held together
ALONE = 100  # queries that trade-offs ask one at a time


class Index:
    """An index in numbers.

    Attributes:
        params: with what the corpus decides filled in.
        rows: passages.
        dimension: of their vectors.
        nlist: inverted lists, 0 without.
        links: of a passage in a graph's lowest layer, 0 without a graph.
    """

    def __init__(self, stage: Stage, about: Setting) -> None:
        made = stage.upstream["passages"]
        self.rows = about.sizes(made.upstream["dataset"]).passages
        self.dimension = about.shape(made.upstream["tokens"]).hidden
        self.params: dict[str, Any] = sized(stage.values, self.rows, self.dimension)
        self.nlist = lists(self.params) or 0
        self.links = 2 * self.params["m"] if "ef_construction" in self.params and self.params.get("m") else 0
        self.sample = 0 if "train_sample" not in self.params else sample_size(self.params, self.rows)

    @property
    def each(self) -> float:
        """Bytes of a passage: its vector or code, its id in a list, its links. FAISS's own words count as float32."""
        code = BYTES.get(self.params.get("sq", ""), 4.0) * self.dimension
        if self.params.get("bits"):
            code = self.params["m"] * self.params["bits"] / 8
        return code + (8 if self.nlist else 0) + 4 * self.links

    @property
    def compared(self) -> float:
        """Operations to compare a query with a passage."""
        return float(self.params["m"]) if self.params.get("bits") else 2.0 * self.dimension

    def trained(self) -> tuple[float, float]:
        """Operations to learn from the sample: of all threads (lists), and of one (rotation and codes)."""
        centroids, n, d = 1 << (self.params.get("bits") or 0), self.sample, self.dimension
        few, alone = min(n, CODE_SAMPLE * centroids), 0.0
        if self.params.get("bits"):
            alone = CODE_ROUNDS * 2.0 * few * centroids * d
            if self.params.get("opq"):
                alone += ROTATIONS * 2.0 * min(n, CODE_SAMPLE * 256) * d * (2 * d + ROTATION_ROUNDS * 256)
        return ROUNDS * 2.0 * n * self.nlist * d, alone

    def filled(self) -> tuple[float, float]:
        """Operations to add all passages: of all threads (their lists), and of one (codes, a graph's links)."""
        each = 2.0 * self.dimension
        alone = (1 << self.params["bits"]) * each if self.params.get("bits") else 0.0
        if self.links:
            alone += self.params["ef_construction"] * self.links * each
        return self.rows * self.nlist * each, self.rows * alone

    def searched(self, nprobe: int | None, ef_search: int | None) -> float:
        """Operations of one query."""
        if self.links:
            parts = -(-self.rows // self.params["part"])
            return float(parts) * (ef_search or FOUND) * self.links * 2.0 * self.dimension
        if self.nlist:
            seen = self.rows * min(1.0, (nprobe or 1) / self.nlist)
            return self.nlist * 2.0 * self.dimension + seen * self.compared
        return self.rows * self.compared


def together(about: Setting) -> str:
    """At which rate all of a machine searches: exact search's on GPUs."""
    return "faiss" if about.execution.get("index_gpu", "none") == "none" else "flat_search"


def index(stage: Stage, about: Setting) -> Work:
    """Training by one job; filling, which shards share."""
    one, rate = Index(stage, about), together(about)
    (learned, codes), (listed, added) = one.trained(), one.filled()
    held = 4.0 * one.dimension * one.sample * (2 if one.params.get("opq") else 1)
    part = min(one.rows, one.params["part"]) * one.each
    return Work(
        rows=((rate, listed), ("faiss_alone", added)),
        alone=((rate, learned), ("faiss_alone", codes)),
        memory=150 * MIB + max(held, part),
        disk=one.rows * one.each + 4 * one.nlist * one.dimension,
    )


def ann(stage: Stage, about: Setting) -> Work:
    """Searching an index, exact scores of what it proposes, and the exact search that recall is told against."""
    one, told = Index(stage.upstream["index"], about), stage.values
    asked = about.sizes(stage.upstream["dataset"]).queries.get(told["split"], 0)
    depth = min(told["depth"], one.rows)
    proposed = min(depth * told["rescore_factor"], one.rows) if told["rescore"] else depth
    each = one.searched(told.get("nprobe"), told.get("ef_search"))
    each += 2.0 * proposed * one.dimension if told["rescore"] else 0.0
    exact = 2.0 * min(told["recall_queries"], asked) * one.rows * one.dimension
    memory = 150 * MIB + 40.0 * min(asked, GROUP) * proposed
    rows: Rows = ((together(about), asked * each), ("faiss_alone", exact))
    return Work(rows=rows, memory=memory, disk=asked * depth * LINE)


def tradeoffs(stage: Stage, about: Setting) -> Work:
    """Every setting of every index: a query at a time by one thread, all together by all; and exact search once."""
    size, told = about.sizes(stage.upstream["dataset"]), stage.values
    asked, sweep = min(told["queries"], size.queries.get(told["split"], 0)), told["sweep"]
    all_at_once = one_by_one = 0.0
    indexes = [Index(above, about) for role, above in stage.upstream.items() if role.startswith("index.")]
    for one in indexes:
        settings: list[tuple[int | None, int | None]] = [(None, None)]
        if one.links:
            settings = [(None, ef) for ef in sweep["ef_search"]]
        elif one.nlist:
            settings = [(n, None) for n in [n for n in sweep["nprobe"] if n <= one.nlist] or [one.nlist]]
        each = len(sweep["rescore"]) * sum(one.searched(*setting) for setting in settings)
        all_at_once += each * asked * (told["repeats"] + 2)
        one_by_one += each * min(asked, ALONE) * (told["repeats"] + 1)
    exact = 2.0 * asked * indexes[0].rows * indexes[0].dimension
    return Work(rows=((together(about), all_at_once), ("faiss_alone", one_by_one + exact)), memory=300 * MIB)
