"""A training in several jobs equals the one in one piece, byte for byte; the right checkpoint becomes the model."""

import json
import shutil

import pytest
from comparing import interrupt
from several_processes import read_curve
from tiny_stages import OBJECTIVES

from tandem.errors import UserError
from tandem.stages import KINDS
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.store.job import load

STEPS = [2, 3, 5, 6]  # six steps in four parts: 1.5, 3, 4.5 and 6, rounded up


def run(job):
    """Make the stage of a job."""
    load(KINDS[job.kind].run)(job)


def weights(folder):
    return {
        str(p.relative_to(folder)): sha256(p)
        for p in sorted(folder.rglob("*.safetensors"))
        if "state" not in p.parts
    }


@pytest.fixture(scope="module")
def segment(model_job, make_job):
    """`segment(objective, folder, number, **execution)`: the job of a checkpoint that goes on from the one before."""

    def make(objective, folder, number, of=4, **execution):
        out, until = folder / f"{objective}.{number}-0000000000", {"until": [number, of]}
        after = (
            {"after": open_artifact(folder / f"{objective}.{number - 1}-0000000000")}
            if number > 1
            else {}
        )
        return model_job(
            objective, out, {"choose": "last"}, until, after, "checkpoint", **execution
        )

    return make


@pytest.fixture(scope="module")
def chains(segment, tmp_path_factory):
    """Folder of the checkpoints of each objective, four of each."""
    folder = tmp_path_factory.mktemp("chains")
    for objective in OBJECTIVES:
        for number in range(1, len(STEPS) + 1):
            run(segment(objective, folder, number))
    return folder


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_four_segments_are_the_training_in_one_piece(objective, model_job, chains, tmp_path):
    job = model_job(objective, tmp_path / f"{objective}-0123456789", {"choose": "last"})
    run(job)
    checkpoints = [chains / f"{objective}.{number}-0000000000" for number in (1, 2, 3, 4)]
    assert [open_artifact(folder).manifest.facts["steps"] for folder in checkpoints] == STEPS
    assert weights(checkpoints[-1]) == weights(job.out)
    assert len({tuple(weights(folder).items()) for folder in checkpoints}) == 4
    assert read_curve(checkpoints[-1]) == read_curve(job.out)
    assert read_curve(checkpoints[1]) == [
        row for row in read_curve(job.out) if row["step"] <= STEPS[1]
    ]


def test_a_segment_that_was_interrupted_goes_on(segment, chains, tmp_path, monkeypatch, capfd):
    shutil.copytree(chains / "joint.2-0000000000", tmp_path / "joint.2-0000000000")
    job = segment("joint", tmp_path, 3, checkpoint_seconds=0)
    interrupt(lambda: run(job), 4, monkeypatch)
    assert not (job.out / "stage.json").exists()
    run(job)
    assert "resumes at step 4/6" in capfd.readouterr().err
    there = chains / "joint.3-0000000000"
    assert weights(job.out) == weights(there)
    moments = "state/step-00000005/optimizer.safetensors"
    assert sha256(job.out / moments) == sha256(there / moments)


