"""The objective `seq2seq`: its loss by hand and by transformers, in parts and processes, and a kept curve."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import seq2seq_cases
import torch
from comparing import assert_same
from pytest import approx
from seq2seq_cases import BATCH, BIG, FAMILIES, SMALL, objective, results
from several_processes import assert_two_equal_one, run_together

from tandem.training.forward import Budget
from tandem.training.lists import Lists
from tandem.training.loop import TrainingLoop

KEPT = Path(__file__).with_name("golden_curves.json")
STEPS = 50
TRAIN = {
    "queries_per_batch": 4,
    "steps": STEPS,
    "epochs": 1.0,
    "lr": 1e-3,
    "seed": 5,
    "choose": "last",
}
CURVES = {
    "T5": ("t5", {}, {}),
    "T5 smoothed": ("t5", {"label_smoothing": 0.1}, {}),
    "T5 by Adafactor": ("t5", {}, {"optimizer": "adafactor", "lr": 1e-2}),
    "BERT2BERT": ("bert2bert", {}, {}),
    "decoder": ("qwen3", {}, {}),
}


def rows(learner):
    """What each pair of the batch reads and writes."""
    tokens = learner.tokens
    return [
        (tokens.passages[p[0]], tokens.queries[q])
        for q, p in zip(BATCH.queries, BATCH.passages, strict=True)
    ]


@pytest.mark.filterwarnings("ignore:Version v4.12.0:FutureWarning")
@pytest.mark.parametrize("family", ["t5", "bart", "bert2bert"])
def test_the_loss_is_that_of_transformers_for_every_token(family):
    learner = objective(family)
    losses, count = 0.0, 0
    for source, target in rows(learner):
        labels = torch.from_numpy(target.astype(np.int64))[None]
        own = learner.model(
            input_ids=torch.from_numpy(source.astype(np.int64))[None], labels=labels
        ).loss
        losses += float(own.detach()) * len(target)
        count += len(target)
    assert results(family)[0] == {"loss": approx(losses / count, rel=1e-10)}


def test_a_decoder_learns_the_target_alone():
    learner = objective("qwen3")
    losses, count = 0.0, 0
    for source, target in rows(learner):
        ids = torch.from_numpy(np.concatenate([source, target]).astype(np.int64))[None]
        likely = learner.model(input_ids=ids).logits[0].log_softmax(-1)
        for place in range(len(source), len(source) + len(target)):
            losses -= float(likely[place - 1, ids[0, place]].detach())
            count += 1
    assert results("qwen3")[0]["loss"] == approx(losses / count, rel=1e-10)


def test_label_smoothing_by_its_formula():
    learner = objective("t5", label_smoothing=0.2)
    loss, count = 0.0, 0
    for source, target in rows(learner):
        labels = torch.from_numpy(target.astype(np.int64))[None]
        logits = learner.model(
            input_ids=torch.from_numpy(source.astype(np.int64))[None], labels=labels
        ).logits[0]
        for likely, token in zip(logits.log_softmax(-1).detach(), target, strict=True):
            loss += 0.8 * -float(likely[int(token)]) + 0.2 * -float(likely.mean())
            count += 1
    values = results("t5", label_smoothing=0.2)[0]
    assert values["loss"] == approx(loss / count, rel=1e-10)
    assert values["nll"] == approx(results("t5")[0]["loss"], rel=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_equal_one_big_batch(family):
    whole = results(family, BIG)
    assert any(float(g.abs().max()) > 1e-3 for g in whole[1].values())
    assert_same(results(family, SMALL), whole)


def test_dropout_follows_the_seeds():
    first, again = (results("t5", SMALL, dropout=0.3) for _ in range(2))
    assert_same(again, first, 0.0)
    assert first[0]["loss"] != approx(results("t5", SMALL)[0]["loss"], rel=1e-3)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The values that each of two processes reports, and its gradients."""
    return run_together(seq2seq_cases, tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("family", FAMILIES)
def test_two_processes_equal_one(family, together):
    assert_two_equal_one(together, family, seq2seq_cases)


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_is_as_it_was(name, make_job, tmp_path):
    """As tests/training/test_golden.py, whose `TANDEM_WRITE_CURVES=1` writes these curves, too."""
    from tandem.config.training import Train

    family, own, loop = CURVES[name]
    learner = objective(family, Budget(100, 200), **own)
    lists = Lists(np.arange(20), np.arange(21), np.ones(20, np.int8), np.arange(20) * 3)
    job = make_job("train_generator", tmp_path / "golden-0000000000", {"train": {"seed": 5}})
    train = Train.model_construct(**TRAIN | loop, list_size=1)
    losses = [
        value
        for _, what, value in TrainingLoop(job, train, learner, lists, None).run().log
        if what == "loss"
    ]
    curves = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if os.environ.get("TANDEM_WRITE_CURVES"):
        curves[name] = [float(f"{value:.10g}") for value in losses]
        KEPT.write_text(
            json.dumps({name: curves[name] for name in CURVES if name in curves}, indent=1) + "\n"
        )
    assert len(losses) == STEPS
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, curves[name], rtol=1e-6)
