"""What systems cost, by the manifests of a small finished run; the columns of costs in a table."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from table_plans import make_table

from tandem.contrib.table_parts.system_costs import read_costs
from tandem.report.formats import COST_HEAD
from tandem.report.results import read_table
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json

SECONDS = {
    "lucene": 50,
    "bm25": 1,
    "embeddings": 2,
    "retrieve": 4,
    "rerank": 6,
    "model": 10,
    "candidates": 30,
}
LAYOUT = """
title: Costs
costs: true
baseline: {system: BM25}
columns: [{measure: RR@10}]
rows:
  - {system: BM25, family: lexical, run: bm25}
  - {system: RocketQAv2 (retriever), family: joint, run: rocketqav2.retriever}
  - {system: Theirs, quoted: true, printed: {RR@10: 38.8}}
"""


@pytest.fixture(scope="module")
def timed(world, tmp_path_factory):
    """`timed(system, first stage)`: its scores, in a copy of the run whose stages took `SECONDS`."""
    root = tmp_path_factory.mktemp("timed")
    shutil.copytree(world.root / "results", root / "results")
    for manifest in root.glob("results/toy/*/*/stage.json"):
        artifact = open_artifact(manifest.parent)
        seconds = float(SECONDS.get(artifact.kind, 0))
        write_json(manifest, artifact.manifest.model_copy(update={"seconds": seconds}).model_dump())

    def find(system, first_stage=""):
        row = next(
            row
            for row in world.rows
            if (row["system"], row["first_stage"]) == (system, first_stage)
        )
        return open_artifact(root / Path(row["scores"]).relative_to(world.root))

    return find


def bytes_of(scores, pattern):
    """The size of the only artifact that fits a pattern."""
    (folder,) = scores.folder.parents[1].glob(pattern)
    return open_artifact(folder).manifest.bytes


def test_bm25_has_an_index_and_no_training(timed):
    scores = timed("BM25")
    costs = read_costs(scores)
    assert costs.index_bytes == bytes_of(scores, "lucene/lucene-*")
    assert costs.ms_per_query == round(1000 * 1 / 24, 1)  # 24 queries
    assert costs.training_seconds == 0


def test_a_reranker_pays_for_its_first_stage_and_for_every_training_behind_it(timed):
    # Encoding the queries, searching, re-ranking: 2 + 4 + 6 s; what negatives were drawn from is not a time of a query.
    # The joint model, de_bm25neg, ce_bm25neg and ce_deneg: 4 · 10 s.
    scores = timed("RocketQAv2 (re-ranker)", "RocketQAv2 (retriever)")
    costs = read_costs(scores)
    assert costs.ms_per_query == 1000 * 12 / 24
    assert costs.training_seconds == 40
    assert costs.index_bytes == bytes_of(scores, "embeddings/rocketqav2.passages-*")


def test_the_training_of_a_judge_whose_labels_score_a_run_is_not_the_runs(timed):
    scores = timed("BM25")
    judge = timed("CE w/ DE Neg", "BM25").folder  # stands for labels
    upstream = scores.manifest.upstream | {"labels": str(judge)}
    changed = replace(scores, manifest=scores.manifest.model_copy(update={"upstream": upstream}))
    assert read_costs(changed) == read_costs(scores)


@pytest.mark.parametrize(("rescore", "searched"), [(True, "lucene embeddings"), (False, "lucene")])
def test_vectors_are_no_index_where_its_codes_alone_decide(timed, rescore, searched):
    scores = timed("RocketQAv2 (retriever)")
    results = scores.folder.parents[1]
    run = results / "retrieve" / Path(scores.upstream["run"]).name
    manifest = open_artifact(run).manifest
    (lucene,) = results.glob("lucene/lucene-*")  # stands for an index of the run's vectors
    upstream = manifest.upstream | {"index": str(lucene)}
    changed = manifest.model_copy(
        update={"upstream": upstream, "params": manifest.params | {"rescore": rescore}}
    )
    write_json(run / "stage.json", changed.model_dump())
    names = {"lucene": "lucene/lucene-*", "embeddings": "embeddings/rocketqav2.passages-*"}
    assert read_costs(scores).index_bytes == sum(
        bytes_of(scores, names[kind]) for kind in searched.split()
    )
    write_json(run / "stage.json", manifest.model_dump())


def test_a_group_of_datasets_has_no_run_and_what_was_deleted_no_costs(timed):
    scores = timed("BM25")
    upstream = {role: folder for role, folder in scores.manifest.upstream.items() if role != "run"}
    gone = {**scores.manifest.upstream, "qrels": "results/toy/relabel/toy-0123456789"}
    for inputs in (upstream, gone):
        assert (
            read_costs(
                replace(scores, manifest=scores.manifest.model_copy(update={"upstream": inputs}))
            )
            is None
        )


def test_the_columns_of_a_table(world, tmp_path):
    layout, out = tmp_path / "layout.yaml", tmp_path / "costs.csv"
    layout.write_text(LAYOUT)
    make_table(tmp_path, layout, world.select(("BM25", ""), ("RocketQAv2 (retriever)", "")), out)
    table = read_table(out.with_suffix(".json"))
    assert [row.family for row in table.rows] == ["lexical", "joint", ""]
    index = table.rows[0].costs.index_bytes
    assert index > 0
    lines = out.with_suffix(".md").read_text().splitlines()
    head = next(line for line in lines if line.startswith("| System"))
    assert [cell.strip() for cell in head.strip("|").split("|")][-4:] == [*COST_HEAD, "p against"]
    assert [line.split("|")[3].strip() for line in lines if line.startswith("| ")][2:] == [
        "lexical",
        "joint",
        "–",
    ]
    assert f"| {index:,} |" in next(line for line in lines if line.startswith("| BM25"))
    assert next(line for line in lines if line.startswith("| Theirs")).count("–") >= 5
    rows = {(row["system"], row["measure"]): row["value"] for row in csv.DictReader(out.open())}
    assert rows["BM25", "index_bytes"] == str(index)
    assert ("Theirs", "training_seconds") not in rows
    page = out.with_suffix(".html").read_text()
    assert "<small>joint</small>" in page
    assert f'data-label="index bytes" data-value="{index}">{index:,}</td>' in page
