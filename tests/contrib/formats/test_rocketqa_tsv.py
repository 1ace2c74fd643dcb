from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest

from tandem.contrib.formats.rocketqa_tsv import hash_texts
from tandem.data.collection import Collection
from tandem.errors import UserError

DUAL = (
    "q one\tT\tpositive\t\tnegative a\t0\n"
    "q two\t\tother\tT\tpositive\t0\n"
    "q one\tT\tpositive\t-\tnegative b\t0\n"
    "q one\tT\tpositive\t\tnegative a\t0\n"
)
CROSS = "q two\t\tnegative a\t0\nq one\t\tnegative b\t1\nq three\t\tpositive\t1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dual file of two queries that are mixed, and a cross file that knows one more."""
    root = tmp_path / "tsv"
    root.mkdir()
    (root / "dual.train.tsv").write_text(DUAL)
    (root / "cross.train.tsv").write_text(CROSS)
    return root


def read_lists(dataset):
    """The lists of a dataset with texts in place of ids."""
    collection = Collection(dataset)
    queries, rows = collection.queries("train"), list(collection.lists())
    texts = collection.texts(doc for _, listed in rows for doc, _, _ in listed)
    return [
        (queries[q], [(*texts[doc], label, score) for doc, label, score in listed])
        for q, listed in rows
    ]


def test_a_dual_file_is_a_collection(folder, make):
    dataset = make("dual", {"source": "rocketqa_tsv", "dual": "dual.train.tsv"}, path=str(folder))
    assert dataset.manifest.facts["passages"] == 4
    assert dataset.manifest.facts["queries"] == {"train": 2}
    assert dataset.manifest.facts["qrels"] == {"train": 2}
    assert dataset.manifest.facts["source"] == {"both_positive_and_negative": 0}
    # Rows of a query are brought together; the title `-` is none.
    assert read_lists(dataset) == [
        (
            "q one",
            [("T", "positive", 1, None), ("", "negative a", 0, None), ("", "negative b", 0, None)],
        ),
        ("q two", [("", "other", 1, None), ("T", "positive", 0, None)]),
    ]


def test_both_files_share_queries_and_passages(folder, make):
    params = {"source": "rocketqa_tsv", "dual": "dual.train.tsv", "cross": "cross.train.tsv"}
    dataset = make("both", params, path=str(folder))
    # `positive` without a title is another passage than `positive` under T.
    assert dataset.manifest.facts["passages"] == 5
    assert dataset.manifest.facts["queries"] == {"train": 3}
    assert dataset.manifest.facts["source"] == {"both_positive_and_negative": 1}
    assert [(query, [row[:3] for row in rows]) for query, rows in read_lists(dataset)] == [
        ("q one", [("T", "positive", 1), ("", "negative a", 0), ("", "negative b", 1)]),
        ("q two", [("", "other", 1), ("T", "positive", 0), ("", "negative a", 0)]),
        ("q three", [("", "positive", 1)]),
    ]
    judged = Collection(dataset).qrels("train")
    assert sorted(map(len, judged.values())) == [1, 1, 2]
    assert {relevance for docs in judged.values() for relevance in docs.values()} == {1}


def test_ids_are_of_what_is_said_alone(folder, make):
    forward = make("one", {"source": "rocketqa_tsv", "dual": "dual.train.tsv"}, path=str(folder))
    (folder / "dual.train.tsv").write_text("".join(reversed(DUAL.splitlines(keepends=True))))
    backward = make("two", {"source": "rocketqa_tsv", "dual": "dual.train.tsv"}, path=str(folder))
    first, second = (
        set(Collection(dataset).doc_ids().to_pylist()) for dataset in (forward, backward)
    )
    assert first == second
    assert Collection(forward).qrels("train") == Collection(backward).qrels("train")
    assert f"{hash_texts('T', 'positive'):016x}" in first
    # blake2b with 8 bytes of output, as `printf 'T\tpositive' | b2sum -l 64` prints it
    assert f"{hash_texts('T', 'positive'):016x}" == "122abeb0270e9ef1"


def columns(path: Path) -> list[list[str]]:
    """The rows of one of RocketQA's files."""
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def test_the_released_dual_sample(make, real):
    samples = real("rocketqa-samples")
    rows = columns(samples / "dual.train.tsv")
    dataset = make("dual", {"source": "rocketqa_tsv", "dual": "dual.train.tsv"}, path=str(samples))
    assert len(rows) == 100
    assert (
        dataset.manifest.facts["passages"]
        == len({(row[1 + i], row[2 + i]) for row in rows for i in (0, 2)})
        == 78
    )
    assert dataset.manifest.facts["queries"] == {"train": 8}
    assert dataset.manifest.facts["qrels"] == {"train": 25}
    positives = {(row[0], row[1], row[2]) for row in rows}
    assert len(positives) == 25
    expected = {
        query: list(
            dict.fromkeys(
                (row[3], row[4]) for row in group if (query, row[3], row[4]) not in positives
            )
        )
        for query, group in groupby(rows, itemgetter(0))
    }
    # The released file itself gives a query a passage both as a positive and as a negative.
    both = positives & {(row[0], row[3], row[4]) for row in rows}
    assert dataset.manifest.facts["source"] == {"both_positive_and_negative": 2}
    assert len(both) == 2
    assert {
        q: [(title, text) for title, text, label, _ in rows if not label]
        for q, rows in read_lists(dataset)
    } == expected


def test_the_released_cross_sample(make, real):
    samples = real("rocketqa-samples")
    rows = columns(samples / "cross.train.tsv")
    dataset = make(
        "cross", {"source": "rocketqa_tsv", "cross": "cross.train.tsv"}, path=str(samples)
    )
    assert sorted(row[3] for row in rows) == ["0"] * 80 + ["1"] * 20
    assert dataset.manifest.facts["passages"] == len({(row[1], row[2]) for row in rows}) == 86
    assert dataset.manifest.facts["queries"] == {"train": 7}
    assert dataset.manifest.facts["qrels"] == {"train": 20}


BAD = {
    "five columns": (
        "dual",
        "q\t\tp\t\tn\n",
        "dual.train.tsv:1: 5 columns by tabs; a line is query, title, positive",
    ),
    "three columns": (
        "cross",
        "q\t\tp\n",
        "cross.train.tsv:1: 3 columns by tabs; a line is query, title, text, label",
    ),
    "a label of 2": (
        "cross",
        "q\t\tp\t2\n",
        "cross.train.tsv:1: label is '2'; 0 and 1 are allowed",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_line_is_named(folder, make, name):
    kind, text, message = BAD[name]
    (folder / f"{kind}.train.tsv").write_text(text)
    with pytest.raises(UserError) as error:
        make("bad", {"source": "rocketqa_tsv", kind: f"{kind}.train.tsv"}, path=str(folder))
    assert str(error.value).startswith(f"{folder}/{message}")


def test_a_file_must_be_named(folder, make):
    with pytest.raises(UserError, match="dual, cross: neither is set"):
        make("none", {"source": "rocketqa_tsv"}, path=str(folder))
