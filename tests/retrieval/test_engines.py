"""Every engine of exact search against brute force, byte for byte, however the passages lie and whatever memory is."""

import tracemalloc

import numpy as np
import pytest
from brute_search import MEMORY, brute, copies, normal, search, wide

from tandem.cluster.progress import Progress
from tandem.config.retrieval import search_engine
from tandem.retrieval import faiss_search
from tandem.retrieval.embeddings import Stretches, name_block
from tandem.retrieval.exact import bound_difference, round_and_flag, score_vector_pairs

pytestmark = pytest.mark.gpu


@pytest.fixture(params=list(search_engine))
def engine(request):
    return search_engine[request.param]().search


def opposite(vectors):
    """All in the half space where scores with ones are negative."""
    return -np.abs(vectors)


def long(vectors):
    """Scores of thousands."""
    return vectors * 99


SHAPES = {
    "random": np.copy,
    "copies": copies,
    "negative": opposite,
    "zeros": np.zeros_like,
    "long": long,
}


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("depth", [1, 40, 900])
def test_an_engine_is_brute_force(engine, store, shape, depth, dtype):
    """900 is more than there are passages; blocks of 64 make stretches of several, and one that is cut."""
    vectors, queries = SHAPES[shape](normal(1, 700, 48)), np.abs(normal(2, 20, 48))
    vectors, queries = wide(vectors, queries) if dtype == "fp32" else (vectors, queries)
    ranks = np.random.default_rng(3).permutation(700)
    embeddings = store(vectors, dtype=dtype, temperature=0.05)
    for memory in (MEMORY, 200_000):
        keys = search(engine, embeddings, ranks, queries, depth, memory)
        assert keys.tobytes() == brute(embeddings, ranks, queries, depth).tobytes()


@pytest.mark.parametrize("block", [50, 128, 5000])
def test_blocks_memory_and_order_change_no_byte(engine, store, block):
    vectors, queries = copies(normal(4, 2000, 96)), normal(5, 60, 96)
    ranks = np.random.default_rng(6).permutation(2000)
    embeddings = store(vectors, block)
    expected = brute(embeddings, ranks, queries, 30)
    for memory in (100_000, 2_000_000, MEMORY):
        assert np.array_equal(search(engine, embeddings, ranks, queries, 30, memory), expected)
    backwards = range(len(embeddings) - 1, -1, -1)
    assert np.array_equal(
        search(engine, embeddings, ranks, queries, 30, numbers=backwards), expected
    )


def test_sums_in_another_order_are_settled_or_left():
    """Where `round_and_flag` gives a score it is that of the fixed order; it leaves less than one in a hundred."""
    queries, passages = normal(10, 4000, 768), normal(11, 4000, 768)
    exact = score_vector_pairs(queries, passages, 0.07)
    turned = (queries.astype(np.float64) * passages)[:, ::-1]
    sums = np.add.accumulate(turned, axis=1)[:, -1]
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1) * np.linalg.norm(
        passages.astype(np.float64), axis=1
    )
    scores, close = round_and_flag(sums, bound_difference(768, lengths), 0.07)
    assert np.array_equal(scores[~close], exact[~close])
    assert close.sum() < 40
    # 2**24 + 1 stands in the middle between two float32: no bound is narrow enough
    assert round_and_flag(np.array([2.0**24 + 1, 2.0**24 + 2]), 1e-6, 1.0)[1].tolist() == [
        True,
        False,
    ]


def test_stretches_are_cut_from_blocks_and_put_together(store):
    vectors, ranks = normal(12, 250, 8), np.arange(250)[::-1]
    embeddings = store(vectors, 100)
    passages = Stretches(embeddings, range(3), ranks, Progress("", 0, "", quiet=True))
    for rows, sizes in ((70, [64, 64, 64, 58]), (1000, [250]), (200, [128, 122]), (1, [1] * 250)):
        stretches = [(passages.join(pieces), part) for pieces, part in passages.read(rows)]
        assert [len(part) for _, part in stretches] == sizes
        assert np.array_equal(np.concatenate([vectors for vectors, _ in stretches]), vectors)
        assert np.concatenate([part for _, part in stretches]).tolist() == ranks.tolist()
    assert passages.progress.done == 4 * 250
    last = Stretches(embeddings, [2], ranks, Progress("", 0, "", quiet=True))
    assert (last.rows, [len(part) for _, part in last.read(30)]) == (50, [30, 20])


@pytest.mark.parametrize(("workers", "batch"), [(1, 7), (3, 1024), (5, 4)])
def test_threads_and_their_batches_change_no_bit(store, workers, batch, monkeypatch):
    monkeypatch.setattr(faiss_search, "QUERIES_PER_THREAD", batch)
    embeddings, ranks, queries = (
        store(copies(normal(15, 500, 16)), 100),
        np.arange(500)[::-1],
        normal(16, 40, 16),
    )
    passages = Stretches(
        embeddings, range(5), ranks.astype(np.uint32), Progress("", 0, "", quiet=True)
    )
    keys = np.sort(faiss_search.search_by_faiss(queries, passages, 30, 1 << 16, workers), axis=1)
    assert np.array_equal(keys, brute(embeddings, ranks, queries, 30))


def test_memory_is_what_was_given_whatever_the_corpus(store):
    """20 MiB of float32 vectors within 4 MiB, and within 16 more of them are held at once."""
    vectors, queries, ranks = normal(13, 40_000, 128), normal(14, 256, 128), np.arange(40_000)
    embeddings, peaks = store(vectors, 8192), {}
    search(faiss_search.search_by_faiss, embeddings, ranks, queries[:1], 50, 4 << 20)  # imports
    for memory in (4 << 20, 16 << 20):
        tracemalloc.start()
        keys = search(faiss_search.search_by_faiss, embeddings, ranks, queries, 50, memory)
        peaks[memory] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peaks[memory] < memory + 2 * keys.nbytes
    assert peaks[4 << 20] < peaks[16 << 20]
    assert embeddings.artifact.path(name_block(4)).stat().st_size > 1 << 20


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_a_few_vectors_are_those_of_their_blocks_in_the_order_they_are_named_in(store, dtype):
    embeddings = store(normal(3, 1000, 24).astype(np.float32), block=400, dtype=dtype)
    everything = np.concatenate([vectors for _, vectors in embeddings.iterate_blocks()])
    rows = np.r_[999, 401, 0:60, 399, 401, 800:803]  # many of the first block, few of the others
    assert embeddings.pick(rows).tobytes() == everything[rows].tobytes()
    assert embeddings.pick(rows.tolist()).dtype == everything.dtype
    assert embeddings.pick([]).shape == (0, 24)
