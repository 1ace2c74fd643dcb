"""Tiny generators over the tiny collection; the training's tests share their helpers."""

import sys
from pathlib import Path

import pytest

from tandem.store.artifact import open_artifact

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

TRAIN = {
    "pairs_per_batch": 8, "steps": 6, "lr": 3e-3, "dropout": 0.1, "precision": "fp32", "seed": 5, "warmup": 0.2,
}  # fmt: skip


@pytest.fixture(scope="session")
def train_job(make_job, dataset, new_generator):
    """`train_job(out, train, start, params, **execution)`."""

    def make(out, train=None, start=None, params=None, **execution):
        how = {"micro_tokens": 200, "graph_tokens": 400, "workers": 1} | execution
        options = {"length": 32, "target_length": 12, "train": TRAIN | (train or {})} | (
            params or {}
        )
        return make_job(
            "train_generator",
            out,
            options,
            {"dataset": dataset, "start": start or new_generator},
            how,
        )

    return make


@pytest.fixture(scope="session")
def generator(train_job, results):
    """A generator that has learned the tiny collection's questions by heart."""
    from tandem.contrib.generation.train import run

    out = results / "train_generator" / "doc2query-0000000002"
    run(train_job(out, {"steps": 120, "pairs_per_batch": 20, "lr": 1e-2, "dropout": 0.0}))
    return open_artifact(out)
