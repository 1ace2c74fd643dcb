"""A dataset of windows: passages, labels and lists by hand; queries stay; a second run gives the same bytes."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.data.collection import CORPUS, EXCLUDED, LITERAL_MATCH, QRELS, Collection
from tandem.data.dataset import run
from tandem.data.tables import LISTS_SCHEMA
from tandem.errors import UserError
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.store.job import Job, writing

PARAMS = {
    "source": "windows",
    "length": 2,
    "stride": 1,
    "unit": "words",
    "most": None,
    "titles": "repeat",
    "label": "all",
}
DOCUMENTS = [
    ("d1", "One", "a b c d"),
    ("d2", "", "e"),
    ("d1#0", "Odd", "f g h"),
    ("empty", "None", ""),
]


@pytest.fixture
def base(make_beir):
    """Four documents; d1 is relevant for t1, d2 and d1#0 are judged irrelevant, e1 is for the empty one."""
    train = ["t1\td1\t2", "t1\td2\t0", "t1\td1#0\t0"]
    return make_beir(
        "base", DOCUMENTS, ("t1", "e1"), {"train": train, "test": ["e1\tempty\t1", "e1\tgone\t1"]}
    )


@pytest.fixture
def windows(base, tmp_path):
    """`windows(of=…, **params)`: the stage `dataset` on the documents."""

    def run_stage(of=base, **params):
        out = tmp_path / "results" / f"windows-{len(list(tmp_path.glob('results/*')))}"
        run(Job("dataset", out, PARAMS | params, {"of": of}))
        return open_artifact(out)

    return run_stage


def test_no_window_of_a_document_that_is_never_a_negative_becomes_one(base, windows, tmp_path):
    qrels = pq.read_table(base.path(QRELS))
    never = [
        ("t1", "d1", EXCLUDED, "train"),
        ("t1", "d1#0", LITERAL_MATCH, "train"),
        ("t1", "empty", 1, "train"),
    ]
    columns = [list(column) for column in zip(*never, strict=True)]
    pq.write_table(pa.table(columns, schema=qrels.schema), base.path(QRELS))
    judged = Collection(windows(label="first")).qrels("train")["t1"]
    numbers = {EXCLUDED: "d1", LITERAL_MATCH: "d1#0"}
    for grade, document in numbers.items():
        own = {window for window, other in judged.items() if other == grade}
        assert own == {f"{document}#{number}" for number in range(len(own))}
        assert len(own) > 1


def corpus(artifact):
    return [tuple(row.values()) for row in pq.read_table(artifact.path(CORPUS)).to_pylist()]


def test_passages_by_hand(windows):
    dataset = windows()
    assert corpus(dataset) == [
        ("d1#0", "One", "a b"),
        ("d1#1", "One", "b c"),
        ("d1#2", "One", "c d"),
        ("d2#0", "", "e"),
        ("d1#0#0", "Odd", "f g"),
        ("d1#0#1", "Odd", "g h"),
        ("empty#0", "None", ""),
    ]
    assert dataset.manifest.facts["source"] == {"of": "base", "documents": 4, "cut": 2}
    assert Collection(dataset).queries("train") == {"t1": "what t1"}


def test_titles_before_the_first_window_alone(windows):
    assert [title for _, title, _ in corpus(windows(titles="first"))] == [
        "One",
        "",
        "",
        "",
        "Odd",
        "",
        "None",
    ]


def test_characters_and_fewer_windows(windows):
    passages = corpus(windows(unit="characters", length=3, stride=3, most=2))
    assert [text for _, _, text in passages] == ["a b", " c ", "e", "f g", " h", ""]


def test_labels_of_all_windows(windows):
    dataset = windows()
    assert Collection(dataset).qrels("train") == {
        "t1": {"d1#0": 2, "d1#1": 2, "d1#2": 2, "d2#0": 0, "d1#0#0": 0, "d1#0#1": 0}
    }
    # a document that is not there stays one that no run can find
    assert Collection(dataset).qrels("test") == {"e1": {"empty#0": 1, "gone#0": 1}}


def test_the_first_window_alone_carries_a_label_and_the_others_are_no_negatives(windows):
    qrels = Collection(windows(label="first")).qrels("train")
    assert qrels == {
        "t1": {"d1#0": 2, "d1#1": LITERAL_MATCH, "d1#2": LITERAL_MATCH, "d2#0": 0, "d1#0#0": 0}
    }
    assert Collection(windows(label="first", most=2)).qrels("train")["t1"].keys() == {
        "d1#0",
        "d1#1",
        "d2#0",
        "d1#0#0",
    }


@pytest.mark.parametrize("label", ["all", "first"])
def test_no_window_of_a_querys_own_document_is_its_result(make_beir, windows, label):
    """As queries have them that are passages themselves: their windows have other ids."""
    train = ["d1\td2\t1", "d2\td2\t1", "d2\tempty\t1", "t1\td2\t1"]
    base = make_beir("own", DOCUMENTS, ("d1", "d2", "t1"), {"train": train})
    qrels = Collection(windows(of=base, label=label, excludes_own=True)).qrels("train")
    assert qrels == {
        "d1": {"d2#0": 1, "d1#0": EXCLUDED, "d1#1": EXCLUDED, "d1#2": EXCLUDED},
        "d2": {"empty#0": 1, "d2#0": EXCLUDED},
        "t1": {"d2#0": 1},
    }


def test_training_lists_name_windows(base, windows, tmp_path):
    job = Job("dataset", tmp_path / "results" / "listed", base.params, {})
    with writing(job) as draft:
        for name in ("corpus", "queries", "qrels"):
            pq.write_table(
                pq.read_table(base.path(f"{name}.parquet")), draft.path(f"{name}.parquet")
            )
        rows = [("t1", "d1", 1, 0.5), ("t1", "d1#0", 0, None)]
        columns = [
            pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), LISTS_SCHEMA, strict=True)
        ]
        pq.write_table(pa.table(columns, schema=LISTS_SCHEMA), draft.path("lists.parquet"))
    listed = open_artifact(job.out)
    ((query, passages),) = Collection(windows(of=listed)).lists()
    assert (query, [(doc, label) for doc, label, _ in passages]) == (
        "t1", [("d1#0", 1), ("d1#1", 1), ("d1#2", 1), ("d1#0#0", 0), ("d1#0#1", 0)]
    )  # fmt: skip
    ((_, passages),) = Collection(windows(of=listed, label="first")).lists()
    assert passages == [("d1#0", 1, 0.5), ("d1#0#0", 0, None)]


def test_the_same_again_and_windows_of_windows(windows):
    first, other = windows(), windows()
    assert sha256(first.path(CORPUS)) == sha256(other.path(CORPUS))
    assert sha256(first.path(QRELS)) == sha256(other.path(QRELS))
    assert corpus(windows(of=first, length=1))[:3] == [
        ("d1#0#0", "One", "a"), ("d1#0#1", "One", "b"), ("d1#1#0", "One", "b")
    ]  # fmt: skip


def test_documents_are_needed(tmp_path):
    with pytest.raises(UserError, match="of is missing"):
        run(Job("dataset", tmp_path / "no", PARAMS, {}))
