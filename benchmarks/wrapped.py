"""The overhead of our search of an index over FAISS: ours against FAISS on the same file, in one process.

    python benchmarks/wrapped.py [--quick] [--vectors N] [--out FILE]

One line per measurement, separated by tabs: what, ours, peer, ratio, unit. Both sides take turns on the same queries
and threads, and medians are compared; scores must be the same except for rounding. Ours is the search that the stage
`ann` calls, without exact scores: queries in fixed batches with a thread each, so that no bit depends on the threads.
The peer passes all queries to FAISS at once. FAISS also prints a line of its own when it writes lists to disk and opens
them.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from figures import markdown
from made_vectors import CENTRES, embeddings, vectors

from tandem.contrib.indexes.ann import OpenedIndex
from tandem.contrib.indexes.index import run
from tandem.retrieval.faiss_search import open_threads
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.job import Job

DIMENSION, K = 384, 100
LEARNED = {"train_sample": None, "seed": 42, "part": 1 << 22}
INDEXES: dict[str, dict[str, Any]] = {
    "wrap_ivf": {"type": "ivf_flat", "nlist": None, **LEARNED},
    "wrap_hnsw": {"type": "hnsw", "m": 32, "ef_construction": 100, "part": 1 << 22},
}
NPROBE, EF_SEARCH = 16, 128
NOTE = """`python benchmarks/wrapped.py`: {vectors:,} vectors of {dimension} dimensions around {centres:,} centres,
{queries:,} queries, {k} passages each, nprobe {nprobe}, efSearch {ef}, {threads} threads; medians of {rounds} rounds in
turn."""


def seconds(search: Callable[[], Any]) -> float:
    """Return the wall time of a call."""
    began = time.perf_counter()
    search()
    return time.perf_counter() - began


def compared(artifact: Artifact, queries: Any, threads: int, rounds: int) -> tuple[float, float]:
    """Return the queries per second, ours and the peer's."""
    index = faiss.read_index(str(artifact.path("index.faiss")), faiss.IO_FLAG_ONDISK_SAME_DIR)
    space = faiss.ParameterSpace()
    name, value = (
        ("efSearch", EF_SEARCH) if "ef_construction" in artifact.params else ("nprobe", NPROBE)
    )
    space.set_index_parameter(index, name, value)
    ours: list[float] = []
    peer: list[float] = []
    for _ in range(rounds + 1):
        with open_threads(threads) as pool:
            opened = OpenedIndex(artifact, pool)
            opened.tune(NPROBE, EF_SEARCH)
            opened.search(queries[:64], K)
            ours.append(seconds(partial(opened.search, queries, K)))
            scores = opened.search(queries, K)[0]
        faiss.omp_set_num_threads(threads)
        peer.append(seconds(partial(index.search, queries, K)))
    if not np.allclose(scores, index.search(queries, K)[0], atol=1e-5):
        raise SystemExit("the two sides find other passages")
    return len(queries) / statistics.median(ours[1:]), len(queries) / statistics.median(peer[1:])


def lines(folder: Path, count: int, query_count: int, rounds: int) -> Iterator[str]:
    """Yield a line for each index."""
    passages, queries = (
        embeddings(folder, count, DIMENSION),
        vectors(query_count, DIMENSION, 1).astype(np.float32),
    )
    threads = os.cpu_count() or 1
    for name, params in INDEXES.items():
        job = Job(
            "index",
            folder / f"made@{name}-0000000000",
            params,
            {"passages": passages},
            {"workers": threads},
        )
        run(job)
        ours, peer = compared(open_artifact(job.out), queries, threads, rounds)
        yield f"{name}\t{ours:,.1f}\t{peer:,.1f}\t{ours / peer:.3f}\tqueries/s"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="few vectors, one round: whether it runs"
    )
    parser.add_argument("--vectors", type=int, help="how many")
    parser.add_argument("--out", type=Path, help="also write the figures to this Markdown file")
    options = parser.parse_args()
    count = options.vectors or (5000 if options.quick else 100_000)
    query_count, rounds = (200, 1) if options.quick else (4000, 7)
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for line in lines(Path(folder), count, query_count, rounds):
            print(line, flush=True)
            table.append(line)
    if options.out:
        note = NOTE.format(
            vectors=count, dimension=DIMENSION, centres=CENTRES, queries=query_count, k=K, nprobe=NPROBE, ef=EF_SEARCH,
            threads=os.cpu_count(), rounds=rounds,
        )  # fmt: skip
        options.out.write_text(markdown("Searching an index", note, table))


if __name__ == "__main__":
    main()
