"""Documents that are put together from passages with one title: texts, labels and positions by hand."""

import json

import pytest

from tandem import ROOT
from tandem.contrib.formats.joined import _stronger
from tandem.data.collection import EXCLUDED, Collection
from tandem.data.dataset import run
from tandem.errors import UserError
from tandem.plan.dataset_stages import splits
from tandem.plan.plan import Plan
from tandem.store.artifact import open_artifact
from tandem.store.job import Job

PASSAGES = [
    ("o1", "Otters", "They swim."),
    ("o2", "Otters", "They eat crabs."),
    ("o3", "Otters", "They sleep afloat."),
    ("b1", "Bats", "They fly."),
    ("x1", "", "No title."),
    ("x2", "", "Nor here."),
    ("o4", "Otters", "Far from the others."),
]


@pytest.fixture
def nature(make_beir):
    """Passages of two titles and some without; test queries about several positions."""
    test = [
        "swim\to1\t1",
        "sleep\to3\t2",
        "sleep\tb1\t0",
        "both\to3\t1",
        "both\to2\t1",
        "none\tx2\t1",
    ]
    queries = ("swim", "sleep", "both", "none", "learn")
    return make_beir("nature", PASSAGES, queries, {"test": test, "train": ["learn\tb1\t1"]})


@pytest.fixture
def joined(nature, tmp_path):
    """`joined(**params)`: the dataset, opened."""

    def build(**params):
        out = tmp_path / "results" / "joined"
        run(Job("dataset", out, {"source": "joined", **params}, {"of": nature}, {}))
        return Collection(open_artifact(out, "dataset"))

    return build


def test_neighbours_with_one_title_are_one_document(joined):
    documents = joined(most=None)
    assert documents.doc_ids().to_pylist() == ["o1", "b1", "x1", "x2", "o4"]
    assert documents.texts(["o1"]) == {
        "o1": ("Otters", "They swim.\nThey eat crabs.\nThey sleep afloat.")
    }
    facts = documents.artifact.manifest.facts["source"]
    assert (facts["documents"], facts["passages"]) == (5, 7)


def test_labels_of_passages_are_those_of_their_documents(joined):
    documents = joined(most=2)
    assert documents.doc_ids().to_pylist() == ["o1", "o3", "b1", "x1", "x2", "o4"]
    assert documents.qrels("test") == {
        "swim": {"o1": 1},
        "sleep": {"o3": 2, "b1": 0},
        "both": {"o1": 1, "o3": 1},
        "none": {"x2": 1},
    }
    assert documents.qrels("train") == {"learn": {"b1": 1}}


def test_queries_stand_again_by_where_their_passage_is(joined):
    documents = joined(positions=[1, 2], split="test")
    assert documents.queries("test_p1") == {"p1.swim": "what swim", "p1.none": "what none"}
    assert documents.queries("test_p2") == {"p2.both": "what both"}
    assert documents.queries("test_p3on") == {"p3on.sleep": "what sleep"}
    assert documents.qrels("test_p3on") == {"p3on.sleep": {"o1": 2, "b1": 0}}
    assert list(documents.queries("test")) == ["swim", "sleep", "both", "none"]


def test_no_query_finds_the_document_that_holds_its_own_passage(make_beir, tmp_path):
    queries = ("b1", "o2", "o3", "swim")
    test = ["b1\to3\t1", "o2\to1\t1", "o3\tb1\t1", "swim\to1\t1"]
    of = make_beir("nature", PASSAGES, queries, {"test": test})
    out = tmp_path / "results" / "joined"
    params = {"source": "joined", "positions": [1], "excludes_own": True}
    run(Job("dataset", out, params, {"of": of}, {}))
    documents = Collection(open_artifact(out, "dataset"))
    # document o1 holds o1, which is relevant for o2, but o2 itself, too
    assert documents.qrels("test") == {
        "b1": {"o1": 1, "b1": EXCLUDED},
        "o2": {"o1": EXCLUDED},
        "o3": {"b1": 1, "o1": EXCLUDED},
        "swim": {"o1": 1},
    }
    assert documents.qrels("test_p1") == {
        "p1.o2": {"o1": EXCLUDED},
        "p1.o3": {"b1": 1, "o1": EXCLUDED},
        "p1.swim": {"o1": 1},
    }
    assert documents.qrels("test_p2on") == {"p2on.b1": {"o1": 1, "b1": EXCLUDED}}


