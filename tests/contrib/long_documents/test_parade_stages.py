"""PARADE by its stages: trained on documents through their windows, and re-ranking a run of documents."""

import numpy as np
import pytest

from tandem.contrib.long_documents.document_tokens import open_documents
from tandem.data.collection import Collection
from tandem.data.dataset import run as cut
from tandem.data.rows import index_queries
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.models.cross import load_cross
from tandem.models.tokens import Tokens
from tandem.retrieval import pair_scores
from tandem.retrieval.pair_scores import PairScores
from tandem.retrieval.pair_store import PairStore
from tandem.retrieval.rerank import run as rerank
from tandem.store.artifact import open_artifact
from tandem.training.stage import run as train

CUT = {"length": 6, "stride": 4, "unit": "words", "most": 3, "titles": "repeat", "label": "all"}


@pytest.fixture(scope="module")
def windows(dataset, make_job, tmp_path_factory):
    """The tiny collection's passages in windows of six words."""
    out = tmp_path_factory.mktemp("windows") / "dataset" / "w-0123456789"
    cut(make_job("dataset", out, {"source": "windows", **CUT}, {"of": dataset}))
    return open_artifact(out)


@pytest.fixture(scope="module")
def read(make_tokens, windows, tmp_path_factory):
    """Token ids of the windows."""
    return make_tokens(tmp_path_factory.mktemp("read") / "tokens" / "w-0123456789", windows)


@pytest.fixture(scope="module")
def candidates(make_job, dataset, tokens, tmp_path_factory):
    """Lists of the training queries with random negatives."""
    from tandem.negatives.candidates import run

    params = {"depth": 5, "negatives": None, "split": "train", "seed": 1}
    job = make_job(
        "candidates",
        tmp_path_factory.mktemp("lists") / "random-0123456789",
        params,
        {"dataset": dataset, "tokens": tokens},
    )
    run(job)
    return open_artifact(job.out)


@pytest.fixture
def trained(make_job, dataset, read, windows, candidates, cross_model, tmp_path):
    """A PARADE of two steps."""
    sizes = {
        "queries_per_batch": 4,
        "list_size": 3,
        "steps": 2,
        "lr": 1e-3,
        "precision": "fp32",
        "seed": 3,
    }
    params = {
        "objective": "cross",
        "pooling": "cls",
        "parade": {"aggregate": "transformer", "layers": 1},
    }
    params["train"] = sizes | {"loss": "listwise", "choose": "last"}
    inputs = {
        "dataset": dataset,
        "tokens": read,
        "windows": windows,
        "candidates": candidates,
        "start": cross_model,
    }
    job = make_job("model", tmp_path / "parade-0123456789", params, inputs, {"workers": 1})
    train(job)
    return open_artifact(job.out)


def test_a_document_is_its_windows_in_order(read, windows, dataset):
    documents = open_documents(read)
    names = Collection(windows).doc_ids().to_pylist()
    rows = [
        row
        for row, name in enumerate(names)
        if name.rpartition("#")[0] == Collection(dataset).doc_ids()[7].as_py()
    ]
    assert len(rows) > 1
    opened = Tokens.open(read)
    assert documents.passages[7].tolist() == [
        token for row in rows for token in opened.passages[row]
    ]
    assert len(documents.passages) == 60


def test_the_trained_model_reranks_documents_as_it_scores_them(
    trained, read, dataset, write_ranked, make_job, tokens, tmp_path
):
    ids = Collection(dataset).doc_ids().to_pylist()
    collection = Collection(dataset)
    lists = [
        (query, [ids[i] for i in (5, 11, 40)], np.arange(3, 0, -1))
        for query in collection.queries("test")
    ]
    found = write_ranked(
        "bm25",
        tmp_path / "tiny" / "bm25" / "run-0123456789",
        {"depth": 3},
        {"dataset": dataset},
        lists,
    )
    params = {"depth": 3, "precision": "fp32", "batch_tokens": 512}
    inputs = {"dataset": dataset, "run": found, "model": trained, "tokens": read}
    job = make_job("rerank", tmp_path / "tiny" / "rerank" / "p-0123456789", params, inputs)
    rerank(job)
    documents = open_documents(read)
    model = load_cross(trained.folder / "cross").eval()
    for query, docs, scores in list(iter_run(open_artifact(job.out), dataset))[:4]:
        rows = np.repeat(index_queries(collection).rows([query]), 3)
        at = np.array([ids.index(doc) for doc in docs])
        own = model.score(
            documents.queries.take(rows),
            documents.passages.take(at),
            documents.template,
            "fp32",
            512,
        )
        np.testing.assert_allclose(scores, own, rtol=1e-5, atol=1e-5)

    other = make_job("rerank", tmp_path / "no-0123456789", params, inputs | {"tokens": tokens})
    with pytest.raises(
        UserError, match=r"was made from tiny-0000000001; expected windows of tiny-0000000001"
    ):
        rerank(other)


def test_scores_of_documents_are_stored_as_they_come(trained, read, monkeypatch):
    """All windows of a document are read: three a look at the clock are one document, not three."""
    stored = list[int]()
    monkeypatch.setattr(pair_scores, "TEXTS_BETWEEN_CHECKS", CUT["most"])
    monkeypatch.setattr(pair_scores, "PENDING", 1)
    monkeypatch.setattr(PairStore, "append", lambda store, keys, scores: stored.append(len(keys)))
    documents = np.arange(20, 26)  # which no other test re-ranks
    scores = PairScores(trained, read, "fp32", 512).score(np.full(6, 45), documents)
    assert stored == [1] * 6
    assert np.isfinite(scores).all()


def test_the_cards_example_runs(trained, monkeypatch):
    import re

    monkeypatch.chdir(trained.folder)
    (code,) = re.findall(
        r"```python\n(.*?)```", (trained.folder / "cross" / "README.md").read_text(), re.S
    )
    values: dict = {}
    exec(code, values)
    assert values["scores"].shape == (1,)
