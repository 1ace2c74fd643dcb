"""Exact search against brute force in float64, ties included, whatever FAISS's last bits are."""

import faiss
import numpy as np
import pytest

from tandem.retrieval.exact import (
    EXTRA_PROPOSALS,
    BestPassages,
    pack_keys,
    score_vector_pairs,
    unpack_keys,
)
from tandem.retrieval.faiss_search import BlockSearch


def brute(queries, passages, temperature=1.0):
    """All scores, by the same rule written the plain way: float64, then rounded."""
    products = queries.astype(np.float64)[:, None, :] * passages.astype(np.float64)[None]
    return (products.sum(axis=2) / temperature).astype(np.float32)


def best_of(scores, ranks, depth):
    """Rows of each query's best, by (score desc, rank asc)."""
    return [np.lexsort((ranks, -row))[:depth].tolist() for row in scores]


def search_blocks(queries, passages, ranks, depth, block, temperature=1.0, batch=8):
    """Rows found by searching block by block."""
    row_of = np.argsort(ranks)
    best = BestPassages(len(queries), depth)
    for start in range(0, len(passages), block):
        search = BlockSearch(
            passages[start : start + block], ranks[start : start + block], temperature
        )
        for at in (slice(i, i + batch) for i in range(0, len(queries), batch)):
            best.add(at, search.candidates(queries[at], depth, best.find_floors(at)))
    lists = [best.rank(i) for i in range(len(queries))]
    return [row_of[ranks].tolist() for ranks, _ in lists], [scores for _, scores in lists]


def test_packed_pairs_sort_by_score_then_rank():
    scores = np.array([-np.inf, -1.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, 2.0, np.inf], np.float32)
    ranks = np.array([3, 2, 1, 5, 5, 0, 7, 6, 0])
    keys = pack_keys(scores, ranks)
    assert keys.dtype == np.uint64
    assert keys[3] == keys[4]
    assert (np.diff(keys[[0, 1, 2, 3, 5, 6, 7, 8]].astype(object)) > 0).all()
    assert (keys > 0).all()
    again, back = unpack_keys(keys)
    assert np.array_equal(again, scores)
    assert back.tolist() == ranks.tolist()


def test_scores_by_hand():
    q, p = np.array([[1, 2], [3, 0]], np.float16), np.array([[4, 0.5], [0.25, 9]], np.float16)
    assert score_vector_pairs(q, p, 1.0).tolist() == [5.0, 0.75]
    assert score_vector_pairs(q, p, 0.5).tolist() == [10.0, 1.5]


def test_a_score_depends_on_its_pair_alone():
    rng = np.random.default_rng(0)
    q, p = rng.standard_normal((2, 500, 384)).astype(np.float16)
    together = score_vector_pairs(q, p, 0.05)
    alone = np.concatenate(
        [score_vector_pairs(q[i : i + 1], p[i : i + 1], 0.05) for i in range(500)]
    )
    assert together.tobytes() == alone.tobytes()


@pytest.mark.parametrize(("dim", "temperature"), [(24, 1.0), (96, 0.02)])
@pytest.mark.parametrize("depth", [1, 10, 100])
@pytest.mark.parametrize("block", [64, 1000])
def test_equals_brute_force(dim, temperature, depth, block):
    rng = np.random.default_rng(dim + depth)
    queries, passages = (
        rng.standard_normal((20, dim)).astype(np.float16),
        rng.standard_normal((700, dim)).astype(np.float16),
    )
    ranks = rng.permutation(700)
    expected = brute(queries, passages, temperature)
    rows, scores = search_blocks(queries, passages, ranks, depth, block, temperature)
    assert rows == best_of(expected, ranks, depth)
    assert all(s.tolist() == expected[i][rows[i]].tolist() for i, s in enumerate(scores))


@pytest.mark.parametrize("block", [64, 300, 1000])
def test_copies_that_straddle_the_cut(block):
    """Half of the corpus is one passage: far more ties than are asked of FAISS beyond the depth."""
    rng = np.random.default_rng(5)
    queries, passages = (
        rng.standard_normal((30, 48)).astype(np.float16),
        rng.standard_normal((600, 48)).astype(np.float16),
    )
    copies = rng.permutation(600)[:300]
    passages[copies] = passages[copies[0]]
    ranks, depth = rng.permutation(600), 50
    assert len(copies) > 2 * (depth + EXTRA_PROPOSALS)
    expected = best_of(brute(queries, passages), ranks, depth)
    tied = [len(set(rows) & set(copies.tolist())) for rows in expected]
    assert any(0 < n < 50 for n in tied)
    assert search_blocks(queries, passages, ranks, depth, block)[0] == expected


def test_nothing_but_ties():
    ranks = np.random.default_rng(1).permutation(500)
    rows, scores = search_blocks(
        np.zeros((3, 8), np.float16), np.ones((500, 8), np.float16), ranks, 7, 100
    )
    assert rows == [np.argsort(ranks)[:7].tolist()] * 3
    assert all(s.tolist() == [0.0] * 7 for s in scores)


def test_threads_batches_and_blocks_change_no_bit():
    rng = np.random.default_rng(9)
    queries, passages = (
        rng.standard_normal((300, 384)).astype(np.float16),
        rng.standard_normal((3000, 384)).astype(np.float16),
    )
    passages[1000:2000] = passages[:1000]
    ranks = rng.permutation(3000)
    results = []
    before = faiss.omp_get_max_threads()
    try:
        for threads, block, batch in ((1, 3000, 300), (2, 1024, 300), (3, 512, 7)):
            faiss.omp_set_num_threads(threads)
            rows, scores = search_blocks(queries, passages, ranks, 20, block, batch=batch)
            results.append((rows, np.concatenate(scores).tobytes()))
    finally:
        faiss.omp_set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_fewer_passages_than_the_depth():
    passages = np.eye(3, dtype=np.float16)
    rows, scores = search_blocks(np.array([[1, 2, 3]], np.float16), passages, np.arange(3), 3, 2)
    assert rows == [[2, 1, 0]]
    assert scores[0].tolist() == [3.0, 2.0, 1.0]
