"""What planning says before anything is made, and what tables and report say of trainings that cannot help."""

import csv
import json
import random
import shutil

import pytest
import yaml
from building import build_here
from tiny_project import LAYOUT, PART, TRAIN, run_here, snakemake, tiny_config, write_beir

from tandem.models.saving import DualShape, describe_encoder

ROWS = [*LAYOUT["rows"], {"system": "Encoder, untrained", "run": "encoder"}]
HARMFUL = TRAIN | {"lr": 0.5, "choose": "dev", "validate_every": 4}


@pytest.fixture
def project(encoder_folder, documents, tmp_path):
    """`project(*words)`: Snakemake's status and lines in a folder with the tiny collection and its table.

    The encoder is a folder that says itself how it pools.
    """
    own = shutil.copytree(encoder_folder, tmp_path / "own")
    describe_encoder(own, 32, DualShape(True, "mean", True, 0.05))
    write_beir(
        tmp_path / "beir",
        [(name, "", text) for name, _, text in documents],
        ("train", "dev", "test"),
    )
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(LAYOUT | {"rows": ROWS}))
    config = tiny_config(tmp_path, own) | {
        "tables": [str(tmp_path / "tiny.yaml")],
        "bm25": {"engine": "bm25s"},
    }
    config["lengths"] = {"query": 24, "passage": 24}
    config["depth"]["test"] = 100
    config["models"]["rocketqav2"]["train"] = HARMFUL
    for name in ("de_bm25neg", "ce_bm25neg"):
        config["models"][name]["train"] = HARMFUL
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))

    def run(*words):
        status, output = run_here(snakemake(tmp_path, words))
        return status, output.splitlines()

    run.folder = tmp_path
    return run


def test_without_training_queries_what_needs_none_is_planned_and_the_rest_is_named(project):
    for split in ("train", "dev"):
        (project.folder / f"beir/qrels/{split}.tsv").unlink()
    status, lines = project("-n", "-p")
    assert status == 0, lines
    [lacking] = [line for line in lines if line.startswith("tiny lacks ")]
    assert lacking.startswith("tiny lacks Retriever, Re-ranker on Retriever: models.")
    why = "is trained on split train, but dataset tiny has test; name another dataset with train_on"
    assert lacking.endswith(f": {why}")
    called = [
        line.split("tandem ", 1)[1].split() for line in lines if "python -P -m tandem " in line
    ]
    commands = {words[0]: words for words in called}
    assert commands.keys() >= {"bm25s", "bm25", "untrained", "retrieve", "score", "table", "report"}
    assert "model" not in commands
    # the encoder's own pooling; recall as deep as the runs go
    assert commands["untrained"][commands["untrained"].index("--params.pooling") + 1] == "mean"
    assert "R@100" in " ".join(commands["score"])


def test_names_of_splits_are_read_before_anything_is_made(project):
    qrels = project.folder / "beir/qrels"
    (qrels / "test.tsv").rename(qrels / "Test.tsv")
    status, lines = project("-n")
    allowed = (
        "a split's judgements are <split>.tsv, packed or not, in lower case; rename or remove it"
    )
    assert status == 1
    assert f"{qrels}/Test.tsv: {allowed}" in lines


WARNINGS = [
    "dataset tiny: 1 judgements name documents that the corpus lacks and are kept: no run can find them",
    "model de_bm25neg: training did not help, its start is kept: dev nDCG@10 ",
    "model ce_bm25neg: stays at chance: listwise loss ",
    "model ce_bm25neg: ranks the dev lists worse than their first stage: nDCG@10 ",
    "model rocketqav2: training did not help, its start is kept: dev nDCG@10 ",
    "candidates de_bm25neg: ce_bm25neg, which judges, stays at chance: it denoises nothing",
]


def make_training_useless(beir):
    """Dev and test ask for passages by their own words, which any encoder finds; train's labels are random."""
    texts = {
        row["_id"]: row["text"]
        for row in map(json.loads, (beir / "corpus.jsonl").read_text().splitlines())
    }
    queries = list(map(json.loads, (beir / "queries.jsonl").read_text().splitlines()))
    for query in queries:
        split, _, subject = query["_id"].partition("-")
        if split != "train":
            query["text"] = texts[f"{subject}-{PART[split]}"]
    (beir / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    names = [query["_id"] for query in queries if query["_id"].startswith("train-")]
    drawn = zip(names, random.Random(3).sample(list(texts), len(names)), strict=True)
    judged = "".join(f"{query}\t{passage}\t1\n" for query, passage in drawn)
    (beir / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)


def test_where_training_cannot_help_the_start_is_kept_and_table_and_report_say_so(project):
    """The stages are made here, as importing torch takes longest; Snakemake makes the table and the report."""
    folder = project.folder
    make_training_useless(folder / "beir")
    with open(folder / "beir/qrels/test.tsv", "a") as judged:
        judged.write("test-otter\tunknown\t1\n")
    build_here(folder, "tiny", "config.yaml")
    status, lines = project()
    assert status == 0, lines
    for page in ("tables/tiny.md", "tables/tiny.html", "report.html"):
        text = (folder / "results" / page).read_text().replace("\\", "")
        assert [line for line in WARNINGS if line not in text] == [], page
    with open(folder / "results/tables/tiny.csv") as table:
        values = {
            row["system"]: row["value"]
            for row in csv.DictReader(table)
            if row["measure"] == "nDCG@10"
        }
    # all are found, and of one query a second relevant passage does not exist: (19 + 1 / (1 + 1 / log2(3))) / 20
    assert values["Retriever"] == values["Encoder, untrained"] == "98.0657"
