"""Weights of terms: stored as the model gives them, searched exactly, and in Lucene by whole numbers."""

import csv
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from scipy.sparse import csr_array
from tiny_sparse import masked_lm_folder, sparse_model
from trec import iter_trec

from tandem.contrib.term_weights import term_indexes, term_search, term_tradeoffs
from tandem.contrib.term_weights.splade import SparseEncoder
from tandem.contrib.term_weights.term_indexes import round_query_weights, round_weights
from tandem.contrib.term_weights.term_search import TermWeights
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.models.dual import encode_all, load_dual
from tandem.models.tokens import Tokens
from tandem.retrieval import encode
from tandem.retrieval.exact import unpack_keys
from tandem.store.artifact import open_artifact
from tandem.store.job import run_shard

ENCODE = {"block": 16, "batch_tokens": 256, "precision": "fp32"}
PARAMS = {"depth": 7, "split": "test"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, encoder_folder, make_job, encoder, dataset, tokens):
    """What the stage `term_weights` reads, with a model of a masked language model."""
    folder = tmp_path_factory.mktemp("splade")
    masked_lm_folder(folder / "mlm", encoder_folder)
    model = sparse_model(make_job, folder / "splade-0123456789", folder / "mlm", encoder)
    return {"dataset": dataset, "model": model, "tokens": tokens}


@pytest.fixture(scope="module")
def weigh(make_job, inputs):
    """`weigh(out, **params)`: run the stage `term_weights`."""

    def make(out, **params):
        encode.run(make_job("term_weights", out, ENCODE | params, inputs))
        return open_artifact(out)

    return make


@pytest.fixture(scope="module")
def searched(tmp_path_factory, weigh, dataset):
    """The inputs of a search."""
    folder = tmp_path_factory.mktemp("weights")
    queries = weigh(folder / "queries-0123456789", side="queries", split="test")
    return {
        "dataset": dataset,
        "passages": weigh(folder / "p-0123456789", side="passages"),
        "queries": queries,
    }


def rows(artifact, side):
    return TermWeights(artifact, side).take(0, 1 << 20)


def lines_of(docs, names, scores, depth):
    """TREC lines without tag, by sorting all passages that share a term with the query."""
    lines = []
    for name, row in zip(names, scores, strict=True):
        order = sorted(np.flatnonzero(row > 0), key=lambda i: (-np.float32(row[i]), docs[i]))[
            :depth
        ]
        lines += [
            f"{name} Q0 {docs[i]} {n} {np.float32(row[i]):.9g}"
            for n, i in enumerate(order, start=1)
        ]
    return lines


