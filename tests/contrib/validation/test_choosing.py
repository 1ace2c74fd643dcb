"""Dev chooses: the start is kept where training harms; without dev queries some are set apart; all of it resumes."""

import json

import pyarrow.parquet as pq
import pytest
import torch
from comparing import interrupt
from safetensors.torch import load_file

from tandem.contrib.validation import segments
from tandem.contrib.validation.outcomes import warn_of_few_queries
from tandem.contrib.validation.within import start_validation
from tandem.extras.validation.validation_points import read_points
from tandem.negatives.candidates import run as draw
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.training import stage
from tandem.training.numbered import NumberedCollection
from tandem.training.stage import read_training_lists

SAVED = "dual/shared/model.safetensors"
HARMFUL = {"steps": 6, "choose": "dev", "lr": 0.5, "dropout": 0.0}


def history(folder):
    return read_points(
        tuple(row.values()) for row in pq.read_table(folder / "log.parquet").to_pylist()
    )


def test_where_training_harms_the_start_is_kept_and_the_stage_says_so(
    model_job, encoder, tmp_path, capfd
):
    job = model_job("dual", tmp_path / "de-0123456789", HARMFUL | {"patience": 2})
    stage.run(job)
    validated, facts = history(job.out), open_artifact(job.out).manifest.facts
    assert [point.step for point in validated] == [0, 2, 4]  # the second without a gain ends it
    assert json.loads((job.out / "model.json").read_text())["best"] == [validated[0].mean, 0]
    start, saved = (
        load_file(path) for path in (encoder.folder / "hf/model.safetensors", *job.out.rglob(SAVED))
    )
    assert all(torch.equal(saved[name], start[name]) for name in saved)
    (line,) = [line for line in facts["warnings"] if "did not help" in line]
    assert line.startswith("training did not help, its start is kept: dev nDCG@10 ")
    assert (facts["chosen_step"], facts["steps"]) == (0, 4)
    assert f"model de-0123456789 · warning: {line}" in capfd.readouterr().err


def test_the_end_counts_where_dev_does_not_choose(model_job, tmp_path):
    job = model_job("dual", tmp_path / "de-0123456789", HARMFUL | {"choose": "last"})
    stage.run(job)
    assert [point.step for point in history(job.out)] == [0, 2, 4, 6]
    assert json.loads((job.out / "model.json").read_text())["best"] is None
    assert any(
        line.startswith("ends worse than its start")
        for line in open_artifact(job.out).manifest.facts["warnings"]
    )


def test_a_part_of_a_training_is_not_told_to_let_dev_choose(model_job, tmp_path):
    train = HARMFUL | {"choose": "last"}
    job = model_job(
        "dual", tmp_path / "de.1-0123456789", train, {"until": [1, 1]}, kind="checkpoint"
    )
    segments.run(job)
    warnings = open_artifact(job.out).manifest.facts["warnings"]
    (line,) = [line for line in warnings if line.startswith("ends worse than its start")]
    assert line.startswith("ends worse than its start: dev nDCG@10 ")


def test_validating_changes_no_step(model_job, tmp_path):
    losses = []
    for name, every in (("with", 1), ("without", None)):
        job = model_job(
            "joint", tmp_path / f"{name}-0123456789", {"choose": "last", "validate_every": every}
        )
        stage.run(job)
        rows = pq.read_table(job.out / "log.parquet").to_pylist()
        losses.append([(row["step"], row["value"]) for row in rows if row["name"] == "loss"])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_training_that_ends_early_resumes_to_the_same_bytes(
    broken, model_job, tmp_path, monkeypatch
):
    """Also where its checkpoint is later than its best."""
    files = []
    for name in ("whole", "broken"):
        job = model_job(
            "dual", tmp_path / f"{name}-0123456789", HARMFUL | {"patience": 2}, checkpoint_seconds=0
        )
        if name == "broken":
            interrupt(lambda job=job: stage.run(job), broken, monkeypatch)
            assert not (job.out / "stage.json").exists()
        stage.run(job)
        paths = sorted(job.out.rglob("*.safetensors"))
        files.append({str(path.relative_to(job.out)): sha256(path) for path in paths})
    assert files[0] == files[1]
    assert not (job.out / "checkpoints").exists()


