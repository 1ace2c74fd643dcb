import pyarrow.parquet as pq
import pytest

from tandem.data.collection import CORPUS, Collection, join_contents
from tandem.errors import UserError


def test_a_collection_reads_what_the_stage_wrote(beir, make):
    collection = Collection(make("d", {"source": "beir"}, path=str(beir)))
    assert collection.passages == 2
    assert collection.doc_ids().to_pylist() == ["d1", "d2"]
    assert [batch.to_pylist() for batch in collection.batches(1, ["text"])] == [
        [{"text": "alpha beta"}],
        [{"text": "gamma"}],
    ]
    assert collection.queries("train") == {"q1": "alpha?"}
    assert collection.qrels("test") == {"q2": {"d2": 1}}
    assert collection.texts(["d2", "d1", "d2", "none"]) == {
        "d1": ("One", "alpha beta"),
        "d2": ("", "gamma"),
    }


def test_a_range_of_rows_is_read_whatever_the_row_groups_are(tmp_path, make_dataset):
    artifact = make_dataset(
        tmp_path / "dataset/d-0123456789", [(f"d{n}", "", "x") for n in range(10)]
    )
    corpus = artifact.path(CORPUS)
    pq.write_table(pq.read_table(corpus), corpus, row_group_size=3)
    collection = Collection(artifact)
    for span in (range(10), range(2, 7), range(3, 6), range(9, 10), range(4, 4)):
        ids = [
            row["doc_id"]
            for batch in collection.batches(2, ["doc_id"], span)
            for row in batch.to_pylist()
        ]
        assert ids == [f"d{n}" for n in span]


def test_a_split_that_is_not_there_is_named_with_those_that_are(beir, make):
    collection = Collection(make("d", {"source": "beir"}, path=str(beir)))
    with pytest.raises(
        UserError, match=r"queries.parquet: holds no split dev; it holds test, train$"
    ):
        collection.queries("dev")


def test_contents_have_no_blank_for_a_missing_title():
    assert join_contents("", "text") == "text"
    assert join_contents("Title", "text") == "Title text"
