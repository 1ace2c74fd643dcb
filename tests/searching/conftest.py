"""A tiny collection with everything that a search needs, built by the real stages under the real plan."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

TRAIN = {"steps": 4, "queries_per_batch": 4, "list_size": 4, "lr": 1e-3, "precision": "fp32"}
ROWS = (
    "bm25",
    "de_bm25neg",
    "bm25+ce_bm25neg",
    "rocketqav2.retriever+rocketqav2.reranker",
    "both+pair",
    "de_bm25neg@lists",
)
# Stages in the order of the graph, each by its own command line, all in one process: importing torch takes longest.
BUILD = """
import shlex, sys
from pathlib import Path
from tandem.__main__ import load, read_job
from tandem.kinds import KINDS
from tandem.searching.words import read

def build(stage):
    for one in stage.upstream.values():
        build(one)
    if not Path(stage.manifest).exists():
        words = [*shlex.split(f"{stage.args} {stage.how}"), "--run.workers", "1", "--out", stage.manifest]
        load(KINDS[stage.kind].entry)(read_job(stage.kind, words))

plan = read(sys.argv[1:], (), ()).plan()
for _, stage in plan.tables["tiny"]:
    build(stage)
"""


def write_beir(folder: Path, documents: list[tuple[str, str, str]]) -> None:
    """Training queries ask for a subject's third passage, test queries for its second."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": doc, "title": title, "text": text} for doc, title, text in documents]
    subjects = [doc.removesuffix("-1") for doc, _, _ in documents if doc.endswith("-1")]
    asked = {"train": ("what does the {} eat", 3), "test": ("how does the {} behave", 2)}
    queries = [{"_id": f"{s}-{one}", "text": text.format(one)} for s, (text, _) in asked.items() for one in subjects]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, (_, number) in asked.items():
        lines = [f"{split}-{one}\t{one}-{number}\t1\n" for one in subjects]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))


@pytest.fixture(scope="session")
def built(tmp_path_factory, encoder_folder, documents):
    """A folder with config.yaml and every artifact that its table needs; `run(words, asked)` runs Python there."""
    folder = tmp_path_factory.mktemp("built")
    write_beir(folder / "beir", documents)
    layout = {"title": "Tiny", "columns": [{"measure": "RR@10"}], "rows": [{"system": s, "run": s} for s in ROWS]}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(layout))
    joint = {"depth": 20, "denoise": {"by": "ce_bm25neg", "negative_below": 0.9}}
    config = {
        "dataset": "tiny",
        "datasets": {"tiny": {"source": "beir", "path": str(folder / "beir")}},
        "encoder": str(encoder_folder),
        "tables": [str(folder / "tiny.yaml")],
        "depth": {"train": 50, "dev": 20, "test": 20},
        "rerank": {"depth": 5, "precision": "fp32"},
        "lengths": {"query": 16, "passage": 24},
        "encode": {"block": 16, "precision": "fp32"},
        "fusions": {"both": {"of": ["bm25", "de_bm25neg"], "method": "weighted", "weights": [0.75, 0.25]}},
        "ensembles": {"pair": {"of": ["ce_bm25neg", "rocketqav2.reranker"]}},
        "indexes": {"lists": {"type": "ivf_flat", "nlist": 4, "nprobe": 2}},
        "models": {
            "de_bm25neg": {"train": TRAIN},
            "ce_bm25neg": {"train": TRAIN},
            "rocketqav2": {"init": {"reranker": "ce_bm25neg"}, "candidates": joint, "train": TRAIN},
        },
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": ""}

    def run(words, asked=""):
        """The finished process."""
        line = [sys.executable, *words]
        return subprocess.run(line, input=asked, capture_output=True, text=True, cwd=folder, env=environment)

    done = run(["-c", BUILD, "config.yaml"])
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(folder=folder, run=run)
