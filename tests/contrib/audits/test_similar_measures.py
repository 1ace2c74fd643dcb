"""How similar two queries are: words, cosines, and the nearest of many in blocks."""

import math

import numpy as np
import pytest

from tandem.contrib.audits import query_similarity as module
from tandem.contrib.audits.query_similarity import (
    SplitQueries,
    VectorCosine,
    WordCosine,
    find_nearest,
    match_same_words,
    scale_to_unit,
    score_in_parts,
)
from tandem.extras.words import join_folded_words, split_into_terms


def queries_of(*texts, split="train"):
    return SplitQueries(
        np.arange(len(texts)),
        [f"q{i}" for i in range(len(texts))],
        list(texts),
        [split] * len(texts),
    )


def test_words_of_several_scripts():
    assert split_into_terms("What's the ＡＢＣ of Straße?") == [
        "what",
        "s",
        "the",
        "abc",
        "of",
        "strasse",
    ]
    assert split_into_terms("太阳花怎么养 v2") == ["太阳", "阳花", "花怎", "怎么", "么养", "v2"]
    assert split_into_terms("猫?カタ") == ["猫", "カタ"]
    assert split_into_terms("हिन्दी में") == ["हिन्दी", "में"]
    assert split_into_terms("?!") == []


def test_what_counts_as_the_same_query():
    assert (
        join_folded_words(" What is  a DOG? ")
        == join_folded_words("what is a dog")
        == "what is a dog"
    )
    assert join_folded_words("?!") == "?!"
    others, train = queries_of("A dog!", "cat", "?"), queries_of("cat", "a  DOG", "a dog.", "!")
    pairs = match_same_words(others, train)
    assert [side.tolist() for side in pairs] == [[0, 0, 1], [1, 2, 0]]


def test_cosine_of_words_by_hand():
    # Two training queries: df(a) = 2, df(b) = df(c) = 1, df(x) = 0, so idf = 1, 1 + ln(3/2) twice, 1 + ln 3.
    measure = WordCosine(["a b", "b b x", "?"], ["a b", "a c"])
    b, x = 1 + math.log(3 / 2), 1 + math.log(3)
    ab, bbx = math.hypot(1, b), math.hypot(2 * b, x)
    expected = [[1, 1 / ab**2], [2 * b * b / (ab * bbx), 0], [0, 0]]
    block = measure.score_block(slice(0, 3), measure.read_columns(slice(0, 2)), 2, np.zeros(3))
    assert block == pytest.approx(np.array(expected), abs=1e-6)
    rows, columns = np.meshgrid(range(3), range(2), indexing="ij")
    assert measure.score_pairs(rows.ravel(), columns.ravel()) == pytest.approx(
        np.ravel(expected), abs=1e-6
    )


def test_the_nearest_are_found_whatever_the_blocks(monkeypatch):
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(list("abcdefgh"), 4)) for _ in range(90)]
    others, train = texts[:30], texts[30:]
    words = WordCosine(others, train)
    full = words.score_block(slice(0, 30), words.read_columns(slice(0, 60)), 60, np.zeros(30))
    expected = []
    for other, scores in enumerate(full):
        best = sorted((-score, at) for at, score in enumerate(scores.tolist()) if score > 0)[:4]
        expected += [(other, at) for _, at in best]
    for blocks in ((16384, 256), (7, 5), (1, 30)):
        monkeypatch.setattr(module, "TRAIN_BLOCK", blocks[0])
        monkeypatch.setattr(module, "OTHERS_BLOCK", blocks[1])
        pairs = find_nearest(WordCosine(others, train), 30, 60, 4, "test")
        assert list(zip(*(side.tolist() for side in pairs), strict=True)) == expected


class Vectors:
    """Embeddings in memory, in blocks of 8."""

    def __init__(self, values):
        self.values, self.rows, self.dimension = values, *values.shape

    def take(self, start, stop):
        return self.values[start:stop]

    def iterate_blocks(self):
        for first in range(0, self.rows, 8):
            yield first, self.values[first : first + 8]


def test_cosine_of_vectors_is_exact_with_ties_to_the_first(monkeypatch):
    rng = np.random.default_rng(5)
    train = rng.normal(size=(50, 24)).astype(np.float16)
    train[20:30] = train[7] * np.float16(2)  # the same direction: all tie with row 7
    train[40] = 0
    others = rng.normal(size=(20, 24)).astype(np.float16)
    others[3] = train[7]
    measure = VectorCosine([Vectors(others[:12]), Vectors(others[12:])], Vectors(train))
    wide = [side.astype(np.float64) for side in (others, train)]
    lengths = [np.linalg.norm(side, axis=1, keepdims=True) for side in wide]
    cosine = (wide[0] / lengths[0]) @ (wide[1] / np.where(lengths[1] == 0, 1, lengths[1])).T
    monkeypatch.setattr(module, "TRAIN_BLOCK", 16)
    monkeypatch.setattr(module, "OTHERS_BLOCK", 6)
    rows, columns = find_nearest(measure, 20, 50, 5, "test")
    assert columns[rows == 3].tolist() == [7, 20, 21, 22, 23]
    for other in set(range(20)) - {3}:
        neighbours = columns[rows == other]
        assert cosine[other, neighbours].min() >= np.sort(cosine[other])[-5] - 1e-6
        assert (cosine[other, neighbours] > 0).all()
        assert 40 not in neighbours
    assert score_in_parts(measure, rows, columns) == pytest.approx(cosine[rows, columns], abs=1e-6)
    assert score_in_parts(measure, rows, columns).max() <= 1
    assert scale_to_unit(np.array([[3, 4], [0, 0]], np.float16)).tolist() == [
        [pytest.approx(0.6), pytest.approx(0.8)],
        [0, 0],
    ]