@pytest.mark.parametrize("objective", ["dual", "cross"])
def test_without_dev_queries_a_seeded_tenth_of_the_training_queries_is_set_apart(
    objective, model_job, tmp_path, capfd
):
    facts = []
    for name in ("one", "two"):
        job = model_job(objective, tmp_path / f"{name}-0123456789", {"choose": "dev", "steps": 4})
        del job.inputs["validation"]
        stage.run(job)
        facts.append(open_artifact(job.out).manifest.facts)
    assert facts[0] == facts[1]
    assert facts[0]["validated_on"] == "2 of 20 training queries, which are set apart"
    assert facts[0]["lists"] == 18
    assert any("chosen by 2 queries alone" in line for line in facts[0]["warnings"])
    assert "validates on 2 of 20 training queries, which are set apart" in capfd.readouterr().err


def test_few_queries_to_choose_by_are_warned_of():
    # .4 / √16, the standard error of a mean over 16 queries
    line = warn_of_few_queries("dev", 16)
    assert "16 queries" in line
    assert "off by 0.10" in line
    assert warn_of_few_queries("dev", 50) == ""
    assert warn_of_few_queries("last", 16) == ""


def test_a_budget_decides_the_steps_and_stands_in_the_facts(model_job, tmp_path):
    # the tiny encoder does 20 epochs of 20 lists in batches of 4 in far less than a minute
    job = model_job(
        "cross",
        tmp_path / "ce-0123456789",
        {"budget_minutes": 1, "choose": "dev", "patience": 1, "lr": 0.5},
    )
    stage.run(job)
    facts = open_artifact(job.out).manifest.facts
    assert facts["planned_steps"] == 100
    assert facts["steps"] < 100


def test_sizes_follow_from_the_data_within_a_budget_and_stand_in_the_facts(
    model_job, tmp_path, capfd
):
    train = {
        "sizes": "data",
        "budget_minutes": 1,
        "choose": "dev",
        "patience": 1,
        "lr": 0.5,
        "list_size": 2,
    }
    job = model_job("cross", tmp_path / "ce-0123456789", train)
    stage.run(job)
    facts = open_artifact(job.out).manifest.facts
    # far more than two visits of 20 positives fit: lists of 8, four a step, 20 epochs of 20 lists
    expected = {"list_size": 8, "queries_per_batch": 4, "lr": 1.5e-4, "positives": 1, "steps": 100}
    assert facts["sizes"] == expected
    assert facts["planned_steps"] == 100
    line = (
        "sizes from the data: list_size 8, queries_per_batch 4, lr 0.00015, positives 1, steps 100"
    )
    assert line in capfd.readouterr().err


def test_queries_that_are_validated_on_are_not_learned_from(quick_job, dataset):
    job = quick_job("dual", train={"choose": "dev"})
    del job.inputs["validation"]  # a tenth of the training queries is set apart
    data, drawn = NumberedCollection.of(dataset), read_training_lists(job)
    known = data.list_positives(drawn)
    started = start_validation(job, drawn, known, data)
    lists, learned, apart = started.lists, started.positives, started.validation.batch.queries
    assert len(apart) == len(known.look_up(apart)[1]) == 2
    assert len(learned.look_up(apart)[1]) == 0
    assert learned.look_up(lists.queries)[1].tolist() == known.look_up(lists.queries)[1].tolist()


def test_lists_of_dev_queries_keep_their_known_positives(
    model_job, make_job, dataset, tokens, runs, tmp_path
):
    """Who learns from dev, too, has a step that does not depend on whether dev validates it."""
    params = {"first_rank": 1, "depth": 9, "negatives": None, "split": "dev", "seed": 1}
    inputs = {"dataset": dataset, "run": runs["dev"], "tokens": tokens}
    draw(make_job("candidates", tmp_path / "dev-0123456789", params, inputs))
    more = {"candidates.1": open_artifact(tmp_path / "dev-0123456789")}
    job = model_job("dual", tmp_path / "de-0123456789", {"choose": "dev"}, more=more)
    data, drawn = NumberedCollection.of(dataset, False, "dev"), read_training_lists(job)
    known = data.list_positives(drawn)
    started = start_validation(job, drawn, known, data)
    assert len(started.lists) == len(drawn) == 40
    pairs = known.look_up(drawn.queries)[1].tolist()
    assert started.positives.look_up(drawn.queries)[1].tolist() == pairs
