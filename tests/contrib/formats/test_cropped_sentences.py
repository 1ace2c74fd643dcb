"""Sentences of passages as training queries."""

import pyarrow.parquet as pq
import pytest

from tandem.data.collection import Collection
from tandem.data.dataset import run as make_dataset_stage
from tandem.errors import UserError
from tandem.store.artifact import open_artifact


@pytest.fixture
def cropped(make_job, dataset, tmp_path):
    """`cropped(of, inputs, **params)`: the dataset of sentences of another one, the tiny one unless named."""

    def make(of=None, inputs=None, **params):
        out = tmp_path / f"cropped-{len(list(tmp_path.iterdir())):010d}"
        roles = {"of": of or dataset} | (inputs or {})
        make_dataset_stage(
            make_job("dataset", out, {"source": "cropped_sentences", **params}, roles)
        )
        return open_artifact(out)

    return make


TEXTS = [("a", "Otters", "Otters swim. They dive!"), ("b", "", "no mark"), ("c", "Empty", "...")]


def test_every_sentence_asks_for_its_passage(cropped, make_dataset, tmp_path):
    base = make_dataset(tmp_path / "base-0000000001", TEXTS)
    made = cropped(base)
    queries = Collection(made).queries("train")
    assert queries == {"a.s0": "Otters swim.", "a.s1": "They dive!", "b.s0": "no mark"}
    assert Collection(made).qrels("train") == {"a.s0": {"a": 1}, "a.s1": {"a": 1}, "b.s0": {"b": 1}}
    assert pq.read_table(made.path("corpus.parquet")) == pq.read_table(base.path("corpus.parquet"))
    assert made.manifest.facts["source"]["sentences"] == 3
    with pytest.raises(UserError):  # people's queries are not among them
        Collection(made).queries("test")


def test_a_larger_choice_contains_a_smaller_one(cropped):
    every, few, more = (
        set(Collection(cropped(most=most)).queries("train")) for most in (None, 5, 20)
    )
    assert len(every) == 60  # one a passage
    assert (len(few), len(more)) == (5, 20)
    assert few < more < every


def test_queries_of_another_dataset_stand_beside(cropped, dataset):
    # the tiny dataset over its own passages: of its queries the training ones
    made = cropped(inputs={"queries": dataset}, most=3)
    names = list(Collection(made).queries("train"))
    assert [name for name in names[:3] if ".s" not in name] == []
    assert names[3:] == list(Collection(dataset).queries("train"))
    judged = Collection(made).qrels("train")
    assert {query: judged[query] for query in names[3:]} == Collection(dataset).qrels("train")


def test_passages_without_a_sentence_are_one_line(cropped, make_dataset, tmp_path):
    base = make_dataset(tmp_path / "base-0000000002", [("a", "T", "..."), ("b", "", "?")])
    with pytest.raises(
        UserError, match=r"cropped-\d+: no passage of .*base-0000000002 has a sentence"
    ):
        cropped(base)
