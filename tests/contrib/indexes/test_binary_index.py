"""An index of signs: the Hamming distance by hand and against NumPy, and exact scores of what it proposes."""

import faiss
import numpy as np
import pytest
from clustered import vectors, write_embeddings
from trec import iter_trec

from tandem.contrib.indexes import ann
from tandem.contrib.indexes.ann import OpenedIndex
from tandem.contrib.indexes.index import run
from tandem.retrieval.faiss_search import open_threads
from tandem.store.artifact import open_artifact

ROWS, QUESTIONS, DEPTH, FACTOR = 1500, 70, 20, 4


@pytest.fixture
def build(tmp_path, make_job):
    """`build(embeddings, part)`: an index of signs, by the stage."""

    def make(passages, part=ROWS):
        out = tmp_path / f"de@binary-{part:010}"
        run(make_job("index", out, {"type": "binary", "part": part}, {"passages": passages}))
        return open_artifact(out)

    return make


def search(artifact, queries, k, workers=2):
    """Scores and rows of an index's own search."""
    with open_threads(workers) as threads:
        return OpenedIndex(artifact, threads).search(queries.astype(np.float32), k)


def nearest(queries, passages, k):
    """Hamming distances and rows of each query's nearest passages by the signs of their numbers, ties by row."""
    different = (queries >= 0)[:, None] != (passages >= 0)[None]
    distances = different.sum(axis=2)
    rows = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, rows, axis=1), rows


def test_signs_by_hand(tmp_path, build):
    # signs + + − −, + − − −, − + + +; the query's are + + − +: they differ in 1, 2 and 2 places
    passages = np.array([[3, 1, -2, -1], [1, -1, -1, -4], [-1, 2, 5, 1]], np.float16)
    index = build(write_embeddings(tmp_path / "de.passages-0123456789", passages, "passages", {}))
    scores, rows = search(index, np.array([[9, 1, -1, 2]], np.float16), 3)
    assert rows.tolist() == [[0, 1, 2]]
    # inner products of the signs: four places, less twice those that differ
    assert scores.tolist() == [[2, 0, 0]]


@pytest.mark.parametrize("part", [ROWS, 400])
def test_distances_are_numpy_s_in_one_part_or_several(tmp_path, build, part):
    corpus, queries = vectors(ROWS, 1), vectors(QUESTIONS, 2)
    index = build(
        write_embeddings(tmp_path / "de.passages-0123456789", corpus, "passages", {}), part
    )
    distances, rows = nearest(queries, corpus, 50)
    for workers in (1, 3):
        ours = search(index, queries, 50, workers)
        assert np.array_equal(ours[0], 32 - 2 * distances)
        assert np.array_equal(ours[1], rows)
    # 32 bits a vector
    assert sum(path.stat().st_size for path in index.folder.glob("*.faiss")) < ROWS * 4 + 4000


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_exact_scores_of_the_nearest_decide(tmp_path, make_job, make_dataset, build, dtype):
    """The run is NumPy's: `FACTOR` times the depth by signs, then products of the stored vectors."""
    documents = [(f"{row:04d}", "", "text") for row in range(ROWS)]
    upstream = {
        kind: make_dataset(tmp_path / kind / "made-0000000001", documents, QUESTIONS)
        for kind in ("dataset", "model", "tokens")
    }
    store = np.float32 if dtype == "fp32" else np.float16
    corpus, queries = vectors(ROWS, 1).astype(store), vectors(QUESTIONS, 2).astype(store)
    folder = tmp_path / "embeddings"
    passages = write_embeddings(
        folder / "de.passages-0000000002", corpus, "passages", upstream, 256, 0.05, dtype
    )
    query_dtype = "fp32" if dtype == "fp32" else "fp16"
    encoded = write_embeddings(
        folder / "de.test-0000000003", queries, "queries", upstream, 256, 0.05, query_dtype
    )
    inputs = {
        "dataset": upstream["dataset"],
        "passages": passages,
        "queries": encoded,
        "index": build(passages, 400),
    }
    params = {"depth": DEPTH, "split": "test", "rescore_factor": FACTOR, "recall_queries": 0}
    job = make_job("ann", tmp_path / "de@binary.test-0123456789", params, inputs)
    ann.run(job)

    files = [np.load(passages.path(f"blocks/0000{number}.npy")) for number in range(6)]
    if dtype == "int8":
        files = [file["scale"].astype(np.float64)[:, None] * file["values"] for file in files]
    stored = np.concatenate(files).astype(np.float64)
    candidates = np.sort(nearest(queries, stored, FACTOR * DEPTH)[1], axis=1)
    products = (stored[candidates] * queries.astype(np.float64)[:, None]).sum(axis=2) / 0.05
    best = np.argsort(-products.astype(np.float32), axis=1, kind="stable")[:, :DEPTH]
    expected = np.take_along_axis(candidates, best, axis=1)
    lines = list(iter_trec(job.out / "run.trec"))
    assert [docs for _, docs, _ in lines] == [[f"{row:04d}" for row in rows] for rows in expected]
    scores = np.take_along_axis(products, best, axis=1).astype(np.float32)
    assert np.allclose([scores for _, _, scores in lines], scores, rtol=1e-6)


def test_signs_behind_a_rotation_of_one_s_own(tmp_path, make_job):
    """FAISS's own words, `PCA24,LSH`: distances in 24 places."""
    corpus = vectors(ROWS, 1)
    passages = write_embeddings(tmp_path / "de.passages-0123456789", corpus, "passages", {})
    out = tmp_path / "de@words-0123456789"
    run(make_job("index", out, {"type": "factory", "factory": "PCA24,LSH"}, {"passages": passages}))
    scores, _ = search(open_artifact(out), vectors(QUESTIONS, 2), 5)
    assert isinstance(faiss.read_index(str(out / "index.faiss")), faiss.IndexPreTransform)
    assert set(np.unique(scores)) <= set(range(-24, 25, 2))
    assert scores[:, 0].mean() > 10  # passages of the query's own cluster share most signs
