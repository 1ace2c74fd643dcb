"""BM25 by Lucene and by bm25s on one dataset: seconds of indexing, queries per second, memory, effectiveness.

    python benchmarks/sparse.py [--quick] [--dataset FOLDER] [--split SPLIT] [--depth N] [--out FILE]

FOLDER is an artifact of the stage `dataset`; by default, the newest one of pydocs below results/, as `make run` leaves
it. Each stage is a process of its own. Each figure has a line, separated by tabs: what, Lucene, bm25s, ratio, unit.
Queries per second leave out the cost of a search before its first query, when bm25s computes its scores. On an opened
index, the queries are repeated up to some thousands; the rate is that of the queries after the first hundred, in the
additional time that they take. `--quick` searches for 200 queries.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from figures import machine

from tandem.store.environment import peak_mib

ENGINES = ("lucene", "bm25s")
FIRST, QUICK, MANY = 100, 200, 6000
MEASURES = ("RR@10", "nDCG@10")
NOTE = """`python benchmarks/sparse.py`: {passages:,} passages, {queries:,} queries of split {split}, depth {depth},
k1 0.9, b 0.4, {cores} threads. pyserini {pyserini}, bm25s {bm25s}. Lucene indexes with threads, bm25s without; both
search with them."""


def job(kind: str, out: Path, params: dict[str, Any], inputs: dict[str, Path]) -> Any:
    """Return a stage's job, as its command line would describe it."""
    from tandem.store.artifact import open_artifact
    from tandem.store.job import Job

    artifacts = {role: open_artifact(folder) for role, folder in inputs.items()}
    return Job(kind, out, params, artifacts, {"workers": os.cpu_count()})


def stage(request: dict[str, Any]) -> dict[str, Any]:
    """Run a stage in this process; return its seconds, without the start of Python, and peak memory in MiB."""
    from tandem.stages import KINDS
    from tandem.store.job import load

    inputs = {role: Path(folder) for role, folder in request["inputs"].items()}
    task = job(request["kind"], Path(request["out"]), request["params"], inputs)
    if request["rate"]:
        return {"rate": rate(task)}
    started = time.perf_counter()
    load(KINDS[request["kind"]].run)(task)
    return {"seconds": time.perf_counter() - started, "memory": peak_mib()}


def rate(task: Any) -> float:
    """Return the queries per second of a search with an open index and a warm engine."""

    from tandem.cluster.progress import Progress
    from tandem.data.collection import Collection
    from tandem.retrieval.lexical.bm25 import open_lexical_engine

    params = task.params
    pairs = list(Collection(task.inputs["dataset"]).queries(params.split).items())[: params.queries]
    many = [(f"{query}-{n}", text) for n in range(-(-MANY // len(pairs))) for query, text in pairs]
    seconds = []
    with open_lexical_engine(task) as engine:
        for queries in (many[:FIRST], many[:FIRST], many):
            started = time.perf_counter()
            with Progress("", 0, "queries", quiet=True) as progress:
                for _ in engine.search(queries, params.k1, params.b, params.depth, progress):
                    pass
            seconds.append(time.perf_counter() - started)
    return (len(many) - FIRST) / max(seconds[2] - seconds[1], 1e-9)


def apart(
    kind: str, out: Path, params: dict[str, Any], *, rate: bool = False, **inputs: Path
) -> dict[str, Any]:
    """Run a stage in a process of its own; return its figures, or only the queries per second with `rate`."""
    at = {role: str(folder) for role, folder in inputs.items()}
    request = {"kind": kind, "out": str(out), "params": params, "inputs": at, "rate": rate}
    done = subprocess.run(
        [sys.executable, __file__, "--stage", json.dumps(request)], stdout=subprocess.PIPE
    )
    if done.returncode:
        raise SystemExit(f"{kind}: exit status {done.returncode}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measured(
    engine: str, dataset: Path, folder: Path, split: str, depth: int, queries: int
) -> dict[str, float]:
    """Return an engine's figures, by name."""
    how = {"analyzer": "default", "language": "en"}
    index = apart(engine, folder / engine, how, dataset=dataset)
    params = {"k1": 0.9, "b": 0.4, "depth": depth, "split": split}
    inputs = {"dataset": dataset, engine: folder / engine}
    run, params = folder / f"run-{engine}", params | {"queries": queries}
    search = apart("bm25", run, params, **inputs)
    warm = apart("bm25", run, params, rate=True, **inputs)
    scored = folder / f"score-{engine}"
    apart("score", scored, {"measures": list(MEASURES), "split": split}, dataset=dataset, run=run)
    statistics = json.loads((scored / "statistics.json").read_text())
    figures = {
        "index\ts": index["seconds"],
        "index, peak memory\tMiB": index["memory"],
        "search, the whole stage\ts": search["seconds"],
        "search\tqueries/s": warm["rate"],
        "search, peak memory\tMiB": search["memory"],
    }
    share = max(statistics["queries"] / queries, 1.0)  # queries not searched for count as 0
    return figures | {f"{name}\t%": 100 * statistics["mean"][name] * share for name in MEASURES}


def newest(root: Path) -> Path:
    """Return the newest dataset `pydocs` below results/."""
    manifests = sorted(
        root.glob("results/pydocs/dataset/*/stage.json"), key=lambda path: path.stat().st_mtime
    )
    if not manifests:
        raise SystemExit(
            "no results/pydocs/dataset here: `make run` makes it, or name another with --dataset"
        )
    return manifests[-1].parent


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--stage", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        print(json.dumps(stage(options.stage)))
        return
    from tandem.data.collection import Collection
    from tandem.store.artifact import open_artifact

    dataset = options.dataset or newest(Path(__file__).parents[1])
    collection = Collection(open_artifact(dataset))
    there = len(collection.queries(options.split))
    queries = min(there, QUICK) if options.quick else there
    with tempfile.TemporaryDirectory() as temporary:
        figures = [
            measured(name, dataset, Path(temporary), options.split, options.depth, queries)
            for name in ENGINES
        ]
    lines = []
    for name, ours in figures[0].items():
        what, unit = name.split("\t")
        other = figures[1][name]
        lines.append(f"{what}\t{ours:,.2f}\t{other:,.2f}\t{ours / other:.2f}\t{unit}")
        print(lines[-1])
    if options.out:
        versions = {name: version(name) for name in ("pyserini", "bm25s")}
        about = {
            "passages": collection.passages,
            "queries": queries,
            "split": options.split,
            "depth": options.depth,
        }
        note = NOTE.format(**about, **versions, cores=os.cpu_count())
        rows = "".join(f"| {' | '.join(line.split(chr(9)))} |\n" for line in lines)
        head = "| what | Lucene | bm25s | ratio | unit |\n|---|--:|--:|--:|---|\n"
        options.out.write_text(
            f"# BM25 by Lucene and by bm25s\n\n{note}\n\n{machine()}\n\n{head}{rows}",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
