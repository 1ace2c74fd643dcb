"""Late interaction end to end: tokens' vectors in blocks, all passages or those an index finds, scores to the bit."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
from trec import iter_trec

from tandem.contrib.indexes import ann
from tandem.contrib.indexes.index import run as run_index
from tandem.contrib.late_interaction import maxsim
from tandem.data.collection import Collection
from tandem.data.rows import PassageOrder, index_passages
from tandem.errors import UserError
from tandem.extras.serving import Served, served_search
from tandem.models.dual import load_dual
from tandem.models.tokens import Tokens
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.encode import run as run_encode
from tandem.retrieval.encode import run_shard
from tandem.retrieval.faiss_search import open_threads
from tandem.store.artifact import open_artifact

ENCODE = {"block": 100, "batch_tokens": 256, "precision": "fp32", "dtype": "fp16"}
SIDES = {"passages": {"side": "passages"}, "queries": {"side": "queries", "split": "test"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("late") / "tiny"


@pytest.fixture(scope="module")
def model(make_model, folder):
    options = {"type": "multi", "dim": 8, "query_tokens": 12}
    shape = {"shared": True, "normalize": True, "temperature": 0.5, "representation": options}
    return make_model(folder / "model" / "colbert-0123456789", ("dual",), seed=8, **shape)


@pytest.fixture(scope="module")
def encode(make_job, folder, dataset, tokens, model):
    """`encode(side, name)`: the stage's job."""

    def make(side, name="late", **execution):
        inputs = {"dataset": dataset, "tokens": tokens, "model": model}
        out = folder / "token_vectors" / f"{name}.{side}-0123456789"
        return make_job("token_vectors", out, ENCODE | SIDES[side], inputs, execution)

    return make


@pytest.fixture(scope="module")
def sides(encode):
    """Tokens' vectors of the passages and of the test queries."""
    for side in SIDES:
        run_encode(encode(side))
    return {side: open_artifact(encode(side).out) for side in SIDES}


@pytest.fixture(scope="module")
def search(make_job, folder, dataset, sides):
    """`search(name, depth, **more)`: the lists of a run, and its artifact."""

    def make(name, depth=60, index=None, **params):
        inputs = {"dataset": dataset, **sides} | ({"index": index} if index else {})
        out = folder / "maxsim" / f"{name}-0123456789"
        maxsim.run(make_job("maxsim", out, {"split": "test", "depth": depth, **params}, inputs))
        return [
            (query, docs, scores.tolist()) for query, docs, scores in iter_trec(out / "run.trec")
        ]

    return make


@pytest.fixture(scope="module")
def scored(dataset, tokens, model):
    """Query → document → score, pair by pair, as a re-ranker has them."""
    return pair_scores(dataset, tokens, model)


def pair_scores(dataset, tokens, model):
    late, opened, collection = (
        load_dual(model.folder / "dual"),
        Tokens.open(tokens),
        Collection(dataset),
    )
    names, table = collection.doc_ids().to_pylist(), {}
    for query in collection.queries("test"):
        row = list(collection.query_texts()).index(query)
        pairs = (
            [opened.queries[row]] * len(names),
            [opened.passages[at] for at in range(len(names))],
        )
        table[query] = dict(
            zip(names, late.score(*pairs, opened.template, "fp32", 256).tolist(), strict=True)
        )
    return table


def test_every_token_but_punctuation_has_a_row(sides, tokens):
    opened = Tokens.open(tokens)
    passages, queries = (Embeddings(sides[side], side) for side in SIDES)
    at = np.load(sides["passages"].path("offsets.npy"))
    assert passages.rows == at[-1] <= len(opened.passages.ids) + 2 * len(opened.passages)
    assert queries.rows == 20 * 12
    assert np.linalg.norm(passages.take(0, passages.rows).astype(float), axis=1) == pytest.approx(
        1, abs=1e-3
    )


def test_shards_change_no_byte(sides, encode):
    for shard in (2, 0):  # the stage itself does what is missing
        run_shard(encode("passages", "shards", shard=shard, shards=3))
    run_encode(encode("passages", "shards"))
    shared = open_artifact(encode("passages", "shards").out)
    assert shared.manifest.checksums == sides["passages"].manifest.checksums


