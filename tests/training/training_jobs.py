"""Fixtures of trainings over the tiny collection, for the tests of training and of what packages add to it."""

import numpy as np
import pytest

from tandem.data.runs import iter_run
from tandem.store.artifact import open_artifact


@pytest.fixture(scope="session")
def runs(results, write_ranked, dataset):
    """Runs of the train and dev queries: every query's own subject's passages and the next subject's."""
    from tandem.data.collection import Collection

    collection, artifacts = Collection(dataset), {}
    ids = collection.doc_ids().to_pylist()
    for split in ("train", "dev"):
        out = results / "bm25" / f"bm25.{split}-00000000a{'td'.index(split[0])}"
        ranked = (
            (
                query,
                [ids[(3 * i + j) % 60] for j in range(9)],
                np.arange(9, 0, -1, dtype=np.float32),
            )
            for i, query in enumerate(collection.queries(split))
        )
        artifacts[split] = write_ranked(
            "bm25", out, {"depth": 9, "split": split}, {"dataset": dataset}, ranked
        )
        assert len(list(iter_run(artifacts[split], dataset))) == 20
    return artifacts


@pytest.fixture(scope="session")
def lists(results, make_job, dataset, tokens, runs):
    """Training lists from the run of the train queries, by the stage itself."""
    from tandem.negatives.candidates import run

    params = {"first_rank": 1, "depth": 9, "negatives": None, "split": "train", "seed": 1}
    inputs = {"dataset": dataset, "run": runs["train"], "tokens": tokens}
    job = make_job("candidates", results / "candidates" / "bm25-00000000b0", params, inputs)
    run(job)
    return open_artifact(job.out)


@pytest.fixture(scope="session")
def model_job(make_job, dataset, tokens, encoder, lists, runs):
    """`model_job(objective, out, train, shape, more, kind, **execution)`: with other parameters and more inputs."""
    from tiny_stages import OBJECTIVES, TOWERS

    def make(objective, out, train=None, shape=None, more=None, kind="model", **execution):
        inputs = {
            "dataset": dataset,
            "tokens": tokens,
            "candidates": lists,
            "validation": runs["dev"],
        }
        if objective == "joint":
            inputs |= {"cross_tokens": tokens, "retriever": encoder, "reranker": encoder}
        else:
            inputs["start"] = encoder
        params = {"objective": objective, "train": OBJECTIVES[objective] | (train or {})}
        params |= ({"pooling": "mean"} if objective == "cross" else TOWERS) | (shape or {})
        execution = {"micro_tokens": 200, "graph_tokens": 400, "workers": 1} | execution
        return make_job(kind, out, params, inputs | (more or {}), execution)

    return make


@pytest.fixture
def quick_job(model_job, tmp_path):
    """`quick_job(objective, name, train, shape, more, **execution)`: `model_job` of four steps, other parameters."""

    def make(objective, name="quick", train=None, shape=None, more=None, **execution):
        train = {"steps": 4, "choose": "last"} | (train or {})
        return model_job(
            objective, tmp_path / f"{name}-0123456789", train, shape, more, **execution
        )

    return make


@pytest.fixture
def gradients():
    """`gradients(objective, batch)`: loss and gradient of every parameter."""
    from tandem.training.forward import Seeds

    def make(objective, batch):
        values = objective.backward(batch, Seeds((1, 2)))
        return values, {
            name: p.grad for name, p in objective.models.named_parameters() if p.grad is not None
        }

    return make


@pytest.fixture(scope="session")
def batch():
    """Four lists: one of a query that has another list's passage as a known positive, one that is short."""
    from tiny_training import BATCH

    return BATCH


@pytest.fixture
def make_objective():
    """`make_objective(name, budget, dtype, **train)`: the same weights at each call."""
    from tiny_training import objective

    return objective
