"""Runs through indexes by Snakemake: copies in a graph cost nothing, and what an index misses is said on every page."""

import csv
import json

import pytest
import yaml
from building import build_in
from tiny_project import run_here, snakemake, tiny_config, write_beir

SYSTEMS = {
    "Exact": "encoder",
    "Graph": "encoder@graph",
    "Panorama": "encoder@panorama",
    "Few lists": "encoder@few",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory, encoder_folder, documents):
    """The tiny collection and 300 passages without an abstract, searched through several indexes."""
    folder = tmp_path_factory.mktemp("indexes")
    copies = [(f"none-{number:03d}", "", "[no abstract]") for number in range(300)]
    write_beir(folder / "beir", [*documents, *copies], ("test",))
    rows = [{"system": name, "run": run} for name, run in SYSTEMS.items()]
    layout = {
        "title": "Indexes",
        "columns": [{"measure": "RR@10"}, {"measure": "R@100"}],
        "rows": rows,
    }
    (folder / "through.yaml").write_text(yaml.safe_dump(layout))
    config = tiny_config(folder, encoder_folder)
    config |= {
        "recipes": [],
        "models": dict.fromkeys(("de_bm25neg", "ce_bm25neg", "ce_deneg", "rocketqav2")),
        "tables": [str(folder / "through.yaml")],
        "encoders": {"own": {"source": "folder", "path": str(encoder_folder), "pooling": "mean"}},
        "encoder": "own",
        "depth": {"test": 100},
        "indexes": {
            "graph": {"type": "hnsw", "m": 16},
            "panorama": {"factory": "IVF4,FlatPanorama4", "nprobe": 4},
            "few": {"type": "ivf_flat", "nlist": 8, "nprobe": 1},
        },
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    build_in(folder, "all", "config.yaml")
    status, output = run_here(snakemake(folder, []))
    assert status == 0, output
    return folder


def test_copies_and_panoramas_find_what_exact_search_finds(project):
    with open(project / "results/tables/through.csv") as table:
        values = {(row["system"], row["measure"]): row["value"] for row in csv.DictReader(table)}
    for measure in ("RR@10", "R@100"):
        assert values["Exact", measure] == values["Graph", measure] == values["Panorama", measure]
    [graph] = [
        json.loads(path.read_text())
        for path in project.glob("results/tiny/index/*@graph-*/stage.json")
    ]
    assert graph["facts"]["copies"] >= 200  # texts of one batch have one vector, to the last bit
    runs = [
        json.loads(path.read_text())["facts"]
        for path in project.glob("results/tiny/ann/*/stage.json")
    ]
    assert sorted(min(facts["recall"].values()) == 1 for facts in runs) == [False, True, True]


def test_what_an_index_misses_is_said_in_the_log_under_the_table_and_in_the_report(project):
    [log] = project.glob("results/tiny/ann/*@few.test-*/stage.json")
    short, low = json.loads(log.read_text())["facts"]["warnings"]
    assert "of 20 queries have fewer than 100 passages" in short
    assert "of the first 100" in low
    for page in ("tables/through.md", "tables/through.html", "report.html"):
        text = (project / "results" / page).read_text().replace("\\", "")
        for line in (short, low):
            assert line in text, page
        assert "ann own@graph" not in "".join(
            line for line in text.splitlines() if "Warning" in line
        )
