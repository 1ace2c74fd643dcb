"""The types of indexes as FAISS factory strings, and what their parameters may be; planning reads it: no FAISS here.

A type is a line of `TYPES` and its keys in `workflow/schemas/config.schema.yaml` (`$defs/index`).
"""

import re
from math import isqrt
from typing import Any

from tandem.errors import UserError

# Filled in from the parameters; `{opq}` is empty or a learned rotation, `{sq}` a scalar quantiser's name. `np` leaves
# out the renumbering of codes for polysemous filtering, which nothing here uses and which takes most of the training.
TYPES: dict[str, str] = {
    "flat": "Flat",
    "sq": "{sq}",
    "pq": "{opq}PQ{m}x{bits}np",
    "ivf_flat": "IVF{nlist},Flat",
    "ivf_sq": "IVF{nlist},{sq}",
    "ivf_pq": "{opq}IVF{nlist},PQ{m}x{bits}np",
    "hnsw": "HNSW{m},Flat",
    "hnsw_sq": "HNSW{m},{sq}",
    "factory": "{factory}",
}
QUANTISERS = {"fp16": "SQfp16", "8bit": "SQ8", "6bit": "SQ6", "4bit": "SQ4"}
# What an entry says about searching: parameters of the run, not of the index.
SEARCHED = ("nprobe", "ef_search", "rescore", "rescore_factor", "recall_queries")
LEAST = 39  # training vectors a centroid, below which FAISS warns
USUAL = 64  # training vectors a list where the entry does not say
SMALLEST = 65_536  # at least so many: 256 for each of a product quantiser's 256 centroids

Params = dict[str, Any]


def sized(params: Params, rows: int, dimension: int) -> Params:
    """Parameters with what is left to the corpus filled in.

    Lists (`nlist`): the power of two up to 4 √rows, of which each has 39 training vectors at least. Bytes of a product
    code (`m`): one for every eight dimensions.

    Args:
        params: an index's.
        rows: passages.
        dimension: of the vectors.
    """
    made = dict(params)
    if "nlist" in made and made["nlist"] is None:
        trained = min(rows, made["train_sample"] or rows)
        made["nlist"] = 1 << (max(1, min(isqrt(16 * rows), trained // LEAST)).bit_length() - 1)
    if "bits" in made and made["m"] is None:
        made["m"] = max(m for m in divisors(dimension) if m <= max(1, dimension // 8))
    return made


def divisors(dimension: int) -> list[int]:
    """Into how many equal parts vectors can be cut."""
    return [m for m in range(1, dimension + 1) if dimension % m == 0]


def factory(params: Params, dimension: int) -> str:
    """FAISS's name of an index of these sized parameters."""
    rotation = f"OPQ{params['m']}_{dimension}," if params.get("opq") else ""
    words = params | {"opq": rotation, "sq": QUANTISERS.get(params.get("sq", ""), "")}
    return TYPES[params["type"]].format_map(words)


def lists(params: Params) -> int | None:
    """How many inverted lists there are; None where there are none or the corpus decides.

    FAISS's words may name what finds the lists, and count in 1,024: `IVF65536_HNSW32,PQ64` is `IVF64k_HNSW32,PQ64`.
    """
    told: int | None = params.get("nlist")
    found = re.search(r"\bIVF(\d+)([kM]?)", params.get("factory", ""))
    return int(found[1]) * {"": 1, "k": 1 << 10, "M": 1 << 20}[found[2]] if found else told


def sample_size(params: Params, rows: int) -> int:
    """How many passages an index of sized parameters learns from."""
    return min(rows, params.get("train_sample") or max(SMALLEST, USUAL * (lists(params) or 0)))


def check(params: Params, where: str, rows: int | None = None, dimension: int | None = None) -> None:
    """Refuse what cannot be built, as far as it is known; nothing long has run yet.

    Args:
        params: an index's.
        where: the dotted path of its entry.
        rows: passages, if known.
        dimension: of the vectors, if known.
    """
    trained = min((size for size in (rows, params.get("train_sample")) if size), default=None)
    nlist, bits, m = lists(params), params.get("bits"), params.get("m")
    if trained and nlist and nlist > trained:
        raise UserError(
            f"{where}: {nlist} lists cannot be learned from {trained} passages; lower nlist (null: as many as fit) or "
            "raise train_sample"
        )
    if trained and bits and 1 << bits > trained:
        raise UserError(
            f"{where}.bits is {bits}: {1 << bits} centroids cannot be learned from {trained} passages; lower it"
        )
    if trained and dimension and params.get("opq") and trained < dimension:
        found = f"a rotation of {dimension} dimensions cannot be learned from {trained} passages"
        raise UserError(f"{where}.opq: {found}; set it to false")
    if dimension and bits and m and dimension % m:
        fit = ", ".join(map(str, divisors(dimension)))
        raise UserError(f"{where}.m is {m}, which does not divide the vectors' {dimension} dimensions; allowed: {fit}")
