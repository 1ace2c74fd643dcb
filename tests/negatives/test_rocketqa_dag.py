"""RocketQA's four steps on the tiny collection: random, denoised and pseudo-labelled lists."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from building import build_in
from listed import listed_rows
from tiny_project import ROOT, TRAIN, tiny_config, write_beir

from tandem.config.merging import gathered
from tandem.extras.plan import FullPlan
from tandem.store.artifact import open_artifact

STEPS = {key: value for key, value in TRAIN.items() if key != "list_size"}
SURE = {"by": "m_c", "negative_below": 0.6}
HALVES = {"by": "m_c", "negative_below": 0.5, "positive_above": 0.5}


@pytest.fixture(scope="module")
def project(tmp_path_factory, encoder_folder, documents):
    """The folder where the recipe's last model has been trained, which takes all four steps."""
    folder = tmp_path_factory.mktemp("rocketqa")
    write_beir(folder / "beir", documents)
    judged = {
        "from": "m_d1",
        "split": "unlabelled",
        "labels": "judge",
        "depth": 10,
        "negatives": 4,
        "take": "first",
    }
    unlabelled = {"source": "unlabelled", "of": "tiny", "share": 0.5}
    config = tiny_config(folder, encoder_folder)
    config["datasets"]["tiny-unlabelled"] = unlabelled
    config |= {
        "dataset": "tiny-unlabelled",
        "recipes": ["dureader_retrieval", "rocketqav2", "rocketqa"],
        "depth": {"train": 50, "dev": 50, "test": 50},
        "models": {
            "m_d0": {"train": STEPS},
            "m_c": {"candidates": {"depth": 20}, "train": STEPS},
            "m_d1": {
                "candidates": {
                    "depth": 10,
                    "denoise": {**SURE, "backfill": {"first_rank": 11, "depth": 30}},
                }
            },
            "m_d2": {"candidates": {"also": [{**judged, "denoise": HALVES}]}},
        },
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    build_in(folder, "m_d2", "config.yaml")
    return folder


def test_snakemake_has_the_same_stages_in_mind(project, snakemake_in):
    config = gathered([project / "config.yaml"], ROOT)
    model = FullPlan(config, ROOT).planner.model("m_d2", "test")
    assert "Nothing to be done" in snakemake_in(project)(model.manifest, "-n")[1]


def lists(project, source):
    """Rows of the candidates of a name, one list of rows a stage."""
    return [
        listed_rows(open_artifact(path))
        for path in project.glob(f"results/*/candidates/{source}-*")
    ]


def test_the_steps_draw_from_where_the_paper_does(project):
    (random,) = lists(project, "random")
    assert {row["source"] for row in random} == {"qrels", "random"}
    queries = pq.read_table(
        next(project.glob("results/tiny-unlabelled/dataset/*/queries.parquet"))
    ).to_pylist()
    split = {row["query_id"]: row["split"] for row in queries}
    assert {split[row["query_id"]] for row in random} == {"train"}
    (pseudo,) = lists(project, "m_d1")
    assert {split[row["query_id"]] for row in pseudo} == {"unlabelled"}
    assert {row["source"] for row in pseudo if row["label"]} == {"judge"}
    denoised = next(rows for rows in lists(project, "m_d0") if rows[0]["list"] == "denoised")
    # of the window only what the judge is sure of, below it what nobody judged
    for row in denoised:
        assert row["label"] or (
            row["judge"] < 0.6 if row["rank"] <= 10 else row["judge"] != row["judge"]
        )


def test_the_last_model_has_learned_from_both(project):
    (path,) = project.glob("results/*/model/m_d2-*/stage.json")
    manifest = json.loads(path.read_text())
    drawn = {role for role in manifest["upstream"] if role.startswith("candidates")}
    assert drawn == {"candidates", "candidates.1"}
    reports = [json.loads((Path(project) / folder / "report.json").read_text())
               for role, folder in manifest["upstream"].items() if role in drawn]  # fmt: skip
    assert manifest["facts"]["lists"] == sum(sum(report["lists"].values()) for report in reports)
