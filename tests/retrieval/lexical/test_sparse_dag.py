"""Variants of BM25 through Snakemake: their table, a second run, and a grid that reruns what it decides."""

import csv
import json
import shutil

import pytest
import yaml
from building import build_in
from tiny_project import jobs, write_beir

from tandem.store.artifact import open_artifact

SPARSE = {
    "expanded": {"rm3": {"fb_docs": 3, "fb_terms": 5}, "tuned": True},
    "plus": {"engine": "bm25s", "formula": "bm25+", "tuned": True},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory, documents, snakemake_in):
    """`project(*words)`: Snakemake's exit status and output in a folder with the tiny collection.

    One process, in which Java starts once, has made all stages but those of the variant without Java.
    """
    folder = tmp_path_factory.mktemp("sparse")
    write_beir(folder / "beir", documents, ("dev", "test"))
    layout = {
        "title": "Sparse",
        "costs": True,
        "columns": [{"measure": "RR@10"}],
        "rows": [{"system": name, "run": name} for name in ("bm25", *SPARSE)],
    }
    (folder / "sparse_tiny.yaml").write_text(yaml.safe_dump(layout))
    config = {
        "dataset": "tiny",
        "datasets": {"tiny": {"source": "beir", "path": str(folder / "beir")}},
        "tables": [str(folder / "sparse_tiny.yaml")],
        "bm25": {"tune": {"k1": [0.5, 1.5], "b": [0.2, 0.8]}},
        "sparse": SPARSE,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    build_in(folder, "all", "config.yaml")
    for stage in folder.glob("results/tiny/*/plus*"):
        shutil.rmtree(stage)
    return snakemake_in(folder)


def test_variants_make_a_table_of_their_own_runs(project):
    code, output = project("sparse_tiny")
    assert code == 0, output
    lines = list(csv.DictReader((project.folder / "results/tables/sparse_tiny.csv").open()))
    rows = [row for row in lines if row["measure"] == "RR@10"]
    assert [row["system"] for row in rows] == ["bm25", *SPARSE]
    assert all(float(row["value"]) > 20 for row in rows)
    manifests = {
        path.parent.parent.name: path for path in project.folder.glob("results/tiny/*/*/stage.json")
    }
    assert set(manifests) == {"dataset", "lucene", "bm25s", "bm25", "tune_bm25", "score"}
    assert len(list(project.folder.glob("results/tiny/lucene/*/stage.json"))) == 2
    costs = {(row["system"], row["measure"]): float(row["value"]) for row in lines}
    assert costs["plus", "index_bytes"] == open_artifact(manifests["bm25s"].parent).manifest.bytes
    assert all(
        costs[name, "ms_per_query"] > 0 and not costs[name, "training_seconds"]
        for name in ("bm25", *SPARSE)
    )
    for grid in project.folder.glob("results/tiny/tune_bm25/*/grid.csv"):
        points = [float(line.split(",")[2]) for line in grid.read_text().splitlines()[1:]]
        assert len(points) == 4
        assert json.loads((grid.parent / "chosen.json").read_text())["mean"] == max(points)


def test_another_grid_reruns_the_tuned_runs_alone(project):
    code, output = project("sparse_tiny", "-n")
    assert (code, "Nothing to be done" in output) == (0, True)
    code, output = project("sparse_tiny", "-n", "--config", "bm25={tune: {measure: 'nDCG@10'}}")
    assert code == 0, output
    assert jobs(output) == {"tune_bm25": 2, "bm25": 2, "score": 2, "table": 1, "sparse_tiny": 1}
