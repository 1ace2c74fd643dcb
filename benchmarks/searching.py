"""Exact search against calling FAISS or torch directly: speed, memory, and whether the same passages are found.

    python benchmarks/searching.py [--quick] [--vectors N] [--queries N] [--depth K] [--memory MIB] [--out FILE]

One line per measurement, separated by tabs: what, ours, peer, ratio, unit. Each side is a process of its own; they take
turns, and medians are compared. Both begin with the vectors' files and end with each query's best passages. Ours
searches as the stage `retrieve` does, stretch by stretch, with exact scores. The peer of `exact_faiss` fills an
IndexFlatIP and searches it; that of `exact_torch` multiplies with all vectors and takes the top. `same` is the share of
the peer's passages that are also ours; `equal` states whether our engines return the same bytes. If CUDA is available,
torch runs there, and MS MARCO's size is measured, too.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from figures import markdown
from made_vectors import embeddings, vectors

from tandem.cluster.progress import Progress
from tandem.config.retrieval import search_engine
from tandem.retrieval.embeddings import Embeddings, Stretches
from tandem.retrieval.exact import unpack_keys
from tandem.store.artifact import open_artifact
from tandem.store.environment import peak_mib

DIMENSION, WARM, ROUNDS = 768, 32, 3
MS_MARCO = 8_841_823  # passages
MS_MARCO_QUERIES = {"dev": 6_980, "all of dev": 101_093}
SIDES = ("exact_faiss", "exact_torch", "faiss", "torch")
NOTE = """`python benchmarks/searching.py`: {vectors:,} vectors of {dimension} dimensions, {queries:,} queries,
{depth:,} passages each, {memory:,} MiB for ours, {threads} threads; medians of {rounds} rounds in turn, from files to
results."""


def ours(engine: str, passages: Embeddings, queries: Any, depth: int, memory: int) -> Any:
    """Return the rows of the best passages by the stage's search, shape (queries, depth)."""
    search = search_engine[engine]().search
    read = Stretches(
        passages,
        range(len(passages)),
        np.arange(passages.rows, dtype=np.uint32),
        Progress("", 0, ""),
    )
    read.progress.quiet = True
    keys = search(queries, read, depth, memory << 20, os.cpu_count())
    return unpack_keys(np.sort(keys, axis=1)[:, ::-1])[1]


def by_faiss(passages: Embeddings, queries: Any, depth: int) -> Any:
    """Return the rows of the best passages by an IndexFlatIP."""
    import faiss

    index = faiss.IndexFlatIP(passages.dimension)
    for _, block in passages.iterate_blocks():
        index.add(block.astype(np.float32))
    return index.search(queries.astype(np.float32), depth)[1]


def by_torch(passages: Embeddings, queries: Any, depth: int) -> Any:
    """Return the rows of the best passages by matrix products and topk: fp16 on CUDA, else float32."""
    import torch

    where, kind = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
    blocks = [
        torch.from_numpy(np.array(block)).to(where, kind) for _, block in passages.iterate_blocks()
    ]
    held, rows = torch.cat(blocks), []
    for batch in torch.from_numpy(queries).to(where, kind).split(256):
        rows.append((batch @ held.T).topk(depth, dim=1).indices.cpu())
    return torch.cat(rows).numpy()


def child(side: str, folder: Path, depth: int, memory: int) -> list[float]:
    """Search as one side and store its results; return queries per second and peak MiB."""
    passages, queries = (
        Embeddings(open_artifact(folder, verify=False), "passages"),
        np.load(folder / "queries.npy", allow_pickle=False),
    )
    searches: dict[str, Callable[[Any], Any]] = {
        "exact_faiss": lambda batch: ours("faiss", passages, batch, depth, memory),
        "exact_torch": lambda batch: ours("torch", passages, batch, depth, memory),
        "faiss": lambda batch: by_faiss(passages, batch, depth),
        "torch": lambda batch: by_torch(passages, batch, depth),
    }
    searches[side](queries[:WARM])  # imports, and reads the files into memory
    began = time.perf_counter()
    rows = searches[side](queries)
    taken = time.perf_counter() - began
    np.save(folder / f"{side}.npy", rows)
    return [len(queries) / taken, peak_mib()]


