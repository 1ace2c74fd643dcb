"""Lists over tiny texts, and objectives with fresh tiny models."""

import json

import pytest
from training_jobs import (  # noqa: F401
    batch,
    gradients,
    lists,
    make_objective,
    model_job,
    quick_job,
    runs,
)

from tandem.store.artifact import open_artifact
from tandem.store.job import writing


@pytest.fixture
def validation(make_job, tmp_path):
    """`validation(kind, number, measure, mean)`: an artifact with the statistics of a validation."""

    def make(kind, number, measure, mean):
        params = {"split": "dev"} | ({"measures": [measure]} if kind == "score" else {})
        job = make_job(kind, tmp_path / kind / f"v.{number}-0000000000", params)
        with writing(job) as draft:
            draft.path("statistics.json").write_text(json.dumps({"mean": {measure: mean}}))
        return open_artifact(job.out)

    return make