def test_nor_does_its_broken_copy(make_beir, tmp_path):
    """`swap.o2` is o2 with a typo: its own passage is graded EXCLUDED, a neighbour in the document is relevant."""
    labels = [f"swap.o2\to2\t{EXCLUDED}", "swap.o2\to1\t2", "swap.o2\tb1\t1"]
    of = make_beir("broken", PASSAGES, ("swap.o2",), {"test": labels})
    found = {}
    for excludes_own in (False, True):
        out = tmp_path / f"results/{excludes_own}"
        run(Job("dataset", out, {"source": "joined", "excludes_own": excludes_own}, {"of": of}, {}))
        found[excludes_own] = Collection(open_artifact(out, "dataset")).qrels("test")["swap.o2"]
    assert found == {False: {"o1": 2, "b1": 1}, True: {"o1": EXCLUDED, "b1": 1}}


def test_planning_says_that_no_query_finds_its_own_document(configured):
    entry = {"source": "joined", "of": "pydocs", "ignore_identical_ids": True}
    plan = Plan(configured() | {"datasets": {"whole": entry}}, ROOT)
    assert plan.planner.dataset("whole").values["excludes_own"] is True


def test_a_bar_holds_where_no_passage_is_relevant():
    assert _stronger(0, EXCLUDED) == EXCLUDED
    assert _stronger(EXCLUDED, 1) == 1
    assert _stronger(0, 2) == 2


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"positions": [4, 1]}, r"positions is \[4, 1\]; allowed: whole numbers that rise"),
        ({"positions": [0]}, "positions.0 is 0; allowed: ≥ 1"),
        ({"most": 1}, "most is 1; allowed: ≥ 2"),
    ],
)
def test_what_does_not_fit_is_one_line(joined, entry, line):
    with pytest.raises(UserError, match=line):
        joined(**entry)


def test_planning_knows_the_further_splits(configured):
    entry = {"source": "joined", "of": "pydocs", "positions": [1], "split": "dev"}
    plan = Plan(configured() | {"datasets": {"whole": entry}}, ROOT)
    assert {"dev_p1", "dev_p2on", "dev", "test"} <= (splits(plan.planner.ctx, "whole") or set())


def test_queries_by_position_are_of_a_split_that_there_is(configured):
    entry = {"source": "joined", "of": "pydocs", "positions": [1], "split": "dve"}
    plan = Plan(configured() | {"datasets": {"whole": entry}}, ROOT)
    with pytest.raises(UserError, match="datasets.whole.split is dve, but dataset pydocs has dev"):
        plan.planner.dataset("whole")


def test_a_listed_document_has_label_and_score_of_its_best_passage(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    corpus = [("o1", "Otters"), ("o2", "Otters"), ("b1", "Bats"), ("b2", "Bats")]
    passages = {
        name: {"docid": name, "title": title, "text": f"text {name}"} for name, title in corpus
    }
    write_lines(
        folder / "corpus.jsonl",
        [{"id": p["docid"], "title": p["title"], "text": p["text"]} for p in passages.values()],
    )
    q, r = ({"query_id": name, "query": f"what {name}"} for name in "qr")
    records = [
        q | {"pos": ["o1"], "neg": ["b1"], "pos_scores": [1], "neg_scores": [-3]},
        q | {"pos": ["b2"], "pos_scores": [9]},  # its document stood as a negative before
        r
        | {
            "pos": ["o1", "o2"],
            "neg": ["b1", "b2"],
            "pos_scores": [2, 8],
            "neg_scores": [-5, 4],
        },
    ]
    for record in records:
        for side in record.keys() & {"pos", "neg"}:
            record[side] = [passages[name] for name in record[side]]
    write_lines(folder / "lists.jsonl", records)
    plain, out = tmp_path / "results/plain", tmp_path / "results/joined"
    params = {"source": "training_lists", "lists": {"train": "lists.jsonl"}}
    params["corpus"] = "corpus.jsonl"
    run(Job("dataset", plain, params, {}, {"path": str(folder)}))
    run(Job("dataset", out, {"source": "joined"}, {"of": open_artifact(plain, "dataset")}, {}))
    documents = Collection(open_artifact(out, "dataset"))
    assert documents.qrels("train") == {"q": {"o1": 1, "b1": 1}, "r": {"o1": 1}}
    assert dict(documents.lists()) == {
        "q": [("o1", 1, 1.0), ("b1", 1, 9.0)],
        "r": [("o1", 1, 8.0), ("b1", 0, 4.0)],
    }


def write_lines(path, records):
    """Write a JSON object a line."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
