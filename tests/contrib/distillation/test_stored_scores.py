"""Distillation from stored scores is distillation from the model that gave them; what has no score teaches nothing."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from pytest import approx

from tandem.config.losses import distillation
from tandem.config.training import DualTrain, JointTrain
from tandem.contrib.distillation import teacher
from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.tokens import Tokens
from tandem.negatives import candidates
from tandem.store.artifact import open_artifact
from tandem.training.forward import Budget
from tandem.training.instances import Instances, iter_batches
from tandem.training.lists import Batch, Positives, read_lists
from tandem.training.objectives import Joint, start_list_loss
from tandem.training.objectives.dual import BatchDualObjective

DISTIL = {"loss": "paper", "weight": 1.0, "supervision": 0.0}
SCORING = {"precision": "fp32", "batch_tokens": 256}
LIVE = JointTrain(precision="fp32", teacher="static")


@pytest.fixture(scope="session")
def stored(results, make_job, dataset, tokens, cross_model, lists):
    """The scores of the lists by the tiny cross-encoder, by the stage itself."""
    inputs = {
        "dataset": dataset,
        "candidates": lists,
        "judge.0": cross_model,
        "judge_tokens.0": tokens,
    }
    job = make_job("teacher", results / "teacher" / "ce-00000000e2", SCORING, inputs)
    teacher.run(job)
    return open_artifact(job.out)


@pytest.fixture(scope="session")
def taught(lists, stored):
    """`taught(queries, size, seed)`: the first batch of the lists, with the stored scores."""
    opened = read_lists(lists.path("candidates.parquet"), stored.path("scores.npy"))
    return lambda queries, size, seed: next(
        iter_batches(Instances(opened, size), queries, seed, visits=20)
    )


@pytest.fixture
def student(dual_model, tokens):
    """`student(dtype, loss)`: the tiny dual encoder, to be taught by stored scores."""

    def make(dtype, loss):
        distil = DISTIL | {"loss": loss}
        train = DualTrain.model_validate({"precision": "fp32", "in_batch": False, "distil": distil})
        model = DualEncoder.load(dual_model.folder / "dual").to(dtype)
        return BatchDualObjective(
            model, Tokens.open(tokens), train, Positives(np.array([0]), np.array([0])), Budget()
        )

    return make


@pytest.mark.parametrize("loss", ["paper", "reference"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)], ids=["fp64", "fp32"]
)
def test_stored_scores_teach_what_the_live_model_teaches(
    student, gradients, taught, dual_model, cross_model, tokens, loss, dtype, tolerance
):
    batch, opened = taught(6, 5, 1), Tokens.open(tokens)
    dual = DualEncoder.load(dual_model.folder / "dual").to(dtype)
    cross = CrossEncoder.load(cross_model.folder / "cross").to(dtype)
    positives = Positives(np.array([0]), np.array([0]))
    joint = Joint(
        dual,
        cross,
        opened,
        opened,
        LIVE.model_copy(update={"semantics": loss}),
        positives,
        Budget(),
    )
    live_values, live = gradients(joint, replace(batch, teacher=None))
    values, grads = gradients(student(dtype, loss), batch)
    assert values["loss"] == approx(live_values["loss"], rel=tolerance)
    assert values["loss"] > 0.01
    assert grads.keys() == live.keys()
    scale = max(float(gradient.abs().max()) for gradient in live.values())
    for name, gradient in live.items():
        torch.testing.assert_close(grads[name], gradient, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("loss", distillation)
def test_passages_without_a_score_and_lists_with_one_teach_nothing(loss):
    rng, nan = np.random.default_rng(1), np.nan
    scores = rng.normal(size=(4, 4)).astype(np.float32)
    stored = np.array([[3, nan, 1, 2], [nan, 2, nan, nan], [1, 0, nan, nan], [nan] * 4], np.float32)
    passages = np.array([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, -1], [11, 12, -1, -1]])
    list_loss = start_list_loss(DualTrain.model_validate({"distil": DISTIL | {"loss": loss}}))

    def distilled(scores, passages, stored):
        own = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
        mask = torch.from_numpy(passages >= 0)
        terms = list_loss(own, mask, own, Batch(np.arange(len(passages)), passages, stored))
        terms["distil"].backward()
        return terms["distil"].item(), own.grad.numpy()

    value, gradient = distilled(scores, passages, stored)
    first, of_first = distilled(
        scores[:1, [0, 2, 3]], passages[:1, [0, 2, 3]], stored[:1, [0, 2, 3]]
    )
    third, of_third = distilled(scores[2:3, :2], passages[2:3, :2], stored[2:3, :2])
    assert value == approx(first + third)
    expected = np.zeros((4, 4))
    expected[0, [0, 2, 3]], expected[2, :2] = of_first, of_third
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-15)
    assert np.abs(of_first).max() > 1e-6
    nothing, none = distilled(scores[1:2], passages[1:2], stored[1:2])
    assert nothing == 0
    assert not none.any()


@pytest.fixture
def taught_job(model_job, dual_model, stored, tmp_path):
    """A training of one step by the stored scores alone, from the tiny dual encoder."""
    train = {
        "distil": DISTIL,
        "dropout": 0.0,
        "in_batch": False,
        "steps": 1,
        "validate_every": None,
        "choose": "last",
    }
    inputs = {"start": dual_model, "teacher": stored}
    return model_job("dual", tmp_path / "student-0123456789", train, more=inputs)


def test_the_stage_learns_from_the_stored_scores(taught_job, student, gradients, taught):
    from tandem.training.stage import run

    run(taught_job)
    log = pq.read_table(taught_job.out / "log.parquet").to_pylist()
    first = next(row["value"] for row in log if (row["step"], row["name"]) == (1, "loss"))
    values, _ = gradients(student(torch.float32, "paper"), taught(4, 4, 5))
    assert first == approx(values["loss"], rel=1e-5)


def test_a_teacher_of_other_lists_is_refused(taught_job, make_job, lists, tmp_path):
    from tandem.training.stage import run

    shallow = make_job(
        "candidates", tmp_path / "shallow-0123456789", lists.params | {"depth": 5}, lists.upstream
    )
    candidates.run(shallow)
    job = replace(taught_job, inputs=taught_job.inputs | {"candidates": open_artifact(shallow.out)})
    with pytest.raises(
        UserError,
        match=r"teacher .*ce-00000000e2 has scored .*bm25-00000000b0; expected .*shallow-",
    ):
        run(job)
