"""Late interaction as a re-ranker of a run."""

import numpy as np
import pytest
import torch
from trec import iter_trec

from tandem.data.collection import Collection
from tandem.data.rows import index_passages, index_queries
from tandem.models.dual import load_dual
from tandem.models.tokens import Tokens
from tandem.retrieval.rerank import run

PARAMS = {"depth": 10, "precision": "fp32", "batch_tokens": 512}


@pytest.fixture
def ranked(write_ranked, dataset, tmp_path):
    """15 passages for each test query, by a random score."""
    rng = np.random.default_rng(3)
    ids = Collection(dataset).doc_ids().to_pylist()
    lists = [
        (
            query,
            [ids[row] for row in rng.permutation(60)[:15]],
            rng.integers(0, 9, 15).astype(float),
        )
        for query in Collection(dataset).queries("test")
    ]
    out = tmp_path / "tiny" / "bm25" / "run-0123456789"
    return write_ranked("bm25", out, {"depth": 15}, {"dataset": dataset}, lists)


def test_late_interaction_re_ranks_by_its_own_scores(
    tmp_path, make_job, make_model, make_tokens, ranked, dataset
):
    options = {"type": "multi", "dim": 8, "query_tokens": 12}
    start = {"shared": True, "normalize": True, "representation": options}
    model = make_model(
        tmp_path / "tiny" / "model" / "colbert-0123456789", ("dual",), seed=8, **start
    )
    tokens = make_tokens(tmp_path / "tiny" / "tokens" / "tiny-0123456789", dataset)
    inputs = {"dataset": dataset, "run": ranked, "model": model, "tokens": tokens}
    job = make_job("rerank", tmp_path / "tiny" / "rerank" / "colbert-0123456789", PARAMS, inputs)
    run(job)
    collection, opened = Collection(dataset), Tokens.open(tokens)
    docs, queries, late = (
        index_passages(collection),
        index_queries(collection),
        load_dual(model.folder / "dual").eval(),
    )
    for query, docs_ranked, scores in iter_trec(job.out / "run.trec"):
        passages = [opened.passages[row] for row in docs.rows(docs_ranked[:10])]
        with torch.no_grad():
            q = late.encode(
                "query", [opened.queries[int(queries.rows([query])[0])]], opened.template, "fp32"
            )
            p = late.encode("passage", passages, opened.template, "fp32")
        assert scores[: len(passages)] == pytest.approx(late.scores(q, p)[0].numpy(), rel=2e-3)
