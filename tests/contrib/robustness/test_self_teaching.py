"""Self-teaching: the divergence by hand, whom its gradient reaches, which copies are drawn, a training by its stage."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from pytest import approx
from tiny_training import BROKEN

from tandem.config.training import PERTURBATIONS, QUERY_COPIES, DualTrain
from tandem.contrib.robustness.self_teaching import BrokenQueries, find_broken_queries
from tandem.data.collection import Collection
from tandem.data.dataset import run as perturb
from tandem.errors import UserError
from tandem.store.artifact import open_artifact
from tandem.training.forward import Budget, Seeds
from tandem.training.stage import run

BIG = Budget(1 << 20, 1 << 20)


def divergence(clean, typo):
    """Σ p log(p / q) of two lists of scores, by plain NumPy."""
    p = np.exp(clean - clean.max())
    p /= p.sum()
    q = np.exp(typo - typo.max())
    q /= q.sum()
    return float((p * np.log(p / q)).sum())


@pytest.mark.parametrize("in_batch", [False, True])
def test_the_divergence_of_a_batch_by_hand(in_batch, make_objective, batch, gradients):
    teaching = {"weight": 3.0, "temperature": 0.5}
    plain = make_objective("dual", BIG, torch.float64, in_batch=in_batch)
    taught = make_objective("dual", BIG, torch.float64, in_batch=in_batch, self_teaching=teaching)
    values, _ = gradients(taught, batch)
    expected, _ = gradients(plain, batch)
    assert values["sup"] == approx(expected["loss"], rel=1e-10)

    copies = taught.broken.draw(batch.queries, Seeds((1, 2)).child(2))
    with torch.no_grad():
        vectors = {side: plain.vectors.encode_side(side, rows, Seeds((0,))).values() for side, rows in (
            ("query", np.concatenate([batch.queries, copies])),
            ("passage", batch.passages[batch.mask]),
        )}  # fmt: skip
    scores = (vectors["query"] @ vectors["passage"].T).numpy()
    lists = np.argwhere(batch.mask)[:, 0]
    total = 0.0
    for query in range(4):
        seen = np.ones(len(lists), bool) if in_batch else lists == query
        total += divergence(scores[query, seen] / 0.5, scores[4 + query, seen])
    assert values["self_teaching"] == approx(3.0 * total / 4, rel=1e-9)
    assert values["loss"] == approx(values["sup"] + values["self_teaching"], rel=1e-10)


def test_the_querys_own_scores_are_the_teachers(make_objective):
    taught = make_objective("dual", BIG, torch.float64, in_batch=True, self_teaching={})
    clean, typos, passages = (
        torch.randn(2, 32, dtype=torch.float64, requires_grad=True) for _ in range(3)
    )
    taught.broken.compare(taught, typos, clean, passages, passages, None).backward()
    assert clean.grad is None
    assert typos.grad.abs().sum() > 0
    assert passages.grad.abs().sum() > 0


def test_a_copy_that_is_the_query_costs_nothing(make_objective):
    taught = make_objective("dual", BIG, torch.float64, in_batch=True, self_teaching={})
    queries, passages = (
        torch.randn(3, 32, dtype=torch.float64),
        torch.randn(5, 32, dtype=torch.float64),
    )
    assert taught.broken.compare(
        taught, queries, queries, passages, passages, None
    ).item() == approx(0.0, abs=1e-12)


def test_each_visit_draws_a_copy_by_step_and_query_alone():
    broken = BrokenQueries(BROKEN)
    queries = np.arange(8)
    drawn = {step: broken.draw(queries, Seeds((5, step)).child(2)) for step in range(30)}
    assert all(
        (np.isin(rows, BROKEN[queries]).all(), len(rows) == 8) == (True, True)
        for rows in drawn.values()
    )
    assert {int(rows[3]) for rows in drawn.values()} == set(BROKEN[3])
    assert len({tuple(rows) for rows in drawn.values()}) > 10
    # a process with a share of the batch, of another rank, draws the same
    share = broken.draw(queries[5:], Seeds((5, 4), process=1).child(2))
    assert share.tolist() == drawn[4][5:].tolist()


@pytest.fixture
def typos(dataset, make_job, tmp_path):
    """The tiny collection with broken copies of its training queries."""
    params = {
        "source": "perturbed",
        "split": "train",
        "kinds": ["swap", "drop"],
        "words": 1,
        "seed": 5,
    }
    job = make_job("dataset", tmp_path / "dataset" / "typos-0123456789", params, {"of": dataset})
    perturb(job)
    return open_artifact(job.out)


def test_a_model_is_trained_with_it(typos, model_job, make_tokens, make_job, tmp_path):
    from tandem.negatives.candidates import run as draw

    tokens = make_tokens(tmp_path / "tokens" / "typos-0123456789", typos)
    drawing = {"depth": 5, "negatives": None, "split": "train", "seed": 1}
    lists = make_job(
        "candidates", tmp_path / "random-0123456789", drawing, {"dataset": typos, "tokens": tokens}
    )
    draw(lists)
    train = {"steps": 4, "choose": "last", "self_teaching": {"kinds": ["drop", "swap"]}}
    more = {"dataset": typos, "tokens": tokens, "candidates": open_artifact(lists.out)}
    job = model_job("dual", tmp_path / "taught-0123456789", train, more=more)
    del job.inputs["validation"]
    broken = find_broken_queries(job, job.params.train)
    names = [*Collection(typos).queries("train")]
    every = [
        name
        for split in ("train", "dev", "test", "train_swap", "train_drop")
        for name in Collection(typos).queries(split)
    ]
    assert every[broken.rows[0, 0]] == f"drop.{names[0]}"
    assert every[broken.rows[0, 1]] == f"swap.{names[0]}"
    run(job)
    assert open_artifact(job.out).manifest.facts["steps"] == 4


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"self_teaching": {"kinds": ["swap", "swap"]}}, "names a value twice"),
        ({"self_teaching": {"weight": 0}}, "greater than 0"),
        (
            {"self_teaching": {}, "budget_minutes": 1},
            "budget_minutes does not count what self_teaching",
        ),
        (
            {"self_teaching": {}, "live_negatives": 5, "in_batch": False},
            "self_teaching is set, but live_negatives",
        ),
    ],
)
def test_what_does_not_fit_is_refused(train, message):
    with pytest.raises(ValidationError, match=message):
        DualTrain.model_validate(train)


@pytest.mark.parametrize(
    ("broken", "model", "line"),
    [
        (
            {},
            {"dataset": "pydocs"},
            "models.taught.train.self_teaching: pydocs has no broken training queries",
        ),
        (
            {"split": "test"},
            {},
            "models.taught.train.self_teaching: typos has no broken training queries",
        ),
        (
            {"kinds": ["case"]},
            {},
            "self_teaching.kinds names keyboard, but datasets.typos.kinds has case",
        ),
        (
            {},
            {"candidates": {"from": "bm25", "split": "dev"}},
            "self_teaching: lists are of split dev",
        ),
    ],
)
def test_planning_refuses_queries_that_are_not_broken(configured, broken, model, line):
    from tandem import ROOT
    from tandem.plan.plan import Plan

    typos = {
        "source": "perturbed",
        "of": "pydocs",
        "split": "train",
        "kinds": list(PERTURBATIONS),
    } | broken
    taught = {
        "objective": "dual",
        "dataset": "typos",
        "candidates": {"from": "bm25"},
        "train": {"self_teaching": {}},
    }
    config = configured() | {"datasets": {"typos": typos}, "models": {"taught": taught | model}}
    with pytest.raises(UserError) as error:
        Plan(config, ROOT).planner.model("taught", "here")
    assert line in str(error.value)


def test_without_the_package_the_key_is_refused(monkeypatch):
    monkeypatch.setattr(QUERY_COPIES, "_entries", {})
    with pytest.raises(ValidationError, match="self_teaching: nothing learns by it"):
        DualTrain.model_validate({"self_teaching": {}})