def test_scores_are_those_of_pairs_and_ties_go_by_id(search, scored):
    for query, docs, scores in search("whole"):
        expected = sorted(scored[query].items(), key=lambda pair: (-pair[1], pair[0]))
        assert scores == pytest.approx([score for _, score in expected], rel=1e-6)
        assert set(docs[:20]) == {doc for doc, _ in expected[:20]} or scores[19] == pytest.approx(
            scores[20], rel=1e-6
        )


def test_one_query_at_a_time_finds_what_the_stage_does(search, sides, dataset):
    """`tandem search` opens the class that is registered for rows of tokens."""
    served = served_search["token"](Served("DE", {}, {"dataset": dataset, **sides}, 1))
    queries = maxsim.MappedTexts(sides["queries"], "queries")
    for number, (_, docs, scores) in enumerate(search("whole")):
        vector = queries.rows_of(np.array([number])).tolist()
        found, values = served.answer({"vector": vector, "depth": 10})
        assert (found, values) == (docs[:10], pytest.approx(scores[:10], abs=1e-6))
        rows = index_passages(Collection(dataset)).rows(docs[:3]).tolist()
        assert served.answer({"vector": vector, "rows": rows}) == pytest.approx(
            scores[:3], abs=1e-6
        )


def test_coil_scores_all_passages_by_the_tokens_that_they_share(
    make_job, make_model, folder, dataset, tokens
):
    options = {"type": "coil", "dim": 8, "cls_dim": 12}
    shape = {"shared": False, "pooling": "max", "temperature": 0.5, "representation": options}
    model = make_model(folder / "model" / "coil-0123456789", ("dual",), seed=9, **shape)
    inputs = {"dataset": dataset, "tokens": tokens, "model": model}
    jobs = {
        side: make_job(
            "token_vectors",
            folder / "token_vectors" / f"coil.{side}-0123456789",
            ENCODE | params,
            inputs,
        )
        for side, params in SIDES.items()
    }
    for job in jobs.values():
        run_encode(job)
    inputs = {"dataset": dataset} | {side: open_artifact(job.out) for side, job in jobs.items()}
    job = make_job(
        "maxsim",
        folder / "maxsim/coil-0123456789",
        {"split": "test", "depth": 60, "same_token": True},
        inputs,
    )
    maxsim.run(job)
    expected = pair_scores(dataset, tokens, model)
    lists = {
        query: dict(zip(docs, scores.tolist(), strict=True))
        for query, docs, scores in iter_trec(job.out / "run.trec")
    }
    assert lists.keys() == expected.keys()
    for query, scores in lists.items():
        # of another batch's vectors some last bits differ, which fp16 rounds to another number
        assert scores == pytest.approx(expected[query], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("size", [1, 100])
def test_how_passages_are_grouped_changes_no_bit(search, monkeypatch, size):
    usual = search(f"usual{size}", depth=9)
    monkeypatch.setattr(maxsim, "TOKENS_PER_BLOCK", size)
    monkeypatch.setattr(maxsim, "PRODUCTS", 30 * size)
    assert search(f"pieces{size}", depth=9) == usual


@pytest.fixture(scope="module")
def index(make_job, folder, sides):
    """`index(name, **params)`: an index of the passages' tokens."""

    def make(name, **params):
        job = make_job(
            "index",
            folder / "index" / f"late@{name}-0123456789",
            params,
            {"passages": sides["passages"]},
        )
        run_index(job)
        return open_artifact(job.out)

    return make


def overlap(some, others):
    """The mean share of documents that two runs' lists have in common."""
    return np.mean(
        [len(set(a[1]) & set(b[1])) / len(b[1]) for a, b in zip(some, others, strict=True)]
    )


def test_an_index_whose_lists_are_all_searched_finds_what_exact_search_does(search, index):
    built, exact = index("ivf", type="ivf_flat", nlist=4), search("exact", depth=10)
    assert search("all", depth=10, index=built, nprobe=4, rescore_factor=100) == exact
    few = search("few", depth=10, index=built, nprobe=1, rescore_factor=1)
    assert 0.3 < overlap(few, exact) <= 1


def test_passages_are_promising_by_what_was_found_above_each_tokens_worst():
    # passages of two tokens each: rows 0 and 1, 2 and 3, 4 and 5, 6 and 7
    offsets = np.array([0, 2, 4, 6, 8])
    rows = np.array([[2, 3, 0, 4], [4, 6, 1, -1]])
    scores = np.array([[1, 0.875, 0.5, 0.25], [0.75, 0.625, 0.5, -np.inf]], np.float32)
    # above .25 and .5: passage 0 has .25 and 0, 1 the larger of .75 and .625, 2 has 0 and .25, 3 has .125
    best = [maxsim.select_promising(scores, rows, offsets, count).tolist() for count in range(1, 6)]
    assert best == [[1], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert maxsim.select_promising(scores, np.full_like(rows, -1), offsets, 3).tolist() == []


def test_codes_stand_for_the_vectors_they_were_made_from(search, index):
    exact, options = (
        search("uncoded", depth=10),
        {"depth": 10, "nprobe": 4, "rescore_factor": 100, "rescore": False},
    )
    # vectors as they are, differences from centroids of 8 bits, and codes of 4 bits for two numbers each
    assert search("flat", index=index("as-they-are", type="ivf_flat", nlist=4), **options) == exact
    fine = search("fine", index=index("fine", type="ivf_sq", sq="8bit", nlist=4), **options)
    coarse = search("coarse", index=index("coarse", type="ivf_pq", m=4, bits=4, nlist=4), **options)
    assert overlap(fine, exact) > 0.9
    assert overlap(fine, exact) > overlap(coarse, exact) > 0.3
    assert fine[0][2] == pytest.approx(exact[0][2], rel=0.02)


def test_tradeoffs_measure_indexes_of_tokens_by_the_passages_they_lead_to(
    make_job, folder, dataset, sides, index
):
    inputs = {"dataset": dataset, **sides, "index.0": index("measured", type="ivf_flat", nlist=4)}
    sweep = {"nprobe": [1, 4], "ef_search": [16], "rescore": [True, False], "rescore_factor": 200}
    params = {
        "split": "test",
        "queries": 5,
        "k": [5],
        "repeats": 1,
        "indexes": ["lists"],
        "sweep": sweep,
    }
    job = make_job("tradeoffs", folder / "tradeoffs/late-0123456789", params, inputs)
    pytest.importorskip("tandem.contrib.indexes.vector_tradeoffs").run(job)
    lines = list(csv.DictReader((job.out / "tradeoffs.csv").open()))
    recalls = {(line["nprobe"], line["rescore"]): float(line["recall@5"]) for line in lines}
    # all is found, by vectors as they are
    assert (recalls["4", "True"], recalls["4", "False"]) == (1.0, 1.0)
    assert 0 < recalls["1", "True"] <= 1
    assert len(lines) == 4


@pytest.mark.parametrize("tokens", [[2, 0, 1], [0, 3], [3, 0], [0, 0], []])
def test_a_query_without_any_token_scores_0(tokens):
    queries, passages = np.eye(3, 4)[: sum(tokens)] + 1, np.ones((3, 4))
    scores = maxsim.sum_max_sim(queries, passages, np.array(tokens, np.int64), np.array([1, 2]))
    assert scores.tolist() == [[5.0 * count] * 2 for count in tokens]


def test_an_index_finds_nothing_for_a_query_without_any_token(sides, index, dataset):
    passages = maxsim.MappedTexts(sides["passages"], "passages")
    query = maxsim.OneQuery(np.empty((0, passages.dimension)))
    with open_threads(1) as threads:
        search = maxsim.TokenSearch(passages, query, PassageOrder(dataset))
        searcher = maxsim.TokenSearcher(
            search, ann.OpenedIndex(index("nothing", type="hnsw", m=8), threads), 2, None
        )
        assert searcher.search(np.array([0]), 5).rank(0)[0].tolist() == []


def test_single_vectors_are_refused(make_job, tmp_path, dataset, tokens, dual_model):
    inputs = {"dataset": dataset, "tokens": tokens, "model": dual_model}
    job = make_job(
        "token_vectors", tmp_path / "de.passages-0123456789", ENCODE | SIDES["passages"], inputs
    )
    with pytest.raises(UserError, match="has one vector a text; expected representation: multi"):
        run_encode(job)


def test_more_tokens_than_a_gpu_gives_are_refused():
    index = SimpleNamespace(gpu="replicate", rows=9000)
    search = SimpleNamespace(passages=SimpleNamespace(decode=None), lengths=range(3000))
    searcher = maxsim.TokenSearcher(search, index, 4, None)
    with pytest.raises(UserError, match="4,000 tokens .* a GPU, which gives 2,048; lower rescore"):
        searcher.search(np.array([0]), 1000)