def run(side: str, folder: Path, depth: int, memory: int) -> list[float]:
    """Return the numbers that a child process prints."""
    words = [sys.executable, __file__, "--child", side, str(folder), str(depth), str(memory)]
    done = subprocess.run(words, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr.decode()[-2000:]}")
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def lines(
    folder: Path, depth: int, memory: int, rounds: int, sides: tuple[str, ...] = SIDES
) -> Iterator[str]:
    """Yield the lines of one collection."""
    taken: dict[str, list[list[float]]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, runs in taken.items():
            runs.append(run(side, folder, depth, memory))
    rows = {side: np.load(folder / f"{side}.npy", allow_pickle=False) for side in sides}
    rate, peak = (
        {side: statistics.median(figures[i] for figures in runs) for side, runs in taken.items()}
        for i in (0, 1)
    )
    for name in (side for side in sides if side.startswith("exact_")):
        peer = name.removeprefix("exact_")
        if peer in sides:
            yield f"{name}\t{rate[name]:,.1f}\t{rate[peer]:,.1f}\t{rate[name] / rate[peer]:.3f}\tqueries/s"
            yield f"{name} peak memory\t{peak[name]:,.0f}\t{peak[peer]:,.0f}\t{peak[name] / peak[peer]:.2f}\tMiB"
            pairs = zip(rows[name], rows[peer], strict=True)
            same = np.mean([len(np.intersect1d(a, b)) / depth for a, b in pairs])
            yield f"{name} same\t{same:.5f}\t\t\tof the peer's passages"
        else:
            yield f"{name}\t{rate[name]:,.1f}\t\t\tqueries/s"
    if {"exact_faiss", "exact_torch"} <= rows.keys():
        yield f"engines equal\t{np.array_equal(rows['exact_faiss'], rows['exact_torch'])}\t\t\t"


def cuda() -> bool:
    """Return whether torch finds a GPU; another process checks it, since torch and FAISS do not share a process."""
    command = [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
    return subprocess.run(command).returncode == 0


def collection(folder: Path, count: int, query_count: int) -> Path:
    """Write embeddings and queries; return their folder."""
    place = embeddings(folder, count, DIMENSION).folder
    np.save(place / "queries.npy", vectors(query_count, DIMENSION, 1))
    return place


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="few vectors, one round: whether it runs"
    )
    parser.add_argument("--vectors", type=int, help="how many; otherwise 200,000")
    parser.add_argument("--queries", type=int, help="how many; otherwise 1,000")
    parser.add_argument("--depth", type=int, help="passages a query; otherwise 1,000")
    parser.add_argument(
        "--memory", type=int, default=2048, help="MiB for ours, as execution.search_memory"
    )
    parser.add_argument("--out", type=Path, help="also write the figures to this Markdown file")
    parser.add_argument("--ms-marco", action="store_true", help="MS MARCO's size alone, on a GPU")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        side, folder, depth, memory = options.child
        print(json.dumps(child(side, Path(folder), int(depth), int(memory))))
        return
    usual = (5000, 64, 100) if options.quick else (200_000, 1000, 1000)
    choices = zip((options.vectors, options.queries, options.depth), usual, strict=True)
    count, query_count, depth = (value or default for value, default in choices)
    rounds, table = 1 if options.quick else ROUNDS, []

    def tell(line: str) -> None:
        """Print a line and store it."""
        print(line, flush=True)
        table.append(line)

    if not options.ms_marco:
        with tempfile.TemporaryDirectory() as temporary:
            for line in lines(
                collection(Path(temporary), count, query_count), depth, options.memory, rounds
            ):
                tell(line)
    if cuda() and not options.quick:
        with tempfile.TemporaryDirectory() as temporary:
            folder = embeddings(Path(temporary), MS_MARCO, DIMENSION).folder
            for name, query_count in MS_MARCO_QUERIES.items():
                np.save(folder / "queries.npy", vectors(query_count, DIMENSION, 1))
                for line in lines(
                    folder, 1000, max(options.memory, 16384), rounds, ("exact_torch",)
                ):
                    tell(f"MS MARCO's {MS_MARCO:,} for {query_count:,} queries ({name}): {line}")
    if options.out:
        note = NOTE.format(
            vectors=count, dimension=DIMENSION, queries=query_count, depth=depth, memory=options.memory,
            threads=os.cpu_count(), rounds=rounds,
        )  # fmt: skip
        options.out.write_text(markdown("Exact search", note, table))


if __name__ == "__main__":
    main()
