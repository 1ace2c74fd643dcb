"""The side of fast-plaid in `late_interaction.py`, run by the Python of its environment; needs only numpy and torch.

    PYTHON benchmarks/late_interaction_peer.py FOLDER QUERIES DEPTH BITS…

FOLDER has `passages.npy` and `queries.npy`, float16 vectors of tokens end to end, and `…_offsets.npy`. The script
prints a line of JSON for each way to search: bits, lists that are probed, passages that are scored, bytes, seconds to
build, milliseconds, and the passages found for each query. An existing index is not built again.
"""

import itertools
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from fast_plaid import search

PROBED = (1, 4, 8, 16, 32)
SCORED = (1024, 4096)


def read_vectors(folder: Path, name: str) -> list[torch.Tensor]:
    """Return a tensor of float32 vectors for each text."""
    vectors = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    offsets = np.load(folder / f"{name}_offsets.npy", allow_pickle=False)
    return [
        torch.from_numpy(vectors[first:end].astype(np.float32))
        for first, end in itertools.pairwise(offsets)
    ]


def build(folder: Path, bits: int) -> tuple[search.FastPlaid, float]:
    """Return an index of the passages and the seconds that building it took."""
    place = folder / f"plaid_{bits}"
    took = folder / f"plaid_{bits}.seconds"
    index = search.FastPlaid(index=str(place), device="cpu")
    if not took.is_file():
        passages = read_vectors(folder, "passages")
        began = time.perf_counter()
        index.create(documents_embeddings=passages, nbits=bits)
        took.write_text(str(time.perf_counter() - began))
    return index, float(took.read_text())


def main() -> None:
    """Search each index in each way."""
    folder, count, depth = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    queries = read_vectors(folder, "queries")[:count]
    for bits in map(int, sys.argv[4:]):
        index, seconds = build(folder, bits)
        size = sum(path.stat().st_size for path in (folder / f"plaid_{bits}").rglob("*"))
        for scored in SCORED:
            for probed in PROBED:
                way = {"top_k": depth, "n_ivf_probe": probed, "n_full_scores": scored}
                way["show_progress"] = False
                index.search(queries_embeddings=queries[0][None], **way)
                found, times = [], []
                for query in queries:
                    began = time.perf_counter()
                    best = index.search(queries_embeddings=query[None], **way)
                    times.append(time.perf_counter() - began)
                    found.append([number for number, _ in best[0]])
                told = {
                    "bits": bits,
                    "probed": probed,
                    "scored": scored,
                    "bytes": size,
                    "build": seconds,
                    "milliseconds": 1000 * statistics.median(times),
                    "found": found,
                }
                print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
