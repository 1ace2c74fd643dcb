"""A model that learns DeepCT's term recall, and which queries its targets are of."""

import numpy as np
import pyarrow.parquet as pq

from tandem.contrib.term_weights.static_queries import StaticQueries
from tandem.models.dual import load_dual
from tandem.training.stage import read_training_lists, run, split_lists
from tandem.training.validation import NumberedCollection


def test_queries_that_are_validated_on_are_not_learned_from(quick_job, dataset):
    job = quick_job("dual", train={"choose": "dev"})
    del job.inputs["validation"]  # a tenth of the training queries is set apart
    data, drawn = NumberedCollection.of(dataset), read_training_lists(job)
    known = data.list_positives(drawn)
    lists, learned, validation = split_lists(job, drawn, known, data)
    apart = validation.batch.queries
    assert len(apart) == len(known.look_up(apart)[1]) == 2
    assert len(learned.look_up(apart)[1]) == 0
    assert learned.look_up(lists.queries)[1].tolist() == known.look_up(lists.queries)[1].tolist()


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
