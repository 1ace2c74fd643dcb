"""Shards score what a teacher will be asked for; the stage then computes nothing and writes the same bytes."""

import json
import shutil

import numpy as np
import pytest

from tandem.contrib.distillation import teacher
from tandem.negatives import candidates
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.store.job import plain, run_shard

SCORING = {"precision": "fp32", "batch_tokens": 256}
DRAW = {"first_rank": 1, "depth": 9, "negatives": 6, "queries": 15, "split": "train", "seed": 1}


@pytest.fixture
def own_tokens(make_tokens, dataset, tmp_path):
    """Token ids of their own, for the scored pairs are kept beside them."""
    return make_tokens(tmp_path / "tiny" / "tokens" / "tiny-0123456789", dataset)


@pytest.fixture
def judges(own_tokens, cross_model, joint_model):
    models = {"judge.0": cross_model, "judge.1": joint_model}
    return models | {"judge_tokens.0": own_tokens, "judge_tokens.1": own_tokens}


def kept_pairs(folder):
    return sum(len(np.load(path)) // 3 for path in folder.rglob("pairs/*/*.npy"))


def files(folder):
    return {name: sha256(folder / name) for name in open_artifact(folder).manifest.files}


def test_shards_change_no_byte(
    make_job, command, dataset, train_run, own_tokens, judges, tmp_path, monkeypatch
):
    monkeypatch.setattr(teacher, "PAIRS_PER_GROUP", 50)
    inputs = {"dataset": dataset, "run": train_run, "tokens": own_tokens}
    draw = make_job("candidates", tmp_path / "tiny" / "candidates" / "c-0123456789", DRAW, inputs)
    candidates.run(draw)
    inputs = {"dataset": dataset, "candidates": open_artifact(draw.out), **judges}
    whole = make_job("teacher", tmp_path / "tiny" / "teacher" / "t-0123456789", SCORING, inputs)
    teacher.run(whole)
    alone = files(whole.out)
    for folder in (whole.out, tmp_path / "tiny" / "pairs"):
        shutil.rmtree(folder)
    scored = []
    for shard in (1, 0):
        job = make_job(
            "teacher", whole.out, plain(whole.params), inputs, {"shard": shard, "shards": 2}
        )
        run_shard("teacher-shard", command(job, f"shards/{shard}-of-2.json"))
        scored.append(json.loads((whole.out / f"shards/{shard}-of-2.json").read_text())["scored"])
    assert sum(scored) == kept_pairs(tmp_path)
    assert min(scored) > 0.35 * sum(scored)
    teacher.run(whole)
    assert files(whole.out) == alone
    assert kept_pairs(tmp_path) == sum(scored)