def test_a_state_that_is_gone_or_changed_is_refused(segment, chains, tmp_path):
    before = tmp_path / "cross.1-0000000000"
    shutil.copytree(chains / before.name, before)
    weight = before / "state/step-00000002/weights.safetensors"
    weight.write_bytes(weight.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(
        UserError,
        match=r"cross\.1-0000000000/state: is not what the manifest says; delete .*stage\.json",
    ):
        run(segment("cross", tmp_path, 2))
    shutil.rmtree(before / "state")
    # the artifact itself is whole: the state is not part of it
    assert open_artifact(before).path("cross/model.safetensors").is_file()
    with pytest.raises(
        UserError, match=r"state: is gone; delete .*stage\.json and let Snakemake make it again"
    ):
        run(segment("cross", tmp_path, 2))


def test_more_checkpoints_than_steps_are_refused(segment, tmp_path):
    with pytest.raises(UserError, match="train.checkpoints is 7, but there are only 6 steps"):
        run(segment("cross", tmp_path, 1, of=7))


@pytest.mark.parametrize(
    ("kind", "means", "chosen"),
    [
        (None, [], 4),
        ("score", [0.3, 0.5, 0.5, 0.4], 2),  # of equal ones the earlier
        ("score", [0.1, 0.2, 0.3, 0.4], 4),
        ("average_rank", [9.0, 4.0, 2.5, 2.5], 3),  # lower is better
    ],
)
def test_the_chosen_checkpoint_becomes_the_model(
    kind, means, chosen, validation, make_job, chains, tmp_path
):
    inputs = {f"checkpoint.{n}": chains / f"dual.{n}-0000000000" for n in (1, 2, 3, 4)}
    inputs |= {
        f"validation.{n}": validation(kind, n, "RR@10", mean) for n, mean in enumerate(means, 1)
    }
    job = make_job(
        "model", tmp_path / "dual-0123456789", {"objective": "dual", "train": {}}, inputs
    )
    run(job)
    there = chains / f"dual.{chosen}-0000000000"
    assert weights(job.out) == weights(there)
    record = json.loads((job.out / "model.json").read_text())
    assert record["checkpoint"] == there.name
    assert record["best"] == ([means[chosen - 1], STEPS[chosen - 1]] if means else None)
    # the log is that of the whole training, and the checkpoint's own files are as they were
    assert sha256(job.out / "log.parquet") == sha256(chains / "dual.4-0000000000/log.parquet")
    assert open_artifact(there).manifest.facts["steps"] == STEPS[chosen - 1]
    facts = open_artifact(job.out).manifest.facts
    assert (facts["steps"], facts["planned_steps"]) == (STEPS[chosen - 1], STEPS[-1])


def test_few_queries_that_choose_among_checkpoints_are_warned_of(
    validation, make_job, chains, tmp_path
):
    inputs = {f"checkpoint.{n}": chains / f"dual.{n}-0000000000" for n in (1, 2)}
    for number, mean in ((1, 0.5), (2, 0.6)):
        inputs[f"validation.{number}"] = validation("score", number, "RR@10", mean, queries=10)
    params = {"objective": "dual", "train": {}}
    job = make_job("model", tmp_path / "dual-0123456789", params, inputs)
    run(job)
    (line,) = open_artifact(job.out).manifest.facts["warnings"]
    assert "chosen by 10 queries alone: by chance the mean RR@10 is off" in line


def test_every_checkpoint_needs_its_validation(validation, make_job, chains, tmp_path):
    inputs = {f"checkpoint.{n}": chains / f"dual.{n}-0000000000" for n in (1, 2)}
    inputs["validation.1"] = validation("score", 1, "RR@10", 0.5)
    with pytest.raises(UserError, match="2 checkpoints, but 1 validations; one each is needed"):
        run(
            make_job(
                "model", tmp_path / "dual-0123456789", {"objective": "dual", "train": {}}, inputs
            )
        )


def test_the_start_is_a_checkpoint_that_dev_may_choose(
    model_job, make_job, encoder, validation, tmp_path
):
    inputs = {}
    for number, mean in ((0, 0.5), (1, 0.4)):
        out = tmp_path / f"dual.{number}-0000000000"
        run(model_job("dual", out, {"choose": "last"}, {"until": [number, 1]}, kind="checkpoint"))
        inputs |= {
            f"checkpoint.{number}": out,
            f"validation.{number}": validation("score", number, "RR@10", mean),
        }
    job = make_job(
        "model", tmp_path / "dual-0123456789", {"objective": "dual", "train": {}}, inputs
    )
    run(job)
    facts = open_artifact(job.out).manifest.facts
    assert facts["steps"] == 0
    assert facts["warnings"] == [
        "training did not help, its start is kept: dev RR@10 0.5000 at the start, 0.4000 after 6 steps"
    ]
    assert json.loads((job.out / "model.json").read_text())["best"] == [0.5, 0]
