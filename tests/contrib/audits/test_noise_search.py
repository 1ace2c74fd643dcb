"""The search for duplicates against comparing everything with everything."""

import random
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.contrib.audits import duplicates as module
from tandem.contrib.audits.duplicates import (
    Duplicates,
    DuplicateSearch,
    find_first_of_equal,
    pack_rows,
    pair_buckets,
    unpack_rows,
)
from tandem.contrib.audits.minhash import Shingling, Sketcher, normalise_for_equality

WORDS = [f"word{n}" for n in range(400)]
SIGNS = [chr(0x4E00 + n) for n in range(800)]


def generated(units, separator, count, length, seed):
    """Texts of which many are another with a few units changed, some equal but for case and spaces, some empty."""
    draw = random.Random(seed)
    texts = [draw.choices(units, k=draw.randint(*length)) for _ in range(count // 2)]
    while len(texts) < count:
        copy = list(draw.choice(texts))
        for _ in range(draw.randint(0, 4) if copy else 0):
            copy[draw.randrange(len(copy))] = draw.choice(units)
        texts.append(copy if draw.random() > 0.02 else [])
    return [draw.choice(["{}", " {} ", "{}\n"]).format(separator.join(text)) for text in texts]


def by_hand(texts, unit, size, threshold):
    """(first of each text, near-duplicate pairs with their similarity), by sets of n-grams."""
    normal = [normalise_for_equality(text) for text in texts]
    first = [normal.index(text) if text else at for at, text in enumerate(normal)]
    single = [at for at, earliest in enumerate(first) if earliest == at and normal[at]]
    sets = {}
    for at in single:
        units = normal[at].split(" ") if unit == "words" else normal[at]
        sets[at] = {tuple(units[n : n + size]) for n in range(max(len(units) - size, 0) + 1)}
    near = {}
    for left, right in combinations(single, 2):
        similarity = len(sets[left] & sets[right]) / len(sets[left] | sets[right])
        if similarity >= threshold:
            near[left, right] = similarity
    return first, near


def written(path, texts, row_group_size):
    columns = {
        "doc_id": [f"d{n}" for n in range(len(texts))],
        "title": [""] * len(texts),
        "text": texts,
    }
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


@pytest.fixture
def find(tmp_path):
    def search(texts, sketcher, workers=1, row_group_size=64):
        (scratch := tmp_path / "scratch").mkdir(exist_ok=True)
        corpus = written(tmp_path / "corpus.parquet", texts, row_group_size)
        return DuplicateSearch(corpus, sketcher, scratch, workers, "t").run()

    return search


@pytest.mark.parametrize(
    ("unit", "size", "units", "separator", "length"),
    [("words", 3, WORDS, " ", (30, 60)), ("characters", 4, SIGNS, "", (30, 120))],
)
def test_recall_and_precision_on_generated_texts(find, unit, size, units, separator, length):
    texts = generated(units, separator, 600, length, seed=1)
    duplicates, _ = find(texts, Sketcher(Shingling(unit, size), 0.7, 64, seed=1))
    first, near = by_hand(texts, unit, size, 0.7)
    assert duplicates.first.tolist() == first
    assert duplicates.empty.tolist() == [not text.strip() for text in texts]
    assert len(set(first)) < len(first) - 5
    assert len(near) > 80
    hits = dict(
        zip(
            zip(*(side.tolist() for side in unpack_rows(duplicates.pairs)), strict=True),
            duplicates.similarity,
            strict=True,
        )
    )
    assert hits.keys() <= near.keys()
    assert len(hits) >= 0.97 * len(near)
    for pair, similarity in hits.items():
        assert similarity == pytest.approx(near[pair])


def test_the_threshold_itself_counts(find):
    texts = ["a b c d e f g h i j", "a b c d e f g h i k", "a b c d e f g h x y"]
    # single words: 9 of 11 in common, 8 of 12, 8 of 12
    duplicates, _ = find(texts, Sketcher(Shingling("words", 1), 9 / 11, 128, seed=1))
    assert duplicates.pairs.tolist() == pack_rows([0], [1]).tolist()
    assert duplicates.similarity == pytest.approx([9 / 11])


def test_at_a_threshold_of_1_only_the_same_shingles_count(find):
    texts = [
        "a b a b a",
        "a b a b",
        "a b a c",
    ]  # pairs of words: ab and ba, ab and ba, ab, ba and ac
    duplicates, _ = find(texts, Sketcher(Shingling("words", 2), 1.0, 64, seed=1))
    assert duplicates.pairs.tolist() == pack_rows([0], [1]).tolist()


def test_workers_and_row_groups_change_nothing(find):
    texts = generated(WORDS, " ", 300, (5, 60), seed=2)
    sketcher = Sketcher(Shingling("words", 2), 0.6, 32, seed=9)
    (reference, done), *others = [
        find(texts, sketcher, *how) for how in ((1, 64), (2, 64), (1, 7), (1, 1000))
    ]
    for other, also in others:
        assert (other.first.tolist(), other.pairs.tolist()) == (
            reference.first.tolist(),
            reference.pairs.tolist(),
        )
        assert other.similarity.tobytes() == reference.similarity.tobytes()
        assert also == done
    assert len(reference.pairs)


@pytest.mark.parametrize(
    "texts", [["", " ", "\n"], ["... !!!", "☺ ☺", "... !!!"], ["- - - - -", "- - - -", "---"]]
)
def test_a_corpus_without_a_word_has_no_duplicates(find, texts):
    duplicates, done = find(texts, Sketcher(Shingling("words", 2), 0.6, 32, seed=9))
    assert duplicates.count() == {
        "passages": 3,
        "empty": 3,
        "exact_groups": 0,
        "exact_passages": 0,
        "near_pairs": 0,
        "groups": 0,
        "group_passages": 0,
    }
    assert done == {"candidates": 0, "skipped": 0}


def test_first_of_equal():
    hashes = np.asarray([7, 0, 3, 7, 0, 3, 7, 9], np.uint64)
    assert find_first_of_equal(hashes).tolist() == [0, 1, 2, 0, 4, 2, 0, 7]


def test_large_buckets_compare_neighbours(monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 2)
    keys, rows = (
        np.asarray([5, 8, 5, 5, 5, 8], np.uint64),
        np.asarray([1, 2, 4, 6, 7, 9], np.uint32),
    )
    pairs, skipped = pair_buckets(keys, rows)
    expected = {(1, 4), (4, 6), (6, 7), (1, 6), (4, 7), (2, 9)}  # (1, 7) are three apart
    assert set(zip(*(side.tolist() for side in unpack_rows(pairs)), strict=True)) == expected
    assert skipped == 1


def test_groups_are_chains_of_repetitions():
    # texts: 0 = 3, 1 ~ 2, 2 ~ 5, 4 = 6, 7 alone
    first = np.asarray([0, 1, 2, 0, 4, 5, 4, 7], np.uint32)
    near = pack_rows([1, 2], [2, 5])
    duplicates = Duplicates(first, np.zeros(8, bool), near, np.asarray([0.9, 0.8], np.float32))
    rows, groups = duplicates.groups
    assert dict(zip(rows.tolist(), groups.tolist(), strict=True)) == {0: 0, 1: 1, 2: 1, 5: 1, 4: 2}
    assert duplicates.count() == {
        "passages": 8,
        "empty": 0,
        "exact_groups": 2,
        "exact_passages": 4,
        "near_pairs": 2,
        "groups": 3,
        "group_passages": 7,
    }
    some, others = np.asarray([3, 2, 5, 1, 6, 7]), np.asarray([0, 1, 2, 5, 4, 0])
    assert duplicates.compare(some, others) == pytest.approx([2, 0.9, 0.8, 0, 2, 0])
