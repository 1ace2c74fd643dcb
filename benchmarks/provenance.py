"""Time and memory of `verify`, `check`, `gc`, `lineage` and `why` over many made artifacts of small files.

    python benchmarks/provenance.py [--artifacts 20000] [--folder /tmp/made]

A quarter of the artifacts each are lists, models, runs and scores, with 3.5 files per artifact, 1 to 16 KiB each, under
the keys that planning would assign; all belong to one dataset. The script prints a line of Markdown per command:
seconds by the clock and of the processor, MiB, and its last line of output. `gc` plans BM25's table of another
collection, and so lists all artifacts.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from tandem.plan.graph import Stage
from tandem.store.artifact import MANIFEST, Manifest
from tandem.store.environment import modules_hash

KINDS = ("candidates", "model", "bm25", "score")


def stages(count: int) -> list[Stage]:
    """Return a dataset and `count` stages in chains of four: lists, a model, a run and its scores."""
    data = Stage("dataset", "made", "made", {"source": "beir", "fingerprint": "00"})
    graph = [data]
    for number in range(count // len(KINDS)):
        lists = Stage("candidates", "made", "de", {"depth": 50, "seed": number}, {"dataset": data})
        model = Stage(
            "model", "made", "de", {"train": {"lr": 1e-5, "seed": number}}, {"candidates": lists}
        )
        run = Stage("bm25", "made", "de.test", {"depth": 50}, {"dataset": data, "model": model})
        score = Stage("score", "made", "de.test", {"split": "test"}, {"dataset": data, "run": run})
        graph += [lists, model, run, score]
    return graph


def write(
    folder: Path, stage: Stage, contents: dict[str, str], random_bytes: random.Random
) -> None:
    """Write one artifact with its manifest, whose content is added to `contents`."""
    place, files = folder / stage.folder, {}
    place.mkdir(parents=True)
    for number in range(random_bytes.choice((2, 3, 4, 5))):
        text = random_bytes.randbytes(random_bytes.choice((1, 2, 4, 16)) << 10)
        (place / f"{number}.bin").write_bytes(text)
        files[f"{number}.bin"] = {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    manifest = {
        "kind": stage.kind,
        "key": stage.key,
        "version": 1,
        "params": stage.params,
        "upstream": {role: parent.folder for role, parent in stage.upstream.items()},
        "inputs": {role: contents[parent.key] for role, parent in stage.upstream.items()},
        "files": files,
        "execution": {"workers": 2},
        "modules": modules[stage.kind],
        "libraries": {"numpy": "2.4.0", "pyarrow": "22.0.0", "torch": "2.9.1"},
        "commit": "0" * 40,
        "dirty": False,
        "machine": {"node": "n1", "python": "3.11.7", "cores": 2},
        "finished": "2026-01-01T00:00:00Z",
        "seconds": 12.5,
        "peak_memory_mib": 1024,
    }
    contents[stage.key] = Manifest.model_validate(manifest).content
    (place / MANIFEST).write_text(json.dumps(manifest, indent=1))


modules = {kind: modules_hash(kind) for kind in ("dataset", *KINDS)}


def configure(folder: Path) -> None:
    """Write a configuration of another collection, for `gc`."""
    (folder / "beir/qrels").mkdir(parents=True)
    (folder / "beir/corpus.jsonl").write_text(
        '{"_id": "d", "title": "", "text": "otters eat crabs"}\n'
    )
    (folder / "beir/queries.jsonl").write_text('{"_id": "q", "text": "what eats crabs"}\n')
    (folder / "beir/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    config = {
        "dataset": "toy",
        "datasets": {"toy": {"source": "beir", "path": "beir"}},
        "tables": ["baseline"],
    }
    (folder / "toy.yaml").write_text(yaml.safe_dump(config))


def measured(folder: Path, *words: str) -> str:
    """Return a command's wall time, processor time, peak memory and last line of output, as a row of a table."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    *_, last = process.stdout.read().decode().splitlines() or [""]
    _, _, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    cells = f"{seconds:.1f} | {used.ru_utime + used.ru_stime:.1f} | {used.ru_maxrss >> 10:,}"
    return f"| `{' '.join(words)}` | {cells} | {last} |"


def main() -> None:
    """Make the artifacts and run the commands over them."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--artifacts", type=int, default=20_000)
    flags.add_argument("--folder", type=Path)
    options = flags.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    graph = stages(options.artifacts)
    if not (folder / "results").exists():
        known, drawn = dict[str, dict[str, Any]](), random.Random(7)
        for stage in graph:
            write(folder, stage, known, drawn)
        configure(folder)
    key = graph[-1].key
    print("| command | seconds | of computing | MiB | its last line |\n|---|---:|---:|---:|---|")
    for words in (
        *(["verify", "--threads", str(threads)] for threads in (1, 2)),
        ["verify", "--quick"],
        ["check"],
        ["gc", "--configfile", "toy.yaml"],
        ["lineage", key],
        ["why", key],
    ):
        print(measured(folder, *words), flush=True)


if __name__ == "__main__":
    main()
