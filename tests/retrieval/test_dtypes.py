"""Whatever reads embeddings reads fp32 and int8 too: the score that counts is that of the stored vectors."""

import numpy as np
import pytest
import torch
from trec import iter_trec

from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.models.dual import DualEncoder
from tandem.models.tokens import Tokens
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.retrieve import run as retrieve


@pytest.fixture(scope="module", params=["fp32", "int8"])
def inputs(request, tmp_path_factory, embed, dual_inputs, dataset, queries):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "fp32":  # of queries too
        queries = embed(
            folder / "de.test-0123456789", dual_inputs, side="queries", split="test", dtype="fp32"
        )
    return {
        "dataset": dataset,
        "passages": embed(
            folder / "de.passages-0123456789", dual_inputs, side="passages", dtype=request.param
        ),
        "queries": queries,
    }


@pytest.fixture(scope="module")
def scores(inputs):
    """Of every query with every passage, in float64; a vector in int8 is scale times number."""
    files = [np.load(inputs["passages"].path(f"blocks/0000{number}.npy")) for number in range(4)]
    if inputs["passages"].params["dtype"] == "int8":
        files = [file["scale"].astype(np.float64)[:, None] * file["values"] for file in files]
    passages = np.concatenate(files).astype(np.float64)
    files = [np.load(inputs["queries"].path(f"blocks/0000{number}.npy")) for number in range(2)]
    queries = np.concatenate(files).astype(np.float64)
    return (queries[:, None] * passages).sum(axis=2).astype(np.float32)


@pytest.fixture(scope="module")
def everything(tmp_path_factory, make_job, inputs):
    """The run of all passages."""
    out = tmp_path_factory.mktemp("run") / "de.test-0123456789"
    retrieve(make_job("retrieve", out, {"depth": 60, "split": "test"}, inputs))
    return {query: (docs, scores) for query, docs, scores in iter_trec(out / "run.trec")}


def test_the_run_is_that_of_a_brute_force_search(everything, inputs, scores):
    ids = Collection(inputs["dataset"]).doc_ids().to_pylist()
    assert len(everything) == 20
    for row, (docs, values) in zip(scores, everything.values(), strict=True):
        order = sorted(range(60), key=lambda at: (-row[at], ids[at]))
        assert docs == [ids[at] for at in order]
        assert np.asarray(values, np.float32).tolist() == row[order].tolist()


def test_fp32_is_the_model_s_vector_itself(inputs, dual_model, tokens):
    dtype = inputs["passages"].params["dtype"]
    model, opened = DualEncoder.load(dual_model.folder / "dual").eval(), Tokens.open(tokens)
    with torch.inference_mode():
        texts = [opened.passages[i] for i in range(60)]
        expected = model.encode("passage", texts, opened.template, "fp32").numpy()
    error = np.abs(Embeddings(inputs["passages"], "passages").take(0, 60) - expected).max()
    assert error < 1e-5 if dtype == "fp32" else 1e-3 < error < 0.1


def test_fp32_beside_fp16_is_refused(inputs, queries, tmp_path, make_job):
    job = make_job(
        "retrieve", tmp_path / "de.test-0123456789", {"depth": 9}, inputs | {"queries": queries}
    )
    if inputs["passages"].params["dtype"] == "fp32":
        with pytest.raises(
            UserError, match="retrieve: passages are fp32 and queries fp16; fp32 is needed of both"
        ):
            retrieve(job)
    else:
        retrieve(job)
