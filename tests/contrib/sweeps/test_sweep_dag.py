"""Sweeps through Snakemake on the tiny collection: what the points share, their table, and what a change makes."""

import csv
import json

import pytest
import yaml
from building import build_here
from messages import unknown_key
from tiny_project import ROOT, jobs, tiny_config, write_beir

LISTS = {
    "grid": {"models.rocketqav2.train.list_size": [2, 4, 8]},
    "seeds": [42, 1],
    "seeds_at": "models.rocketqav2.train.seed",
    "systems": {
        "Retriever": "rocketqav2.retriever",
        "Re-ranker": "rocketqav2.retriever+rocketqav2.reranker",
    },
}
SATURATION = {
    "grid": {"bm25.k1": [0.5, "1.5"], "bm25.b": [0.4]},
    "systems": ["bm25"],
    "measures": ["RR@10"],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory, documents, encoder_folder, snakemake_in):
    """`project(*words)`: Snakemake's exit status and output in a folder with the tiny collection."""
    folder = tmp_path_factory.mktemp("sweep")
    write_beir(folder / "beir", documents)
    config = {**tiny_config(folder, encoder_folder), "bm25": {"engine": "bm25s"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))

    def run(*words, more=None, **sweeps):
        (folder / "grid.yaml").write_text(yaml.safe_dump({"sweeps": sweeps, **(more or {})}))
        return snakemake_in(folder, "grid.yaml")(*words)

    run.folder = folder
    return run


@pytest.fixture(scope="module")
def sweep_output(project):
    """What the sweep over BM25 printed; it is made once."""
    code, output = project("sweep_saturation", saturation=SATURATION)
    assert code == 0, output
    return output


def test_points_share_everything_above_what_differs(project):
    code, output = project("-n", "sweep_lists", lists=LISTS)
    assert code == 0, output
    assert jobs(output) == {
        "dataset": 1, "encoder": 1, "tokens": 1, "bm25s": 1, "bm25": 1,
        # of the dual and the cross-encoder, which share them, and of the joint model
        "candidates": 2,
        "train": 2 + 6,  # those that it starts from, and three lengths of lists with two seeds
        "encode": 1 + 6 * 2 + 1, "retrieve": 1 + 6, "rerank": 6, "score": 12,
        "sweep": 1, "sweep_lists": 1,
    }  # fmt: skip


def test_a_sweep_makes_its_table_and_plots(project, sweep_output):
    folder = project.folder / "results/grid/sweeps"
    rows = list(csv.DictReader((folder / "saturation.csv").open()))
    assert [(row["bm25.k1"], row["bm25.b"], row["measure"]) for row in rows] == [
        ("0.5", "0.4", "RR@10"), ("1.5", "0.4", "RR@10"),
    ]  # fmt: skip
    assert len({row["stage"] for row in rows}) == 2
    for row in rows:
        assert 0 <= float(row["low"]) <= float(row["value"]) <= float(row["high"]) <= 100
        assert (project.folder / "results/tiny/bm25" / row["stage"] / "run.trec").is_file()
    assert (rows[0]["p"], rows[0]["change"], rows[0]["sd"]) == ("", "", "")
    assert 0 < float(rows[1]["p"]) <= 1
    assert (folder / "saturation.svg").read_text().startswith("<svg")
    assert "RR@10 along bm25.k1" in (folder / "saturation.html").read_text()


def test_a_second_run_has_nothing_to_do_and_another_point_only_its_own(project, sweep_output):
    code, output = project("sweep_saturation", saturation=SATURATION)
    assert code == 0
    assert "Nothing to be done" in output or "1 of 1 steps" in output
    longer = {**SATURATION, "grid": {"bm25.k1": [0.5, 1.5, 2.5], "bm25.b": [0.4]}}
    code, output = project("-n", "sweeps", saturation=longer)
    assert code == 0
    counts = jobs(output)
    assert (counts["score"], counts["sweep"]) == (1, 1)
    assert "dataset" not in counts


def test_a_score_that_changed_is_read_again(project, sweep_output):
    points = json.loads((project.folder / "results/grid/sweeps/saturation.points").read_text())
    score = project.folder / points["rows"][1]["scores"] / "stage.json"
    original = score.read_bytes()
    score.write_bytes(original + b"\n")
    try:
        code, output = project("-n", "sweep_saturation", saturation=SATURATION)
    finally:
        score.write_bytes(original)
    assert code == 0
    assert jobs(output) == {"sweep": 1, "sweep_saturation": 1}


def test_dimensions_and_bytes_of_a_vector(project, encoder_folder):
    """config/small/dimensions.yaml with two points of the tiny encoder, whose stages are made in one process."""
    shipped = yaml.safe_load((ROOT / "config/small/dimensions.yaml").read_text())
    dimensions = shipped["sweeps"]["dimensions"] | {
        "grid": {"encoders.minilm.dim": [32, 8], "encode.dtype": ["fp32"]}
    }
    encoder = {
        "source": "folder",
        "path": str(encoder_folder),
        "pooling": "mean",
        "normalize": True,
    }
    more = {
        "encoders": {"minilm": encoder},
        "indexes": shipped["indexes"],
        "depth": shipped["depth"],
    }
    code, output = project("-n", "sweep_dimensions", more=more, dimensions=dimensions)
    assert code == 0, output
    assert "train" not in jobs(output)
    build_here(project.folder, "dimensions", "config.yaml", "grid.yaml")
    code, output = project("sweep_dimensions", more=more, dimensions=dimensions)
    assert code == 0, output
    rows = list(csv.DictReader((project.folder / "results/grid/sweeps/dimensions.csv").open()))
    values = {
        (row["encoders.minilm.dim"], row["system"], row["measure"]): float(row["value"])
        for row in rows
    }
    assert len(values) == 2 * 3 * 2
    # runs are deeper than the collection: exact scores of all passages decide
    for dim in ("32", "8"):
        assert values[dim, "Signs, then exact", "nDCG@10"] == values[dim, "All vectors", "nDCG@10"]
    assert values["8", "Signs alone", "nDCG@10"] != values["8", "All vectors", "nDCG@10"]


def test_a_mistake_is_one_line_before_anything_runs(project):
    wrong = {**SATURATION, "grid": {"bm25.k2": [1]}}
    code, output = project("-n", "sweeps", wrong=wrong)
    assert code == 1
    assert (
        unknown_key("sweeps.wrong.grid.bm25.k2: bm25.k2", allowed="analyzer, b, engine, k1")
        in output
    )
    assert "Traceback" not in output
