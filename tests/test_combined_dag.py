"""Runs that are made of others through Snakemake: a fusion, an ensemble, windows and an index, also in shards."""

import csv
import json
import shutil

import pytest
import yaml
from building import build_in
from tiny_project import LAYOUT, jobs

ROWS = {
    "mixed": [
        {"system": "BM25", "run": "bm25"},
        {"system": "Fusion", "run": "both"},
        {"system": "Ensemble", "first_stage": "Fusion", "run": "both+all"},
    ],
    "windows": [
        {"system": "DE (MaxP)", "run": "de_maxp"},
        {"system": "CE (SumP)", "first_stage": "BM25", "run": "ce_sump"},
    ],
    "indexed": [
        {"system": "Exact", "run": "de_bm25neg"},
        {"system": "Index", "run": "de_bm25neg@ivf"},
    ],
}
CONFIG = {
    "ensembles": {"all": {"of": ["ce_bm25neg", "rocketqav2.reranker"]}},
    "fusions": {
        "both": {
            "of": ["bm25", "de_bm25neg"],
            "method": "weighted",
            "tune": {"split": "train", "step": 0.25},
        }
    },
    "datasets": {"cut": {"source": "windows", "of": "tiny", "length": 6, "stride": 4, "factor": 3}},
    "aggregations": {
        "de_maxp": {"of": "de_bm25neg", "windows": "cut"},
        "ce_sump": {"of": "bm25", "by": "ce_bm25neg", "windows": "cut", "method": "sum"},
    },
    "indexes": {"ivf": {"type": "ivf_flat", "nlist": 4, "nprobe": 4, "part": 17}},
}
SHARED = ("rerank_windows", "ann")
TABLES = [f"results/combined/tables/{name}.csv" for name in ROWS]


@pytest.fixture(scope="module")
def project(tiny_dag, tmp_path_factory, snakemake_in):
    """`project(*words)`: Snakemake's status and output in a copy of the finished project with three more tables.

    One process has made their stages, without shards.
    """
    folder = tmp_path_factory.mktemp("combined") / "project"
    shutil.copytree(tiny_dag.folder, folder, ignore=shutil.ignore_patterns(".snakemake"))
    for name, rows in ROWS.items():
        layout = {"title": name, "columns": LAYOUT["columns"], "rows": rows}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(layout))
    tables = [str(folder / f"{name}.yaml") for name in ROWS]
    (folder / "combined.yaml").write_text(yaml.safe_dump(CONFIG | {"tables": tables}))
    build_in(folder, "all", "config.yaml", "combined.yaml")
    return snakemake_in(folder, "combined.yaml")


def runs(project):
    """Path → bytes of the runs whose pairs, or whose index, several jobs make."""
    paths = [
        path for kind in SHARED for path in project.folder.glob(f"results/tiny/{kind}/*/run.trec")
    ]
    return {path: path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def sharded(project):
    """What Snakemake prints that scores the pairs and builds the index again, each by two jobs; the runs stay."""
    before = runs(project)
    for folder in project.folder.glob("results/*/pairs"):
        shutil.rmtree(folder)
    scores = project.folder / "results/tiny/score"
    for path in before:
        shutil.rmtree(path.parent)
        # a run that has its score is not made
        for score in scores.glob(f"{path.parent.name.rpartition('-')[0]}-*"):
            shutil.rmtree(score)
    shutil.rmtree(project.folder / "results/tiny/index")
    code, output = project(*TABLES, "--config", "execution={shards: 2}")
    assert code == 0, output
    after = runs(project)
    assert after == {path: before[path] for path in after}
    assert {path.parts[-3] for path in after} == {*SHARED}
    return output


def rows(project, name):
    return list(csv.DictReader((project.folder / f"results/combined/tables/{name}.csv").open()))


def test_a_fusion_and_an_ensemble_are_rows_of_a_table(project, sharded):
    (tuned,) = project.folder.glob("results/tiny/tune_fusion/both.train-*/chosen.json")
    (fused,) = project.folder.glob("results/tiny/fuse/both.test-*/stage.json")
    assert json.loads(fused.read_text())["facts"]["tuned"] == json.loads(tuned.read_text())
    values = {
        row["system"]: float(row["value"])
        for row in rows(project, "mixed")
        if row["measure"] == "RR@10"
    }
    assert values.keys() == {"BM25", "Fusion", "Ensemble"}


def test_windows_are_aggregated_for_retrieval_and_for_re_ranking(project, sharded):
    assert sharded.count("rule rerank_windows_shard") == 2
    assert "rule train" not in sharded
    (run,) = project.folder.glob("results/tiny/aggregate/de_maxp.test-*/run.trec")
    (windows,) = project.folder.glob("results/cut/retrieve/de_bm25neg.test-*/run.trec")
    best = {}
    for query, _, window, _, score, _ in map(str.split, windows.read_text().splitlines()):
        best.setdefault(query, {}).setdefault(window.rpartition("#")[0], float(score))
    expected = {
        query: sorted(docs.items(), key=lambda item: (-item[1], item[0]))[:20]
        for query, docs in best.items()
    }
    rankings = {}
    for query, _, doc, _, score, _ in map(str.split, run.read_text().splitlines()):
        rankings.setdefault(query, []).append((doc, float(score)))
    assert rankings == expected
    assert {len(windows) for windows in best.values()} != {60}  # 60 windows of fewer documents
    assert [row["system"] for row in rows(project, "windows")[::2]] == ["DE (MaxP)", "CE (SumP)"]


def test_an_index_is_built_by_shards_and_searched_otherwise_without_being_built_again(
    project, sharded
):
    assert sharded.count("rule index_train:") == 1
    assert sharded.count("rule index_shard:") == 2
    (index,) = project.folder.glob("results/tiny/index/de_bm25neg@ivf-*/stage.json")
    (approximate,) = project.folder.glob("results/tiny/ann/de_bm25neg@ivf.test-*/run.trec")
    (exact,) = project.folder.glob("results/tiny/retrieve/de_bm25neg.test-*/run.trec")
    ranking, other = (
        [line.split()[:5] for line in path.read_text().splitlines()]
        for path in (approximate, exact)
    )
    assert ranking == other  # all four lists are searched
    assert json.loads(index.read_text())["files"].keys() == {
        "index.faiss",
        "lists.ivfdata",
        "meta.json",
    }
    code, output = project("-n", TABLES[2], "--config", "indexes={ivf: {nprobe: 1}}")
    assert jobs(output) == {"ann": 1, "score": 1, "table": 1}
    override = "tradeoffs={indexes: [flat, ivf], k: [5], repeats: 1, sweep: {nprobe: [1, 4]}}"
    code, output = project("index_tradeoffs", "--config", override)
    assert code == 0, output
    table = rows(project, "index_tradeoffs")
    assert [line["index"] for line in table] == ["flat", "flat", "ivf", "ivf", "ivf", "ivf"]
    exact = [
        line["recall@5"] for line in table if line["rescore"] == "True" and line["nprobe"] != "1"
    ]
    assert exact == ["1.0", "1.0"]
    assert "<svg" in (project.folder / "results/combined/tables/index_tradeoffs.html").read_text()


def test_how_many_shards_is_no_reason_to_make_anything_again(project, sharded):
    assert "Nothing to be done" in project("-n", *TABLES)[1]
