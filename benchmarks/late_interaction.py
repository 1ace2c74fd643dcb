"""Late interaction through a compressed index, compared with fast-plaid: share of the exact top ten by milliseconds.

    python benchmarks/late_interaction.py CONFIG... --system colbert@two_bits --plaid PYTHON --folder FOLDER
                                          [--bits 2] [--queries 200] [--threads 1] [--out FILE]

Snakemake makes the missing artifacts of the system: vectors of tokens and an index. The same vectors are written into
FOLDER for fast-plaid (PyLate's index), which runs with PYTHON, of an environment of its own, and builds an index in
FOLDER for each number of bits. Both sides search for the same queries, one at a time, on `--threads` threads. The exact
top is ours, by MaxSim of all stored vectors. With `codes`, the index's codes decide; with `stored`, the stored vectors
of the passages that the index proposes.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from figures import machine
from token_index import DEPTH, ROOT, TOP, make_inputs, search_one_by_one

from tandem.config.settings import Execution
from tandem.contrib.indexes.ann import OpenedIndex
from tandem.contrib.late_interaction import maxsim
from tandem.data.fetch import format_bytes
from tandem.extras.measuring import compute_recall
from tandem.retrieval.exact import Array
from tandem.retrieval.faiss_search import open_threads
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.job import Job

PEER = Path(__file__).with_name("late_interaction_peer.py")
LISTS = (4, 16, 32, 64)  # lists of our index that are searched for each token of a query
# times the depth: tokens that the index returns, and passages that are scored
FACTORS = (2, 10)
PASSAGES_PER_BLOCK = 4096
HEAD = ("side", "index", "asked for", "bytes", "build, s", "ms a query", f"of the top {TOP}")


@dataclass(frozen=True)
class Line:
    """A way to search, and its measurements."""

    side: str
    index: str
    asked: str
    bytes: int
    build: float
    milliseconds: float
    recall: float

    def __str__(self) -> str:
        values = (
            self.side,
            self.index,
            self.asked,
            format_bytes(self.bytes),
            f"{self.build:,.0f}",
            f"{self.milliseconds:,.1f}",
            f"{self.recall:.3f}",
        )
        return f"| {' | '.join(values)} |"


def write_vectors(vectors: maxsim.MappedTexts, texts: Array, folder: Path, name: str) -> None:
    """Write vectors of texts' tokens as one float16 array, and the bounds of each text's rows."""
    lengths = np.diff(vectors.offsets)[texts]
    offsets = np.concatenate([[0], lengths.cumsum()])
    np.save(folder / f"{name}_offsets.npy", offsets)
    out: Array | None = None
    for first in range(0, len(texts), PASSAGES_PER_BLOCK):
        block = texts[first : first + PASSAGES_PER_BLOCK]
        rows = vectors.rows_of(block)
        if out is None:
            shape = (int(offsets[-1]), rows.shape[1])
            path = folder / f"{name}.npy"
            out = np.lib.format.open_memmap(path, "w+", np.float16, shape)
        out[offsets[first] : offsets[first + len(block)]] = rows


def measure_ours(
    search: maxsim.TokenSearch, artifact: Artifact, queries: Array, exact: list[Array], threads: int
) -> Iterator[Line]:
    """Yield a line for each way to search our index."""
    manifest = artifact.manifest
    name = manifest.key.rpartition("-")[0]  # without the hash
    with open_threads(threads) as pool:
        index = OpenedIndex(artifact, pool)
        for decides in ("codes", "stored"):
            decode = index.decode if decides == "codes" else None
            for factor in FACTORS:
                searcher = maxsim.TokenSearcher(search, index, factor, decode)
                for lists in LISTS:
                    index.tune(lists, None)
                    found, milliseconds = search_one_by_one(searcher, queries)
                    recall = compute_recall(found, exact, TOP)
                    asked = f"{lists} lists, {factor} × {DEPTH} tokens"
                    yield Line(
                        f"ours, {decides}",
                        name,
                        asked,
                        manifest.bytes,
                        manifest.seconds,
                        milliseconds,
                        recall,
                    )
        search.passages.decode = None


def measure_peer(
    options: argparse.Namespace, count: int, exact: list[Array], texts: Array
) -> Iterator[Line]:
    """Yield a line for each way to search the peer's indexes; `texts` maps its passages to our numbers."""
    threads = options.threads
    limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), threads)
    environment = os.environ | {name: str(value) for name, value in limits.items()}
    command = [options.plaid, str(PEER), str(options.folder), str(count), str(DEPTH)]
    command += map(str, options.bits)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    for text in done.stdout.splitlines():
        told = json.loads(text)
        found = [texts[np.array(numbers, np.int64)] for numbers in told["found"]]
        yield Line(
            "fast-plaid",
            f"{told['bits']} bits",
            f"{told['probed']} lists, {told['scored']} passages",
            told["bytes"],
            told["build"],
            told["milliseconds"],
            compute_recall(found, exact, TOP),
        )


def main() -> None:
    """Make the system, measure both sides and print their lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("configs", type=Path, nargs="+", help="configuration files, as snakemake's")
    parser.add_argument("--system", required=True, help="late interaction through an index")
    parser.add_argument("--plaid", required=True, help="the Python that has fast-plaid")
    parser.add_argument("--folder", type=Path, required=True, help="gets vectors and indexes")
    parser.add_argument(
        "--bits", type=int, nargs="+", default=[2], help="of a number in the peer's indexes"
    )
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1, help="of both sides")
    parser.add_argument("--cores", type=int, default=1, help="that make what is missing")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)

    roles = ("passages", "queries", "index", "dataset")
    run = make_inputs(options.configs, options.system, roles, options.cores)
    inputs = {
        role: open_artifact(ROOT / stage.folder, verify=False)
        for role, stage in run.upstream.items()
    }
    execution = Execution(workers=options.threads)
    job = Job(run.kind, ROOT / run.folder, run.params, inputs, execution)
    search = maxsim.open_search(job)
    queries = np.flatnonzero(np.diff(search.queries.offsets))[: options.queries]
    passages = search.everything
    if not (options.folder / "queries_offsets.npy").is_file():
        assert isinstance(search.queries, maxsim.MappedTexts)
        write_vectors(search.passages, passages, options.folder, "passages")
        write_vectors(search.queries, queries, options.folder, "queries")

    exact, milliseconds = search_one_by_one(search, queries)
    vectors = inputs["passages"].manifest
    lines = [f"| {' | '.join(HEAD)} |", "|---|---|---|--:|--:|--:|--:|"]
    lines.append(
        str(Line("exact", "none", "all", vectors.bytes, vectors.seconds, milliseconds, 1.0))
    )
    print("\n".join(lines), flush=True)
    ours = measure_ours(search, inputs["index"], queries, exact, options.threads)
    # our results are the ranks of passages' names, so numbers in `passages` become ranks
    ranks = search.order.ranks[passages]
    peer = measure_peer(options, len(queries), exact, ranks)
    for measured in itertools.chain(ours, peer):
        lines.append(str(measured))
        print(lines[-1], flush=True)
    if options.out:
        note = (
            f"`python benchmarks/late_interaction.py`, {options.system}, {len(passages):,} passages of "
            f"{int(search.lengths.sum()):,} tokens, {len(queries)} queries, one at a time, "
            f"{options.threads} threads. {machine()}"
        )
        text = "\n".join(["# Late interaction beside fast-plaid", "", note, "", *lines, ""])
        options.out.write_text(text)


if __name__ == "__main__":
    main()
