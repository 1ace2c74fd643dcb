import pytest

from tandem.data.collection import Collection, contents
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
    assert collection.texts(["d2", "d1", "d2", "none"]) == {"d1": ("One", "alpha beta"), "d2": ("", "gamma")}


def test_a_split_that_is_not_there_is_named_with_those_that_are(beir, make):
    collection = Collection(make("d", {"source": "beir"}, path=str(beir)))
    with pytest.raises(UserError, match=r"queries.parquet: holds no split dev; it holds test, train$"):
        collection.queries("dev")


def test_contents_have_no_blank_for_a_missing_title():
    assert contents("", "text") == "text"
    assert contents("Title", "text") == "Title text"
