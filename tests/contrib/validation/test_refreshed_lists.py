"""A chain whose links have lists of their own: optimizer, schedule and order of the data are carried over them."""

import numpy as np
import pytest

from tandem.stages import KINDS
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.store.job import load
from tandem.training.instances import Instances, iter_batches
from tandem.training.lists import read_lists
from tandem.training.loop import TrainingLoop

TRAIN = {"choose": "last"}


def run(job):
    """Make the stage of a job."""
    load(KINDS[job.kind].run)(job)


@pytest.fixture(scope="module")
def refreshed(results, make_job, dataset, tokens, write_ranked):
    """Lists of the same queries from another run."""
    from tandem.data.collection import Collection
    from tandem.negatives.candidates import run as draw

    collection = Collection(dataset)
    ids = collection.doc_ids().to_pylist()
    ranked = (
        (
            query,
            [ids[(3 * i + 7 * j + 1) % 60] for j in range(9)],
            np.arange(9, 0, -1, dtype=np.float32),
        )
        for i, query in enumerate(collection.queries("train"))
    )
    out = results / "retrieve" / "own.train-00000000d1"
    found = write_ranked("bm25", out, {"depth": 9, "split": "train"}, {"dataset": dataset}, ranked)
    params = {"first_rank": 1, "depth": 9, "negatives": None, "split": "train", "seed": 1}
    inputs = {"dataset": dataset, "run": found, "tokens": tokens}
    job = make_job("candidates", results / "candidates" / "own-00000000d2", params, inputs)
    draw(job)
    return open_artifact(job.out)


def weights(folder):
    return {path.name: sha256(path) for path in sorted((folder / "dual").rglob("*.safetensors"))}


def link(model_job, folder, number, candidates=None):
    after = {"after": open_artifact(folder / f"de.{number - 1}-0000000000")} if number > 1 else {}
    more = after | ({"candidates": candidates} if candidates else {})
    return model_job(
        "dual",
        folder / f"de.{number}-0000000000",
        TRAIN,
        {"until": (number, 2)},
        more,
        "checkpoint",
    )


def test_a_chain_is_the_training_that_changes_its_lists_in_midst(
    model_job, refreshed, tmp_path, monkeypatch
):
    for number, candidates in ((1, None), (2, refreshed)):
        run(link(model_job, tmp_path, number, candidates))

    # The same without a state on disk: the loop goes on with the same model and optimizer on other lists.
    whole = tmp_path / "whole"
    carried = {}
    make = TrainingLoop.run

    def run_both(self):
        state = make(self)
        carried.update(optimizer=self.optimizer, models=self.objective.models, state=state)
        return state

    monkeypatch.setattr(TrainingLoop, "run", run_both)
    run(link(model_job, whole, 1))
    first = dict(carried)

    def go_on(self):
        self.objective.models.load_state_dict(first["models"].state_dict())
        for own, other in zip(
            self.objective.models.parameters(), first["models"].parameters(), strict=True
        ):
            self.optimizer.state[own] = first["optimizer"].state[other]
        return first["state"]

    monkeypatch.setattr(TrainingLoop, "resume", go_on)
    run(link(model_job, whole, 2, refreshed))
    assert weights(tmp_path / "de.2-0000000000") == weights(whole / "de.2-0000000000")

    # Other lists did count: the second link without them ends elsewhere.
    monkeypatch.undo()
    plain = tmp_path / "plain"
    for number in (1, 2):
        run(link(model_job, plain, number))
    assert weights(plain / "de.1-0000000000") == weights(tmp_path / "de.1-0000000000")
    assert weights(plain / "de.2-0000000000") != weights(tmp_path / "de.2-0000000000")


def test_the_order_of_the_queries_goes_on(lists, refreshed):
    batches = []
    for artifact in (lists, refreshed):
        instances = Instances(read_lists(artifact.path("candidates.parquet")), size=4)
        batches.append(list(iter_batches(instances, 4, seed=5, visits=24)))
    for first, second in zip(*batches, strict=True):
        assert first.queries.tolist() == second.queries.tolist()
    assert any(a.passages.tolist() != b.passages.tolist() for a, b in zip(*batches, strict=True))
