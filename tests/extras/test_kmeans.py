"""Spherical k-means: the same bits on any number of threads, as good as FAISS's own, no empty centroids."""

import threading
import time

import faiss
import numpy as np
from clustered import vectors

from tandem.extras import kmeans
from tandem.extras.kmeans import Nearest, find_centroids
from tandem.retrieval import faiss_search
from tandem.retrieval.faiss_search import open_threads


def learned(points, count, workers=1, seed=3):
    with open_threads(workers) as threads:
        return find_centroids(points, count, seed, threads)


def test_how_faiss_computes_is_as_before_when_the_threads_are_gone():
    before = faiss.omp_get_max_threads(), faiss.cvar.distance_compute_blas_threshold
    with open_threads(3):
        assert faiss.omp_get_max_threads() == 1
        assert faiss.cvar.distance_compute_blas_threshold < before[1]
    assert (faiss.omp_get_max_threads(), faiss.cvar.distance_compute_blas_threshold) == before


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(kmeans, "VECTORS_PER_PIECE", 256)
    points = vectors(3000, 1).astype(np.float32)
    results = [learned(points, 50, workers).tobytes() for workers in (1, 2, 5)]
    assert results[0] == results[1] == results[2]
    assert learned(points, 50, seed=4).tobytes() != results[0]


def test_as_near_as_faiss():
    points = vectors(4000, 2).astype(np.float32)
    usual = faiss.Kmeans(points.shape[1], 64, niter=kmeans.ITERATIONS, spherical=True, seed=1)
    usual.train(points)
    ours, theirs = (
        (points @ centres.T).max(axis=1).mean()
        for centres in (learned(points, 64), usual.centroids)
    )
    assert ours > theirs - 0.01


def test_two_directions_by_hand():
    # (3, 1) and (1, 3) at length 1, and their doubles: each direction is its own centroid, whatever the lengths
    points = np.array([[3, 1], [1, 3], [6, 2], [2, 6]], np.float32)
    centres = learned(points, 2)
    expected = np.array([[1, 3], [3, 1]]) / np.sqrt(10)
    assert np.allclose(centres[np.argsort(centres[:, 0])], expected, atol=1e-6)


def test_more_centroids_than_distinct_points_split_the_largest():
    points = np.repeat(np.eye(3, dtype=np.float32), (50, 5, 5), axis=0)
    centres = learned(points, 8)
    assert np.allclose(np.linalg.norm(centres, axis=1), 1, atol=1e-6)
    assert (points @ centres.T).max(axis=1).min() > 0.999
    assert (centres[:, 0] > 0.9).sum() >= 4


def test_gpus_serve_one_call_at_a_time(monkeypatch):
    """Threads that share a GPU's index take turns; those of a CPU do not. There is no GPU in the tests."""
    calls = []

    class Busy:
        """An index that says how many threads are in it."""

        def __init__(self):
            self.within, self.lock = 0, threading.Lock()

        def search(self, vectors, k):
            with self.lock:
                self.within += 1
                calls.append(self.within)
            time.sleep(0.02)
            with self.lock:
                self.within -= 1
            return None, np.zeros((len(vectors), k), np.int64)

    monkeypatch.setattr(kmeans, "on_gpus", lambda index, how: index)
    monkeypatch.setattr(kmeans, "VECTORS_PER_PIECE", 10)
    # however many this machine has
    monkeypatch.setattr(faiss_search, "count_usable_cores", lambda: 4)
    for how, most in (("replicate", 1), ("none", 4)):
        calls.clear()
        with open_threads(4) as threads:
            labels = kmeans.assign(Nearest(Busy(), how), np.zeros((95, 2), np.float32), threads)
        assert labels.shape == (95,)
        assert max(calls) == most
