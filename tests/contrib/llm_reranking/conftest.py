"""What the tests of language models share: tiny models of random weights, and the stage over two queries."""

import numpy as np
import pytest
from llm_server import serving
from tiny_language_models import make_language_model
from trec import iter_trec

from tandem.contrib.llm_reranking.llm_rerank import run
from tandem.data.collection import Collection
from tandem.store.artifact import open_artifact


@pytest.fixture(scope="session")
def language_model(tmp_path_factory, documents):
    """`language_model(family)`: the folder of a tiny `qwen3`, `llama` or `t5` that knows the collection's words."""
    texts = [f"{title} {text}" for _, title, text in documents]
    texts.append("yes no true false A B [ 1 2 3 4 5 ] > Query passage")
    folders = {}

    def make(family, **options):
        key = (family, *options.items())
        if key not in folders:
            folders[key] = make_language_model(
                tmp_path_factory.mktemp(family), family, texts, **options
            )
        return folders[key]

    return make


@pytest.fixture
def server():
    """A server of the test; see `llm_server.serving`."""
    with serving() as httpd:
        yield httpd


@pytest.fixture
def questions(dataset):
    """Two test queries with their texts, and the eight documents that the run has for each."""
    collection = Collection(dataset)
    return list(collection.queries("test").items())[:2], collection.doc_ids().to_pylist()[:8]


@pytest.fixture
def rerank(make_job, write_ranked, dataset, questions, tmp_path):
    """`rerank(params, endpoint)`: the stage's artifact, and query → (documents, scores) of its run.

    Models in this process have random weights: two words of hundreds are hardly ever likely.
    """
    queries, docs = questions
    out = tmp_path / "tiny" / "bm25" / "bm25-0123456789"
    ranked = [(query, docs, np.arange(8, 0, -1.0)) for query, _ in queries]
    pool = write_ranked("bm25", out, {"depth": 8}, {"dataset": dataset}, ranked)

    def run_stage(params, endpoint=None, name="llm"):
        how = {"endpoint": endpoint} if endpoint else {}
        inputs = {"dataset": dataset, "run": pool}
        out = tmp_path / "tiny" / "rerank_llm" / f"{name}-0123456789"
        own = {"depth": 6, "precision": "fp32"} | ({} if endpoint else {"unlikely_below": 0})
        job = make_job("rerank_llm", out, own | params, inputs, how)
        run(job)
        return open_artifact(out), {
            query: (ids, scores) for query, ids, scores in iter_trec(out / "run.trec")
        }

    return run_stage
