"""Names with every allowed character, of whatever a configuration names, through the rule of every view."""

import string
from pathlib import Path

import pytest
import yaml
from tiny_project import LAYOUT, run_here, snakemake, tiny_config, write_beir

LETTERS = string.ascii_letters + string.digits
NAMES = {
    "every character": f"_.-{LETTERS}.-_",
    "as a key ends": "a-0123456789",
    "as a notebook begins": "error_analysis-negatives",
    "numbers": "2-of-3.json",
}


def named(name: str, folder: Path, encoder_folder: Path) -> dict:
    """A configuration whose dataset, models, runs, index, table and sweep are called by a name and a letter each."""
    config = tiny_config(folder, encoder_folder)
    dual, joint, runs = f"{name}d", f"{name}j", [f"{name}{letter}" for letter in "fpq"]
    fused, tuned, windowed = runs
    config["dataset"] = f"{name}s"
    config["datasets"] = {
        f"{name}s": config["datasets"]["tiny"],
        f"{name}w": {"source": "windows", "of": f"{name}s"},
    }
    config["models"] |= {
        dual: {"like": "de_bm25neg", "train": {"checkpoints": 2}},
        joint: {"like": "rocketqav2"},
    }
    config["validation"] = {"depth": 10}
    config["fusions"] = {fused: {"of": ["bm25", dual]}}
    config["sparse"] = {tuned: {"tuned": True}}
    config["aggregations"] = {windowed: {"of": dual, "windows": f"{name}w"}}
    config["ensembles"] = {f"{name}e": {"of": ["ce_bm25neg", f"{joint}.reranker"]}}
    config["indexes"] = {f"{name}i": {"type": "ivf_flat"}}
    config["systems"] = [
        dual,
        *runs,
        f"{dual}.1",
        f"{dual}@{name}i",
        f"{fused}+{name}e",
        f"bm25+{joint}.reranker",
    ]
    # as a paper writes formulas: to Snakemake braces are wildcards
    rows = [{"system": f"{run} $_{{a}}$", "run": run} for run in config["systems"]]
    (folder / f"{name}t.yaml").write_text(
        yaml.safe_dump({**LAYOUT, "rows": [*LAYOUT["rows"], *rows]})
    )
    config["tables"] = [str(folder / f"{name}t.yaml"), "summary"]
    config["tradeoffs"] = {"model": dual, "indexes": [f"{name}i"]}
    config["analysis"] = {
        "errors": {"system": fused},
        "dynamics": {"model": joint},
        "negatives": {"of": [dual, joint], "judges": [f"{joint}.reranker"]},
    }
    sweep = {
        "grid": {f"models.{joint}.train.lr": [1e-3, 1e-4]},
        "systems": {"Joint": f"bm25+{joint}.reranker"},
    }
    config["sweeps"] = {f"{name}g".replace(".", ""): sweep}
    return config


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_every_view_is_planned(name, tmp_path, encoder_folder, documents):
    write_beir(tmp_path / "beir", documents, ("train", "dev", "test"))
    (tmp_path / f"{name}c.yaml").write_text(yaml.safe_dump(named(name, tmp_path, encoder_folder)))
    targets = ["all", "notebooks", "audits", "fidelity", "index_tradeoffs", "sweeps", "statistics"]
    code, output = run_here(snakemake(tmp_path, ["-n", *targets], [f"{name}c.yaml"]))
    assert code == 0, output
    views = f"results/{name}c"
    for view in (
        f"tables/{name}t.csv",
        "tables/summary.html",
        "tables/index_tradeoffs.csv",
        "tables/audits.csv",
        "report.html",
        "audits.html",
        "fidelity.csv",
        f"notebooks/error_analysis-{name}s.ipynb",
        f"sweeps/{name}g".replace(".", "") + ".json",
    ):
        assert f"{views}/{view}" in output
