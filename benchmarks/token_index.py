"""Growth of late interaction's compressed index: generated collections of several sizes, one model.

    python benchmarks/token_index.py FOLDER [--passages 5000 50000 500000] [--queries 10] [--cores 1] [--out FILE]

The script writes a network without layers, and a collection and a configuration for each size, into FOLDER. Snakemake
makes the vectors block by block and the index part by part, so that memory does not grow with the passages. If the
script is run again, it resumes; the measurements are in `measured.json`. A query has 32 vectors of 128 numbers, and the
depth is 100. Exact MaxSim reads every stored vector (fp16); the compressed search reads codes of two bits per number
(`two_bits`) of passages that have a token near one of the query's. Queries are searched one at a time, on one thread if
OMP_NUM_THREADS is 1. The network knows only words, so that its share of the exact top says little about other models.
`--out` writes the table as Markdown.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from at_scale import network
from figures import machine
from generated import generate

from tandem.config.merging import gathered
from tandem.config.settings import Execution
from tandem.contrib.late_interaction import maxsim
from tandem.data.fetch import format_bytes
from tandem.extras.measuring import compute_recall
from tandem.extras.plan import FullPlan
from tandem.plan.graph import Stage
from tandem.retrieval.exact import Array
from tandem.store.artifact import open_artifact
from tandem.store.job import Job

ROOT = Path(__file__).parents[1]
SIZES = (5_000, 50_000, 500_000)
QUERIES = {"train": 250, "test": 100}
DEPTH, TOP = 100, 10
SYSTEM = "late@two_bits"
HEAD = (
    "passages",
    "tokens",
    "vectors",
    "index",
    "encoding, s",
    "build, s",
    "exact, ms",
    "compressed, ms",
    "of the top 10",
)


def main() -> None:
    """Make and measure each size, the smallest first, and print its line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, help="where collections, network and configurations are or will be"
    )
    parser.add_argument("--passages", type=int, nargs="+", default=SIZES)
    parser.add_argument("--queries", type=int, default=10, help="whose latency is measured")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = options.folder.resolve()
    lines = [f"| {' | '.join(HEAD)} |", f"|{'--:|' * len(HEAD)}"]
    print("\n".join(lines))
    for passages in sorted(options.passages):
        own = folder / str(passages)
        if not (own / "measured.json").is_file():
            figures = measured(built(folder, passages, options.cores), options.queries)
            (own / "measured.json").write_text(json.dumps(figures))
        lines.append(
            line({"passages": passages, **json.loads((own / "measured.json").read_text())})
        )
        print(lines[-1], flush=True)
    if options.out:
        note = f"`python benchmarks/token_index.py`, {options.queries} queries. {machine()}"
        options.out.write_text(
            "\n".join(["# How a compressed index of tokens grows", "", note, "", *lines, ""])
        )


def built(folder: Path, passages: int, cores: int) -> Stage:
    """Build the inputs of the run through the index, and return the run's stage."""
    for size in (SIZES[0], passages):  # the smallest trains the model
        if not (folder / str(size) / "queries.jsonl").is_file():
            generate(folder / str(size), size, QUERIES)
    if not (folder / "words/config.json").is_file():
        network(folder / "words", layers=0)
    configuration = folder / str(passages) / "configuration.yaml"
    configuration.write_text(yaml.safe_dump(settings(folder, passages)))
    return make_inputs([configuration], SYSTEM, ("index", "queries"), cores)


def make_inputs(configs: list[Path], system: str, roles: Iterable[str], cores: int) -> Stage:
    """Build the inputs in these roles of a system's run on the test queries, and return the run's stage."""
    run = FullPlan(gathered(configs, ROOT), ROOT).planner.run(system, "test", system)
    targets = [run.upstream[role].manifest for role in roles]
    files = map(str, configs)
    words = ["snakemake", "--cores", str(cores), *targets, "--configfile", *files]
    done = subprocess.run(words, cwd=ROOT, stdout=sys.stderr)
    if done.returncode:
        sys.exit(done.returncode)
    return run


def settings(folder: Path, passages: int) -> dict[str, Any]:
    """Return the configuration: late interaction that learns for a few steps on the smallest collection."""
    train = {"steps": 10, "queries_per_batch": 16, "list_size": 2, "lr": 1.0e-3}
    return {
        "dataset": f"tokens_{passages}",
        "train_on": f"tokens_{SIZES[0]}",
        "datasets": {
            f"tokens_{size}": {"source": "beir", "path": str(folder / str(size))}
            for size in (SIZES[0], passages)
        },
        "encoder": "words",
        "encoders": {
            "words": {"source": "folder", "path": str(folder / "words"), "pooling": "mean"}
        },
        "recipes": [],
        "tables": [],
        "systems": [SYSTEM],
        "models": {
            # without the models of config/config.yaml
            **dict.fromkeys(("de_bm25neg", "ce_bm25neg", "ce_deneg", "rocketqav2")),
            "late": {
                "objective": "dual",
                "representation": "multi",
                "shared": True,
                "candidates": {"from": "random", "depth": 8},
                "train": {"choose": "last", **train},
            },
        },
        "depth": {"test": DEPTH},
        "lengths": {"query": 30, "passage": 128},
    }


def measured(run: Stage, count: int) -> dict[str, float]:
    """Return the values of the table's columns, measured on finished artifacts."""
    inputs = {
        role: open_artifact(ROOT / stage.folder, verify=False)
        for role, stage in run.upstream.items()
    }
    job = Job(run.kind, ROOT / run.folder, run.params, inputs, Execution(workers=1))
    search = maxsim.open_search(job)
    queries = np.arange(count)
    exact, exact_ms = search_one_by_one(search, queries)
    with maxsim.open_token_search(job, search) as compressed:
        proposed, compressed_ms = search_one_by_one(compressed, queries)
    vectors, index = inputs["passages"].manifest, inputs["index"].manifest
    return {
        "tokens": search.passages.rows,
        "vectors": vectors.bytes,
        "index": index.bytes,
        "encoding": vectors.seconds,
        "build": index.seconds,
        "exact": exact_ms,
        "compressed": compressed_ms,
        "recall": compute_recall(proposed, exact, TOP),
    }


def search_one_by_one(
    search: maxsim.TokenSearch | maxsim.TokenSearcher, queries: Array
) -> tuple[list[Array], float]:
    """Return each query's passages, best first, and the median milliseconds per query after a warm-up query."""
    search.search(queries[:1], DEPTH)
    ranks, seconds = list[Array](), list[float]()
    for query in queries:
        began = time.perf_counter()
        best = search.search(np.array([query]), DEPTH)
        seconds.append(time.perf_counter() - began)
        ranks += best.list_ranks()
    return ranks, 1000 * statistics.median(seconds)


def line(figures: dict[str, float]) -> str:
    """Return a row of the table."""
    sizes = [format_bytes(int(figures[name])) for name in ("vectors", "index")]
    counts = [f"{figures[name]:,.0f}" for name in ("passages", "tokens")]
    share = f"{figures['recall']:.2f}"
    times = [f"{figures[name]:,.1f}" for name in ("encoding", "build", "exact", "compressed")]
    return f"| {' | '.join([*counts, *sizes, *times, share])} |"


if __name__ == "__main__":
    main()
