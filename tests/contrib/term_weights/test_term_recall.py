"""A model that learns DeepCT's term recall."""

import numpy as np
import pyarrow.parquet as pq

from tandem.contrib.term_weights.static_queries import StaticQueries
from tandem.models.dual import load_dual
from tandem.training.stage import run


def test_a_model_learns_it(quick_job):
    shape = {
        "representation": {"type": "unicoil", "queries": "tokens"},
        "pooling": "max",
        "normalize": False,
    }
    train = {"loss": "term_recall", "steps": 20, "lr": 1e-2, "choose": "dev", "validate_every": 10}
    job = quick_job("dual", train=train, shape=shape)
    run(job)
    log = pq.read_table(job.out / "log.parquet").to_pylist()
    losses = [row["value"] for row in log if row["name"] == "loss"]
    assert np.mean(losses[-5:]) < 0.5 * losses[0]
    assert "- `term_recall`: (1/n)" in (job.out / "dual/README.md").read_text()
    model = load_dual(job.out / "dual")
    assert isinstance(model.towers["query"], StaticQueries)
    assert not list(model.towers["query"].parameters())
