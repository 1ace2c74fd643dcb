"""Embeddings of the tiny collection by the real stage."""

import pytest
from brute_search import store  # noqa: F401

from tandem.store.artifact import open_artifact

ENCODE = {"block": 16, "batch_tokens": 256, "precision": "fp32"}


@pytest.fixture(scope="session")
def embed(make_job):
    """`embed(out, inputs, **params)`: run the stage `embeddings`."""
    from tandem.retrieval.encode import run

    def make(out, inputs, **params):
        run(make_job("embeddings", out, {**ENCODE, **params}, inputs))
        return open_artifact(out)

    return make


@pytest.fixture(scope="session")
def dual_inputs(dataset, dual_model, tokens):
    return {"dataset": dataset, "model": dual_model, "tokens": tokens}


@pytest.fixture(scope="session")
def passages(results, embed, dual_inputs):
    return embed(results / "embeddings" / "de.passages-0000000007", dual_inputs, side="passages")


@pytest.fixture(scope="session")
def queries(results, embed, dual_inputs):
    return embed(
        results / "embeddings" / "de.test-0000000008", dual_inputs, side="queries", split="test"
    )
