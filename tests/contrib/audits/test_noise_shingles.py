"""Texts as sets of shingle hashes, against n-grams made one by one."""

import random

import numpy as np
import pytest

from tandem.contrib.audits.minhash import Shingling, normalise_for_equality


def grams(text, unit, size):
    units = text.split(" ") if unit == "words" else text
    return {tuple(units[at : at + size]) for at in range(max(len(units) - size, 0) + 1)}


def test_equal_texts_after_normalisation():
    assert normalise_for_equality(" The  Straße\t\u3000ＡＢＣ\n１２ ") == "the strasse abc 12"
    assert normalise_for_equality("e\u0301") == normalise_for_equality("é") == "é"
    assert normalise_for_equality("ﬁn\u00a0x") == "fin x"
    assert normalise_for_equality(" \u2028\u3000\n") == ""


@pytest.mark.parametrize(
    ("unit", "size"), [("words", 1), ("words", 3), ("characters", 2), ("characters", 5)]
)
def test_shingles_are_the_n_grams(unit, size):
    draw = random.Random(3)
    texts = [
        " ".join(draw.choices(["a", "bb", "b", "ab", "的", "说明", "𠀀"], k=draw.randint(1, 12)))
        for _ in range(200)
    ]
    hashes, counts = Shingling(unit, size).hash_texts(texts)
    parts = np.split(hashes, np.cumsum(counts)[:-1])
    for text, part in zip(texts, parts, strict=True):
        assert len(set(part.tolist())) == len(grams(text, unit, size))
    assert len(set(hashes.tolist())) == len(
        set().union(*(grams(text, unit, size) for text in texts))
    )
    for left, first in zip(texts[:40], parts, strict=False):
        for right, second in zip(texts[:40], parts, strict=False):
            assert len(set(first.tolist()) & set(second.tolist())) == len(
                grams(left, unit, size) & grams(right, unit, size)
            )


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_a_text_has_the_same_shingles_in_any_company(unit):
    shingling = Shingling(unit, 3)
    texts = ["a", "one two", "one two three four", "x" * 2000, "你好 世界"]
    together, counts = shingling.hash_texts(texts)
    alone = [shingling.hash_texts([text])[0] for text in texts]
    assert together.tolist() == np.concatenate(alone).tolist()
    assert counts.tolist() == [len(hashes) for hashes in alone]