def test_the_best_by_hand():
    queries = csr_array(np.array([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    inverted = csr_array(
        np.array([[1.0, 0.0, 3.0, 1.0], [5.0, 5.0, 5.0, 5.0], [1.0, 0.0, 0.0, 1.0]])
    )
    keys = term_search.select_best(queries, inverted, np.array([3, 2, 1, 0]), 2, 0.5)
    # 2 · 1 + 1 · 1 = 3 of the first and the last, whose id comes first; 2 · 3 = 6 of the third; divided by 1/2
    scores, ranks = unpack_keys(np.sort(keys[0])[::-1])
    assert scores.tolist() == [12.0, 6.0]
    assert ranks.tolist() == [1, 0]
    assert keys[1].tolist() == [0, 0]


def test_stored_weights_are_the_models_rounded(searched, inputs):
    model = SparseEncoder.load(inputs["model"].folder / "dual").eval()
    opened = Tokens.open(inputs["tokens"])
    expected = encode_all(model, "passage", opened.passages, opened.template, "fp32", 256).numpy()
    stored = rows(searched["passages"], "passages").toarray()
    assert np.abs(stored - expected).max() <= expected.max() * 2**-10
    assert (stored == stored.astype(np.float16)).all()
    facts = searched["passages"].manifest.facts
    assert facts["active_terms"] == pytest.approx(np.count_nonzero(stored) / 60, abs=0.01)


@pytest.mark.parametrize("depth", [1, 7, 100])
@pytest.mark.parametrize("memory", [0.02, 2048])
def test_run_equals_brute_force(tmp_path, make_job, searched, depth, memory, monkeypatch):
    # MiB: a few passages and queries at a time
    monkeypatch.setattr("tandem.retrieval.retrieve.SEARCH_MEMORY_MIB", memory)
    params = PARAMS | {"depth": depth}
    job = make_job("retrieve_sparse", tmp_path / "s-0123456789", params, searched, {"workers": 2})
    term_search.run(job)
    scores = (
        rows(searched["queries"], "queries").toarray()
        @ rows(searched["passages"], "passages").toarray().T
    )
    docs = Collection(searched["dataset"]).doc_ids().to_pylist()
    expected = lines_of(docs, Collection(searched["dataset"]).queries("test"), scores, depth)
    lines = (job.out / "run.trec").read_text().splitlines()
    assert [line.rsplit(" ", 2)[0] for line in lines] == [
        line.rsplit(" ", 1)[0] for line in expected
    ]
    assert lines == [f"{line} s-0123456789" for line in expected]


@pytest.fixture(scope="module")
def silent(tmp_path_factory, encoder_folder, make_job, encoder, dataset, tokens):
    """The inputs of a search where no text has a weight."""
    folder = tmp_path_factory.mktemp("silent")
    masked_lm_folder(folder / "mlm", encoder_folder, bias=-1000.0)
    model = sparse_model(make_job, folder / "splade-0123456789", folder / "mlm", encoder)
    made = {"dataset": dataset, "model": model, "tokens": tokens}
    for side, more in (("passages", {}), ("queries", {"split": "test"})):
        job = make_job(
            "term_weights", folder / f"{side}-0123456789", ENCODE | {"side": side} | more, made
        )
        encode.run(job)
        made[side] = open_artifact(job.out)
    return {role: made[role] for role in ("dataset", "passages", "queries")}


@pytest.mark.parametrize("index", [{}, {"index": {"type": "bm25"}}, {"index": {"type": "pruned"}}])
def test_texts_without_a_weight_find_nothing(tmp_path, make_job, silent, index):
    job = make_job("retrieve_sparse", tmp_path / "s-0123456789", PARAMS | index, silent)
    term_search.run(job)
    assert (job.out / "run.trec").read_text() == ""


def test_texts_without_a_weight_find_nothing_in_lucene_and_there_is_nothing_to_compare(
    tmp_path, make_job, silent
):
    stored = {role: silent[role] for role in ("dataset", "passages")}
    term_indexes.run_impacts(make_job("impacts", tmp_path / "impacts-0123456789", {}, stored))
    index = open_artifact(tmp_path / "impacts-0123456789")
    job = make_job("search_impacts", tmp_path / "s-0123456789", PARAMS, silent | {"index": index})
    term_indexes.run_search_impacts(job)
    assert (job.out / "run.trec").read_text() == ""
    compared = make_job(
        "term_tradeoffs", tmp_path / "t-0123456789", {"split": "test"}, silent | {"index": index}
    )
    with pytest.raises(UserError, match="no query has a weight above 0"):
        term_tradeoffs.run(compared)


@pytest.mark.parametrize("above", [0.2, 0.5])
def test_terms_that_many_passages_have_count_for_nothing(tmp_path, make_job, searched, above):
    passages = rows(searched["passages"], "passages").toarray()
    common = (passages > 0).mean(axis=0) > above
    assert 0 < common.sum() < (passages > 0).any(axis=0).sum()
    job = make_job(
        "retrieve_sparse",
        tmp_path / "s-0123456789",
        PARAMS | {"index": {"type": "pruned", "above": above}},
        searched,
    )
    term_search.run(job)
    scores = rows(searched["queries"], "queries").toarray() @ np.where(common, 0, passages).T
    docs = Collection(searched["dataset"]).doc_ids().to_pylist()
    expected = lines_of(
        docs, Collection(searched["dataset"]).queries("test"), scores, PARAMS["depth"]
    )
    assert (job.out / "run.trec").read_text().splitlines() == [
        f"{line} s-0123456789" for line in expected
    ]


def test_weights_as_frequencies_are_searched_by_bm25(tmp_path, make_job, searched):
    k1, b = 3.0, 0.4
    frequencies = {"type": "bm25", "scale": 20, "k1": k1, "b": b}
    job = make_job(
        "retrieve_sparse", tmp_path / "s-0123456789", PARAMS | {"index": frequencies}, searched
    )
    term_search.run(job)
    tf = np.rint(20 * rows(searched["passages"], "passages").toarray())
    lengths, df = tf.sum(axis=1, keepdims=True), (tf > 0).sum(axis=0)
    idf = np.log(1 + (60 - df + 0.5) / (df + 0.5))
    weights = idf * tf / (tf + k1 * (1 - b + b * lengths / lengths.mean()))
    scores = rows(searched["queries"], "queries").toarray() @ weights.T
    ranked = {query: (docs, values) for query, docs, values in iter_trec(job.out / "run.trec")}
    docs = np.array(Collection(searched["dataset"]).doc_ids().to_pylist())
    for query, row in zip(Collection(searched["dataset"]).queries("test"), scores, strict=True):
        assert list(ranked[query][0]) == docs[np.argsort(-row)[:7]].tolist()
        assert ranked[query][1] == pytest.approx(np.sort(row)[::-1][:7])


def test_a_run_of_uhd_counts_the_dimensions_that_query_and_passage_share(
    make_job, make_model, inputs, tmp_path
):
    shape = {"pooling": "max", "representation": {"type": "uhd", "width": 300, "winners": 4}}
    read = inputs | {"model": make_model(tmp_path / "uhd-0123456789", **shape)}
    searched = {"dataset": inputs["dataset"]}
    for side, split in (("passages", {}), ("queries", {"split": "test"})):
        job = make_job(
            "term_weights", tmp_path / f"{side}-0123456789", ENCODE | {"side": side} | split, read
        )
        encode.run(job)
        searched[side] = open_artifact(job.out)
    job = make_job("retrieve_sparse", tmp_path / "s-0123456789", PARAMS, searched)
    term_search.run(job)
    model, opened = load_dual(read["model"].folder / "dual").eval(), Tokens.open(inputs["tokens"])
    passages = (
        encode_all(model, "passage", opened.passages, opened.template, "fp32", 256).numpy() > 0
    )
    queries = rows(searched["queries"], "queries").toarray() > 0
    assert (rows(searched["passages"], "passages").toarray() == passages).all()
    shared = np.sort((queries[:, None] & passages).sum(2), axis=1)[:, ::-1]
    for number, (_, _, scores) in enumerate(iter_trec(job.out / "run.trec")):
        # equal ones are told apart by the last bit
        assert scores == pytest.approx(shared[number, : len(scores)])
    assert shared.max() > 1


def test_shards_change_no_byte(tmp_path, make_job, command, searched, inputs, weigh):
    weights = tmp_path / "p-0123456789"
    params = ENCODE | {"side": "passages"}
    for shard in range(3):
        job = make_job("term_weights", weights, params, inputs, {"shard": shard, "shards": 3})
        run_shard("term_weights-shard", command(job, f"shards/{shard}-of-3.json"))
    (weights / "blocks/00001.npz").write_bytes(b"damaged")
    assert weigh(weights, side="passages").manifest.files == searched["passages"].manifest.files
    runs = []
    for shards in (0, 2):
        out = tmp_path / f"run-{shards:010d}"
        for shard in range(shards):
            job = make_job(
                "retrieve_sparse", out, PARAMS, searched, {"shard": shard, "shards": shards}
            )
            run_shard("retrieve_sparse-shard", command(job, f"shards/{shard}-of-{shards}.json"))
        term_search.run(make_job("retrieve_sparse", out, PARAMS, searched))
        runs.append(
            [(query, docs, scores.tolist()) for query, docs, scores in iter_trec(out / "run.trec")]
        )
    assert runs[0] == runs[1]


def test_queries_of_another_model_are_refused(
    tmp_path, make_job, searched, encoder_folder, encoder, inputs
):
    other = sparse_model(
        make_job,
        tmp_path / "other-0123456789",
        masked_lm_folder(tmp_path, encoder_folder, 8),
        encoder,
    )
    job = make_job(
        "term_weights",
        tmp_path / "q-0123456789",
        ENCODE | {"side": "queries", "split": "test"},
        inputs | {"model": other},
    )
    encode.run(job)
    mixed = searched | {"queries": open_artifact(job.out)}
    with pytest.raises(
        UserError,
        match=r"passages were embedded with the model splade-0123456789, queries with other-",
    ):
        term_search.run(make_job("retrieve_sparse", tmp_path / "r-0123456789", PARAMS, mixed))


@pytest.fixture(scope="module")
def approximate(tmp_path_factory, make_job, searched):
    """Seismic's index of the weights."""
    pytest.importorskip("seismic", reason="the package pyseismic-lsr is optional")
    out = tmp_path_factory.mktemp("seismic") / "seismic-0123456789"
    term_indexes.run_seismic(
        make_job("seismic", out, {}, {role: searched[role] for role in ("dataset", "passages")})
    )
    return open_artifact(out)


@pytest.mark.parametrize(("depth", "least"), [(60, 1.0), (7, 0.8)], ids=["all", "some"])
def test_what_seismic_proposes_has_its_exact_score(
    tmp_path, make_job, searched, approximate, depth, least
):
    runs, params = [], {"depth": depth, "split": "test"}
    for kind, run, more in (
        ("retrieve_sparse", term_search.run, {}),
        ("search_seismic", term_indexes.run_search_seismic, {"index": approximate}),
    ):
        job = make_job(
            kind, tmp_path / f"{kind}-0123456789", params, searched | more, {"workers": 2}
        )
        run(job)
        ranked = iter_trec(job.out / "run.trec")
        runs.append(
            {query: dict(zip(docs, scores.tolist(), strict=True)) for query, docs, scores in ranked}
        )
    exact, ours = runs
    shares = [len(ours[query].items() & best.items()) / len(best) for query, best in exact.items()]
    assert np.mean(shares) >= least
    assert all(list(row) == sorted(row, key=lambda doc: (-row[doc], doc)) for row in ours.values())


@pytest.mark.skipif(find_spec("seismic") is not None, reason="the package is installed")
def test_a_missing_package_is_named():
    with pytest.raises(
        UserError, match=r"seismic: the package pyseismic-lsr is not installed; pip install"
    ):
        term_indexes.load_seismic("SeismicIndex")


def test_impacts_by_hand():
    weights = csr_array(np.array([[3.0, 0.001, 1.5], [0.0, 0.0, 1.0]], np.float32))
    # 127.5 to the even one
    assert round_weights(weights, 3.0).toarray().tolist() == [[255.0, 0.0, 128.0], [0.0, 0.0, 85.0]]
    assert round_query_weights(weights).toarray().tolist() == [
        [255.0, 0.0, 128.0],
        [0.0, 0.0, 255.0],
    ]


@pytest.fixture(scope="module")
def lucene(tmp_path_factory, make_job, command, searched, request):
    """The folders of an index, a run and a comparison, by stages in processes of their own, as Java wants it."""
    folder = tmp_path_factory.mktemp("lucene")
    tradeoffs = {"split": "test", "queries": 10, "k": [5], "repeats": 1}
    stages = {"impacts": {}, "search_impacts": PARAMS, "term_tradeoffs": tradeoffs}
    index, more = {}, {}
    if find_spec("seismic"):
        more["seismic.0"], tradeoffs["seismic"] = (
            request.getfixturevalue("approximate"),
            [{"name": "fast"}],
        )
    for kind, params in stages.items():
        inputs = (
            {role: searched[role] for role in ("dataset", "passages")}
            if kind == "impacts"
            else searched | index
        )
        inputs |= more if kind == "term_tradeoffs" else {}
        job = make_job(kind, folder / f"{kind}-0123456789", params, inputs, {"workers": 2})
        line = [sys.executable, "-m", "tandem", kind, *command(job)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        index = index or {"index": open_artifact(job.out)}
    return {kind: folder / f"{kind}-0123456789" for kind in stages}


def test_lucene_ranks_as_the_exact_product_of_whole_numbers(lucene, searched):
    passages, queries = (rows(searched[side], side) for side in ("passages", "queries"))
    scores = (
        round_query_weights(queries).toarray() @ round_weights(passages, passages.max()).toarray().T
    )
    docs = Collection(searched["dataset"]).doc_ids().to_pylist()
    expected = lines_of(docs, Collection(searched["dataset"]).queries("test"), scores, 7)
    lines = (lucene["search_impacts"] / "run.trec").read_text().splitlines()
    assert lines == [f"{line} search_impacts-0123456789" for line in expected]


def test_all_searches_are_compared(lucene, searched, tmp_path):
    page = pytest.importorskip("tandem.contrib.indexes.tradeoffs_page")
    page.index_tradeoffs(stage=lucene["term_tradeoffs"], out=tmp_path / "table.csv")
    exact, impacts, *more = csv.DictReader((tmp_path / "table.csv").open())
    assert float(exact["recall@5"]) == 1.0
    assert all(0.8 < float(other["recall@5"]) <= 1.0 for other in (impacts, *more))
    assert [other["index"] for other in more] == (["fast"] if find_spec("seismic") else [])
    assert float(exact["active_terms"]) == searched["passages"].manifest.facts["active_terms"]
    assert float(exact["ms_per_query"]) > 0 < float(impacts["ms_per_query"])
    assert "active terms" in (tmp_path / "table.md").read_text()
