"""int8 with a scale: by hand, the error's bound, and that scale times number is exact."""

import numpy as np
import pytest

from tandem.extras.kept_neighbours import measure_kept_neighbours
from tandem.retrieval import embeddings as module
from tandem.retrieval.embeddings import make_row_type, quantise, restore


@pytest.fixture(scope="module")
def vectors():
    """300 vectors of very different lengths; the eighth is all zeros, the ninth all alike."""
    rng = np.random.default_rng(0)
    sample = (rng.normal(size=(300, 24)) * 10.0 ** rng.uniform(-9, 9, (300, 1))).astype(np.float32)
    sample[7], sample[8] = 0, 3.3
    return sample


def test_by_hand():
    # max 127: the scale is 1, and halves go to the even number. max 254: the scale is 2.
    stored = quantise(np.array([[127, -63.5, 0.5, 1.5], [-254, 3, 2.9, 0]], np.float32))
    assert stored["scale"].tolist() == [1, 2]
    assert stored["values"].tolist() == [[127, -64, 0, 2], [-127, 2, 1, 0]]
    assert restore(stored).tolist() == [[127, -64, 0, 2], [-254, 4, 2, 0]]


def test_no_number_is_off_by_more_than_half_the_scale(vectors):
    stored = quantise(vectors)
    scale = stored["scale"].astype(np.float64)[:, None]
    error = np.abs(vectors.astype(np.float64) - restore(stored).astype(np.float64))
    assert (error <= scale / 2 * (1 + 1e-12)).all()
    assert error.max(axis=1)[scale[:, 0] > 0].min() > 0  # it does lose something
    least = np.abs(vectors).max(axis=1) / 127
    assert (scale[:, 0] >= least * (1 - 1e-7)).all()
    assert (scale[:, 0] <= least * (1 + 2.0**-15)).all()
    assert not restore(stored)[7].any()
    assert np.abs(stored["values"][8]).min() == np.abs(stored["values"][8]).max() == 127


def test_scale_times_number_is_exact(vectors):
    """In float32 as in float64, so that q · p' is s · (q · p) for whoever multiplies."""
    stored = quantise(vectors)
    exact = stored["scale"].astype(np.float64)[:, None] * stored["values"]
    assert restore(stored).dtype == np.float32
    assert (restore(stored) == exact).all()


def test_a_row_is_four_bytes_more_than_its_numbers(vectors, tmp_path, monkeypatch):
    assert make_row_type(24).itemsize == 28
    stored = quantise(vectors)
    np.save(tmp_path / "x.npy", stored)
    opened = np.load(tmp_path / "x.npy", mmap_mode="r", allow_pickle=False)
    assert (restore(opened[10:20]) == restore(stored)[10:20]).all()
    monkeypatch.setattr(module, "ROWS_PER_BLOCK", 7)
    assert quantise(vectors).tobytes() == stored.tobytes()


def test_no_vectors_are_no_rows():
    assert len(quantise(np.empty((0, 4), np.float32))) == 0
    assert restore(quantise(np.empty((0, 4), np.float32))).shape == (0, 4)


def test_the_loss_by_an_outlier_dimension_is_measured():
    """A number of 50 in every vector leaves steps of 0.4 for the others, which are of length 1."""
    plain = np.random.default_rng(1).normal(size=(200, 32)).astype(np.float32)
    plain /= np.linalg.norm(plain, axis=1, keepdims=True)
    outlier = np.concatenate([plain[:, :31], np.full((200, 1), 50, np.float32)], axis=1)
    assert measure_kept_neighbours(plain, quantise(plain)) > 0.95
    assert measure_kept_neighbours(outlier, quantise(outlier)) < 0.6


def test_by_hand_two_neighbours_change_places():
    # 21 vectors: 1 at the first place and a falling second number; the products with the first vector fall with it.
    # Beside the outlier 127 the second numbers are rounded to 0: all products are equal, and the first ten count.
    falling = np.array([[127, 0.4 - 0.01 * (20 - at)] for at in range(21)], np.float32)
    stored = quantise(falling)
    assert not stored["values"][:, 1].any()
    # Of vector 0 exact neighbours are 20 … 11, rounded ones 1 … 10; of vector 20 they are 19 … 10 and 0 … 9; so for
    # all: the ten highest of the others against the ten lowest. Vector q in 1 … 9 has 0 … 10 without itself, which
    # reaches no number above 10; exact are 11 … 20. Vector 10: 11 … 20 against 0 … 9. Above, q in 11 … 20: 10 … 20
    # without itself against 0 … 9.
    assert measure_kept_neighbours(falling, stored) == 0


def test_few_vectors_measure_nothing():
    few = np.ones((20, 4), np.float32)
    assert measure_kept_neighbours(few, quantise(few)) is None
