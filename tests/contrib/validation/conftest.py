"""An empty place for artifacts; checkpoints and reduced datasets of tiny collections, as in the core's tests."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "data"))
sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

from making_datasets import make  # noqa: F401
from toy_world import World
from training_jobs import lists, model_job, quick_job, runs  # noqa: F401

from tandem.store.artifact import open_artifact
from tandem.store.job import writing


@pytest.fixture
def empty_world(tmp_path) -> World:
    return World(tmp_path)


@pytest.fixture
def validation(make_job, tmp_path):
    """`validation(kind, number, measure, mean, queries)`: an artifact with the statistics of a validation."""

    def build(kind, number, measure, mean, queries=500):
        params = {"split": "dev"} | ({"measures": [measure]} if kind == "score" else {})
        job = make_job(kind, tmp_path / kind / f"v.{number}-0000000000", params)
        with writing(job) as draft:
            counts = {"queries": queries, "missing": 0}
            draft.path("statistics.json").write_text(
                json.dumps({"mean": {measure: mean}, **counts})
            )
        return open_artifact(job.out)

    return build
