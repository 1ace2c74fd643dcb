"""The types of indexes as FAISS factory strings, and the limits of their parameters. Planning reads it: no FAISS."""

from math import isqrt

from tandem.config.indexes import SIGN_INDEX
from tandem.contrib.indexes.factory_strings import LEAST_BITS_OF_PAIRS, describe_factory
from tandem.contrib.indexes.options import FAISS_INDEXES, IndexParams
from tandem.errors import UserError

# Placeholders are filled from the parameters; `{opq}` becomes empty or a learned rotation, `{sq}` a scalar quantiser's
# name. `np` leaves out the renumbering of codes for polysemous filtering, which is not used here and would take most of
# the training.
INDEX_FACTORIES: dict[str, str] = {
    "flat": "Flat",
    "sq": "{sq}",
    "binary": SIGN_INDEX,
    "pq": "{opq}PQ{m}x{bits}np",
    "ivf_flat": "IVF{nlist},Flat",
    "ivf_sq": "IVF{nlist},{sq}",
    "ivf_pq": "{opq}IVF{nlist},PQ{m}x{bits}np",
    "hnsw": "HNSW{m},Flat",
    "hnsw_sq": "HNSW{m},{sq}",
    "factory": "{factory}",
}
_QUANTISERS = {"fp16": "SQfp16", "8bit": "SQ8", "6bit": "SQ6", "4bit": "SQ4"}
# Keys of an entry that decide how it is searched: they are parameters of the run, not of the index.
SEARCH_KEYS = ("nprobe", "ef_search", "rescore", "rescore_factor", "recall_queries")
LEAST_VECTORS_PER_LIST = 39  # training vectors per centroid, below which FAISS warns
_VECTORS_PER_LIST = 64  # training vectors per list, the default
# training vectors, at least: 256 for each of a product quantiser's 256 centroids
_SMALLEST_SAMPLE = 65_536


def has_parameter(params: IndexParams, name: str) -> bool:
    """Return whether a parameter has a meaning for an index's type: `nlist`, `bits`, `m`, `sq`, `opq`."""
    return f"{{{name}}}" in INDEX_FACTORIES[params.type]


def fill_sizes(params: IndexParams, rows: int, dimension: int) -> IndexParams:
    """Fill in the parameters that depend on the corpus.

    Lists (`nlist`): the largest power of two up to 4 √rows with which each list has at least 39 training vectors. Bytes
    of a product code (`m`): the largest divisor of the dimension that is at most an eighth of it.
    """
    filled: dict[str, int] = {}
    if has_parameter(params, "nlist") and params.nlist is None:
        trained = min(rows, params.train_sample or rows)
        most = max(1, min(isqrt(16 * rows), trained // LEAST_VECTORS_PER_LIST))
        filled["nlist"] = 1 << (most.bit_length() - 1)  # the largest power of two up to `most`
    if has_parameter(params, "bits") and params.m is None:
        most_bytes = max(1, dimension // 8)
        filled["m"] = max(m for m in list_divisors(dimension) if m <= most_bytes)
    return params.model_copy(update=filled)


def list_divisors(dimension: int) -> list[int]:
    """Return the numbers of equal parts into which vectors can be cut.

    >>> list_divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [m for m in range(1, dimension + 1) if dimension % m == 0]


def name_factory(params: IndexParams, dimension: int) -> str:
    """Return FAISS's factory string for an index with these sized parameters."""
    values = params.model_dump()
    values["opq"] = f"OPQ{params.m}_{dimension}," if params.opq else ""
    values["sq"] = _QUANTISERS[params.sq]
    return INDEX_FACTORIES[params.type].format(**values)


def count_lists(params: IndexParams) -> int | None:
    """Return the number of inverted lists; None without any, or if the corpus decides it.

    Raises:
        ValueError: for a factory string that `check_index` refuses.
    """
    if params.factory is None:
        return params.nlist
    return describe_factory(params.factory).lists or None


def count_links(params: IndexParams) -> int:
    """Return the links of a graph's node; 0 for an index that is not a graph, whose `m` is the parts of a code."""
    if params.factory is not None:
        return describe_factory(params.factory).links
    return (params.m or 0) if FAISS_INDEXES[params.type].is_graph else 0


def sample_size(params: IndexParams, rows: int) -> int:
    """Return the number of passages on which an index with sized parameters is trained."""
    usual = max(_SMALLEST_SAMPLE, _VECTORS_PER_LIST * (count_lists(params) or 0))
    return min(rows, params.train_sample or usual)


def check_index(
    params: IndexParams, where: str, rows: int | None = None, dimension: int | None = None
) -> None:
    """Refuse parameters that cannot be built from `rows` passages, if known; `where` is the path of the entry."""
    if params.factory is not None:
        _check_factory(params, params.factory, where, rows, dimension)
    trained = min((size for size in (rows, params.train_sample) if size), default=None)
    nlist = count_lists(params)
    bits = params.bits if has_parameter(params, "bits") else None
    if trained and nlist and nlist > trained:
        problem = f"{nlist} lists cannot be learned from {trained} passages"
        raise UserError(
            f"{where}: {problem}; lower nlist (null: as many as fit) or raise train_sample"
        )
    if trained and bits and 1 << bits > trained:
        problem = f"{1 << bits} centroids cannot be learned from {trained} passages"
        raise UserError(f"{where}.bits is {bits}: {problem}; lower it")
    if (
        trained
        and dimension
        and has_parameter(params, "opq")
        and params.opq
        and trained < dimension
    ):
        problem = f"a rotation of {dimension} dimensions cannot be learned from {trained} passages"
        raise UserError(f"{where}.opq: {problem}; set it to false")
    if dimension and bits and params.m and dimension % params.m:
        fit = ", ".join(map(str, list_divisors(dimension)))
        problem = f"does not divide the vectors' {dimension} dimensions"
        raise UserError(f"{where}.m is {params.m}, which {problem}; allowed: {fit}")
    if (
        params.type == "pq"
        and params.m
        and dimension == 2 * params.m
        and params.bits < LEAST_BITS_OF_PAIRS
    ):
        problem = f"FAISS cannot search so few of each of {params.m} parts of two dimensions"
        raise UserError(
            f"{where}.bits is {params.bits}: {problem}; "
            f"give at least {LEAST_BITS_OF_PAIRS}, another m, or type ivf_pq"
        )


def _check_factory(
    params: IndexParams, text: str, where: str, rows: int | None, dimension: int | None
) -> None:
    """Refuse a factory string that is not an index of vectors of this dimension, or needs more to learn from."""
    try:
        described = describe_factory(text, dimension)
    except ValueError as error:
        raise UserError(f"{where}.factory is {text}: {error}") from None
    if described.lists < described.least and (rows or params.train_sample):
        trained = sample_size(params, rows or params.train_sample or 0)
        if trained < described.least:
            problem = f"it is learned from {trained:,} vectors, but needs {described.least:,}"
            raise UserError(
                f"{where}.factory is {text}: {problem}; name a smaller one, or raise train_sample"
            )
