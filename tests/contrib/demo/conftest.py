"""A tiny collection with everything that a search needs, built by the real stages under the real plan."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from building import build_in
from tiny_project import TRAIN, tiny_config, write_beir

ROWS = (
    "bm25",
    "deepct@bm25",
    "bm25+late",
    "late",
    "late@codes",
    "plain",
    "de_bm25neg",
    "bm25+ce_bm25neg",
    "rocketqav2.retriever+rocketqav2.reranker",
    "both+pair",
    "de_bm25neg@lists",
    "two_lists",
    "lexical_and_late",
)


@pytest.fixture(scope="session")
def built(build_once, encoder_folder, documents):
    """A folder with config.yaml and every artifact that its table needs; `run(words, stdin)` runs Python there."""

    def make(folder):
        (first, title, text), *others = documents
        write_beir(
            folder / "beir", [(first, f"{title} [SEP]", f"{text} [CLS] [SEP] [MASK]"), *others]
        )
        layout = {
            "title": "Tiny",
            "columns": [{"measure": "RR@10"}],
            "rows": [{"system": s, "run": s} for s in ROWS],
        }
        (folder / "tiny.yaml").write_text(yaml.safe_dump(layout))
        config = tiny_config(folder, encoder_folder) | {
            "tables": [str(folder / "tiny.yaml")],
            "fusions": {
                "both": {
                    "of": ["bm25", "de_bm25neg"],
                    "method": "weighted",
                    "weights": [0.75, 0.25],
                },
                "lexical_and_late": {"of": ["bm25", "late"]},
                "two_lists": {"of": ["bm25+ce_bm25neg", "plain+ce_bm25neg"]},
            },
            "ensembles": {"pair": {"of": ["ce_bm25neg", "rocketqav2.reranker"]}},
            "indexes": {
                "lists": {"type": "ivf_flat", "nlist": 4, "nprobe": 2},
                "codes": {
                    "type": "ivf_sq",
                    "sq": "4bit",
                    "nlist": 4,
                    "nprobe": 4,
                    "rescore": False,
                },
            },
            "encoders": {
                "plain": {"source": "folder", "path": str(encoder_folder), "pooling": "mean"}
            },
        }
        config["models"]["deepct"] = {
            "objective": "dual",
            "representation": {"type": "unicoil", "queries": "tokens"},
            "candidates": {"from": "bm25", "depth": 20},
            "train": TRAIN | {"loss": "term_recall", "lr": 1e-2},
        }
        late = {"type": "multi", "dim": 8, "markers": {"query": "[Q]", "passage": "[D]"}}
        config["models"]["late"] = {"like": "de_bm25neg", "representation": late}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        build_in(folder, "tiny", "config.yaml")

    folder = build_once("built", make)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": ""}

    def run(words, stdin=""):
        """The finished process."""
        line = [sys.executable, *words]
        return subprocess.run(
            line, input=stdin, capture_output=True, text=True, cwd=folder, env=environment
        )

    return SimpleNamespace(folder=folder, run=run)
