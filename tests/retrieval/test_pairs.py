"""Scores of pairs: computed once, right, and shared by whoever asks."""

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder
from tandem.models.device import is_onednn_used
from tandem.models.tokens import Tokens
from tandem.retrieval import pair_scores as module
from tandem.retrieval.pair_scores import PairScores, average_probabilities, to_probability
from tandem.store.artifact import open_artifact

QUERIES, PASSAGES = (
    grid.ravel() for grid in np.meshgrid(np.arange(40, 60), np.arange(0, 60, 3), indexing="ij")
)


@pytest.fixture
def tokens(make_tokens, dataset, tmp_path):
    """Token ids of its own for each test: the store lies beside them."""
    return make_tokens(tmp_path / "tiny" / "tokens" / "tiny-0123456789", dataset)


def direct(model, tokens, queries, passages, mode="fp32"):
    """The cross-encoder asked without a store."""
    opened, cross = Tokens.open(tokens), CrossEncoder.load(model.folder / "cross")
    accelerate(cross, Execution(), 512, mode, training=False)
    texts = [opened.queries[q] for q in queries], [opened.passages[p] for p in passages]
    return cross.score(*texts, opened.template, mode, 512)


def test_scores_are_the_models_and_computed_once(cross_model, tokens):
    first = PairScores(cross_model, tokens, "fp32", 512)
    scores = first.score(QUERIES[:100], PASSAGES[:100])
    assert scores.dtype == np.float32
    assert first.computed == 100
    assert scores.tobytes() == direct(cross_model, tokens, QUERIES[:100], PASSAGES[:100]).tobytes()
    assert first.score(QUERIES[:100], PASSAGES[:100]).tobytes() == scores.tobytes()
    again = PairScores(cross_model, tokens, "fp32", 512)
    assert again.score(QUERIES[:100], PASSAGES[:100]).tobytes() == scores.tobytes()
    assert (first.computed, again.computed) == (100, 0)


def test_only_what_is_new_is_computed_and_order_and_repeats_do_not_matter(cross_model, tokens):
    pairs = PairScores(cross_model, tokens, "fp32", 512)
    pairs.score(QUERIES[::2], PASSAGES[::2])
    order = np.random.default_rng(0).integers(0, len(QUERIES), 900)
    scores = pairs.score(QUERIES[order], PASSAGES[order])
    assert pairs.computed == 200 + len({i for i in order.tolist() if i % 2})
    assert scores.tobytes() == direct(cross_model, tokens, QUERIES, PASSAGES)[order].tobytes()


def test_a_query_that_stands_twice_is_scored_once(cross_model, tokens):
    pairs = PairScores(cross_model, tokens, "fp32", 512)
    first, second = 40, 41
    pairs.tokens = replace(
        pairs.tokens, queries=pairs.tokens.queries.take(np.array([first, first]))
    )
    passages = np.arange(5)
    scores = pairs.score(np.zeros(5, np.int64), passages)
    again = pairs.score(np.ones(5, np.int64), passages)
    assert again.tobytes() == scores.tobytes()
    assert pairs.computed == 5
    other = PairScores(cross_model, tokens, "fp32", 512)
    assert not np.array_equal(other.score(np.full(5, second), passages), scores)


def test_precision_budget_and_model_have_scores_of_their_own(cross_model, joint_model, tokens):
    settings = [
        (cross_model, "fp32", 512),
        (cross_model, "bf16", 512),
        (cross_model, "fp32", 1024),
        (joint_model, "fp32", 512),
    ]
    scorers = [PairScores(model, tokens, mode, budget) for model, mode, budget in settings]
    scores = [scorer.score(QUERIES[:9], PASSAGES[:9]) for scorer in scorers]
    assert [scorer.computed for scorer in scorers] == [9] * 4
    assert len({scorer.store.folder for scorer in scorers}) == 4
    assert all(
        scorer.store.folder.parent == tokens.folder.parents[1] / "pairs" for scorer in scorers
    )
    assert np.allclose(scores[0], scores[1], atol=0.05)
    assert np.allclose(scores[0], scores[2], atol=1e-5)
    assert not np.allclose(scores[0], scores[3], atol=1e-2)


@pytest.mark.skipif(not is_onednn_used(), reason="where there are two ways to multiply")
def test_other_kernels_have_scores_of_their_own(cross_model, tokens):
    here = PairScores(cross_model, tokens, "fp32", 512)
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
        there = PairScores(cross_model, tokens, "fp32", 512)
        scores = there.score(QUERIES[:9], PASSAGES[:9])
    assert here.store.folder != there.store.folder
    assert np.allclose(here.score(QUERIES[:9], PASSAGES[:9]), scores, atol=1e-4)
    assert (here.computed, there.computed) == (9, 9)


