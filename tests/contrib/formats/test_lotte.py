"""LoTTE: two kinds of questions over one collection, each a split."""

import json

import pytest

from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.extras.recognition import find_entry


def answered(number, query, *answers):
    return (
        json.dumps(
            {"qid": number, "query": query, "url": "stack.example/1", "answer_pids": answers}
        )
        + "\n"
    )


@pytest.fixture
def writing(tmp_path):
    folder = tmp_path / "writing/test"
    folder.mkdir(parents=True)
    (folder / "collection.tsv").write_text("0\talpha\n1\tbeta\n2\tgamma\n")
    (folder / "qas.search.jsonl").write_text(answered(0, "alpha?", 0, 2) + answered(1, "beta?", 1))
    (folder / "qas.forum.jsonl").write_text(answered(0, "What is gamma?", 2))
    for kind in ("search", "forum"):
        (folder / f"questions.{kind}.tsv").write_text("0\talpha?\n")
    (folder / "metadata.jsonl").write_text("{}\n")
    return folder


def test_kinds_of_questions_are_splits_over_one_collection(writing, make):
    entry, path = find_entry([str(writing)])
    assert entry == {"source": "lotte"}
    collection = Collection(make("writing", entry, path=path))
    assert collection.doc_ids().to_pylist() == ["0", "1", "2"]
    assert collection.queries("search") == {"search-0": "alpha?", "search-1": "beta?"}
    assert collection.queries("forum") == {"forum-0": "What is gamma?"}
    assert collection.qrels("search") == {"search-0": {"0": 1, "2": 1}, "search-1": {"1": 1}}
    assert collection.qrels("forum") == {"forum-0": {"2": 1}}


def test_one_kind_is_enough_and_none_is_refused(writing, make):
    (writing / "qas.search.jsonl").unlink()
    assert make("writing", {"source": "lotte"}, path=str(writing)).manifest.facts["queries"] == {
        "forum": 1
    }
    (writing / "qas.forum.jsonl").unlink()
    with pytest.raises(
        UserError, match=r"holds neither qas\.search\.jsonl nor qas\.forum\.jsonl; put one"
    ):
        make("none", {"source": "lotte"}, path=str(writing))


@pytest.mark.parametrize("answers", ['"0"', "[null]", "null"])
def test_answers_are_a_list_of_ids(writing, make, answers):
    (writing / "qas.forum.jsonl").write_text(
        f'{{"qid": 0, "query": "x", "answer_pids": {answers}}}\n'
    )
    with pytest.raises(UserError, match=r"qas\.forum\.jsonl:1: answer_pids is .*needed"):
        make("writing", {"source": "lotte"}, path=str(writing))
