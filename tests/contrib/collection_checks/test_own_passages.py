"""Queries that are passages, as ArguAna's: said where the dataset is made, warned of where scores suffer from it."""

import json
from pathlib import Path

import pytest
import yaml
from tiny_project import run_tandem

from tandem.data.runs import write_run
from tandem.store.artifact import open_artifact
from tandem.store.job import writing

LINE = "2 of 3 test queries are passages of the corpus, with the same id and text"


@pytest.fixture
def arguments(tmp_path):
    """Four arguments; three queries, of which two are arguments and one has the id of one by chance."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    passages = [
        ("a", "Cars", "Ban them."),
        ("b", "", "Keep them all."),
        ("c", "", "Trains are better."),
        ("d", "", "x"),
    ]
    rows = [dict(zip(("_id", "title", "text"), row, strict=True)) for row in passages]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [("a", "cars ban  them."), ("b", "Keep them all."), ("c", "another text")]
    rows = [dict(zip(("_id", "text"), row, strict=True)) for row in queries]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels/test.tsv").write_text("a\tb\t1\nb\tc\t1\nc\ta\t1\n")
    return folder


def test_the_dataset_says_it_and_the_scores_warn_of_it(arguments, make_job, tmp_path):
    dataset = tmp_path / "dataset" / "x-0"
    output = run_tandem(
        "dataset",
        "--params.source",
        "beir",
        "--run.path",
        arguments,
        "--out",
        dataset / "stage.json",
    )
    assert LINE in output
    facts = open_artifact(dataset).manifest.facts
    assert (facts["own_passages"], facts["warnings"]) == ({"test": 2}, [])
    run = make_job(
        "bm25",
        tmp_path / "bm25" / "x-0",
        {"depth": 2, "split": "test"},
        {"dataset": open_artifact(dataset)},
    )
    with writing(run) as draft:
        write_run(
            run,
            draft,
            [("a", ["a", "b"], [2, 1]), ("b", ["b", "c"], [2, 1]), ("c", ["a", "d"], [2, 1])],
        )
    params = ["--params.measures", '["RR@10"]', "--params.split", "test"]
    inputs = ["--in.dataset", dataset, "--in.run", run.out]
    for ignored, mean, warned in ((False, 2 / 3, True), (True, 1.0, False)):
        out = tmp_path / "score" / f"{ignored}-0"
        more = ["--params.ignore_identical_ids", json.dumps(ignored)]
        run_tandem("score", *params, *more, *inputs, "--out", out / "stage.json")
        assert json.loads((out / "statistics.json").read_text())["mean"]["RR@10"] == pytest.approx(
            mean
        )
        warnings = open_artifact(out).manifest.facts.get("warnings", [])
        assert any(line.startswith(LINE) for line in warnings) == warned


def test_init_says_it_and_leaves_them_out(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert LINE in run_tandem("init", "mine", "--data", "beir")
    entry = yaml.safe_load(Path("mine.yaml").read_text())["datasets"]["mine"]
    assert (entry["ignore_identical_ids"], entry["normalize"]) == (True, "nfc")


def test_ids_that_coincide_by_chance_are_no_finding(arguments, tmp_path):
    (arguments / "queries.jsonl").write_text(
        '{"_id": "a", "text": "one"}\n{"_id": "b", "text": "two"}\n'
    )
    (arguments / "qrels/test.tsv").write_text("a\tb\t1\nb\tc\t1\n")
    out = tmp_path / "dataset" / "y-0"
    output = run_tandem(
        "dataset", "--params.source", "beir", "--run.path", arguments, "--out", out / "stage.json"
    )
    assert "ignore_identical_ids" not in output
    assert open_artifact(out).manifest.facts["own_passages"] == {}