def test_threads_change_no_bit(cross_model, make_tokens, dataset, tmp_path):
    before, results = torch.get_num_threads(), set()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            tokens = make_tokens(tmp_path / str(threads) / "tokens" / "tiny-0123456789", dataset)
            results.add(
                PairScores(cross_model, tokens, "fp32", 512).score(QUERIES, PASSAGES).tobytes()
            )
    finally:
        torch.set_num_threads(before)
    assert len(results) == 1


def test_no_pairs(cross_model, tokens):
    none = np.empty(0, np.int64)
    assert PairScores(cross_model, tokens, "fp32", 512).score(none, none).shape == (0,)


def test_a_killed_process_leaves_what_it_has_scored(cross_model, tokens, tmp_path):
    """SIGKILL after the second part; the next process computes only the rest and gets the same bits."""
    script = (
        "import sys, time, numpy as np; from pathlib import Path\n"
        "from tandem.store.artifact import open_artifact; from tandem.retrieval import pair_scores as pairs\n"
        "pairs.TEXTS_BETWEEN_CHECKS, pairs.PENDING = 40, 40\n"
        "append = pairs.PairStore.append\n"
        "pairs.PairStore.append = lambda *args: (append(*args), print('kept', flush=True), time.sleep(0.5))\n"
        "model, tokens = (open_artifact(Path(folder)) for folder in sys.argv[1:3])\n"
        "grid = np.meshgrid(np.arange(40, 60), np.arange(0, 60, 3), indexing='ij')\n"
        "pairs.PairScores(model, tokens, 'fp32', 512).score(*(part.ravel() for part in grid))\n"
    )
    command = [sys.executable, "-c", script, str(cross_model.folder), str(tokens.folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
    assert [process.stdout.readline() for _ in range(2)] == ["kept\n", "kept\n"]
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    pairs = PairScores(cross_model, tokens, "fp32", 512)
    scores = pairs.score(QUERIES, PASSAGES)
    assert pairs.computed == 400 - 80
    assert scores.tobytes() == direct(cross_model, tokens, QUERIES, PASSAGES).tobytes()


def test_many_chunks_and_parts_give_the_same(cross_model, tokens, monkeypatch):
    monkeypatch.setattr(module, "TEXTS_BETWEEN_CHECKS", 7)
    monkeypatch.setattr(module, "PENDING", 10)
    scores = PairScores(cross_model, tokens, "fp32", 512).score(QUERIES, PASSAGES)
    assert scores.tobytes() == direct(cross_model, tokens, QUERIES, PASSAGES).tobytes()


def test_probability_by_hand_and_at_the_ends():
    assert to_probability(np.array([0.0, math.log(3), -math.log(3)])).tolist() == pytest.approx(
        [0.5, 0.75, 0.25]
    )
    with np.errstate(all="raise", under="ignore"):
        assert to_probability(np.array([-2000, 2000], np.float32)).tolist() == [0.0, 1.0]


def test_mean_of_two_judges(cross_model, joint_model, tokens):
    judges = [PairScores(model, tokens, "fp32", 512) for model in (cross_model, joint_model)]
    mean = average_probabilities(judges, QUERIES[:30], PASSAGES[:30])
    logits = [
        direct(model, tokens, QUERIES[:30], PASSAGES[:30]).astype(float)
        for model in (cross_model, joint_model)
    ]
    expected = [
        (1 / (1 + math.exp(-a)) + 1 / (1 + math.exp(-b))) / 2 for a, b in zip(*logits, strict=True)
    ]
    assert mean.dtype == np.float32
    assert mean == pytest.approx(expected, rel=1e-6)
    assert np.ptp(mean) > 0.01


def test_models_that_do_not_fit_are_refused(
    tmp_path, dual_model, cross_model, make_tokens, dataset, tokens
):
    with pytest.raises(
        UserError, match="de-0000000004: has no cross-encoder; it holds: dual encoder"
    ):
        PairScores(dual_model, tokens, "fp32", 512)
    # 16 + 78 + 3 = 97
    long = make_tokens(tmp_path / "tokens" / "long-0123456789", dataset, passage_length=78)
    with pytest.raises(
        UserError,
        match=r"cross: query with passage, padded, allows inputs of 112 tokens; .* takes 96",
    ):
        PairScores(cross_model, long, "fp32", 512).score(QUERIES[:1], PASSAGES[:1])


def test_a_diverged_model_is_named(tmp_path, make_model, tokens):
    from safetensors.torch import load_file, save_file

    model = make_model(tmp_path / "model" / "ce-0123456789", ("cross",))
    weights = model.folder / "cross/2_Dense/model.safetensors"
    save_file({name: tensor * float("nan") for name, tensor in load_file(weights).items()}, weights)
    pairs = PairScores(open_artifact(model.folder, verify=False), tokens, "fp32", 512)
    with pytest.raises(UserError, match="gives a score that is not a number"):
        pairs.score(QUERIES[:3], PASSAGES[:3])
    assert not list(pairs.store.folder.glob("*.npy"))
