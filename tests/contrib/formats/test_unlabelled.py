"""Queries without labels beside a dataset's own: from another dataset, a file, or its own training queries."""

import json

import pyarrow.parquet as pq
import pytest
from costed import make_machine, planned

from tandem.data.collection import Collection
from tandem.data.dataset import run
from tandem.data.splits import compute_position
from tandem.errors import UserError
from tandem.extras.drawn_splits import choose_share, move_share
from tandem.extras.estimate.estimate import new_setting
from tandem.store.artifact import open_artifact
from tandem.store.job import Job


@pytest.fixture
def derive(tmp_path):
    """`derive(name, inputs, params, **execution)`: run the stage `dataset` for the source `unlabelled`."""

    def run_stage(name, inputs, params=None, **execution):
        out = tmp_path / "results" / name
        run(Job("dataset", out, {"source": "unlabelled", **(params or {})}, inputs, execution))
        return open_artifact(out, "dataset")

    return run_stage


@pytest.fixture
def base(beir, make):
    """q1 … q8 of train ask for d1, q9 of test for d2; the first three have answers."""
    texts = {f"q{i}": f"what is {i}" for i in range(1, 10)}
    (beir / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": q, "text": t}) + "\n" for q, t in texts.items())
    )
    (beir / "qrels" / "train.tsv").write_text("".join(f"q{i}\td1\t1\n" for i in range(1, 9)))
    (beir / "qrels" / "test.tsv").write_text("q9\td2\t1\n")
    answers = [json.dumps({"_id": f"q{i}", "answers": [str(i)]}) for i in (1, 2, 3)]
    (beir / "answers.jsonl").write_text("\n".join(answers) + "\n")
    return make("base", {"source": "beir"}, path=str(beir))


def test_a_share_of_the_training_queries_loses_its_labels(base, derive):
    share = sorted(compute_position(f"q{i}") for i in range(1, 9))[3]  # three lie below
    dataset = derive("part", {"of": base}, {"share": share})
    collection = Collection(dataset)
    lost = {f"q{i}" for i in range(1, 9) if compute_position(f"q{i}") < share}
    assert set(collection.queries("unlabelled")) == lost
    assert len(lost) == 3
    assert (
        set(collection.queries("train"))
        == {f"q{i}" for i in range(1, 9)} - lost
        == set(collection.qrels("train"))
    )
    assert collection.queries("test") == {"q9": "what is 9"}
    with pytest.raises(UserError, match="holds no split unlabelled"):
        collection.qrels("unlabelled")
    answered = {
        row["query_id"] for row in pq.read_table(dataset.path("answers.parquet")).to_pylist()
    }
    assert answered == {"q1", "q2", "q3"} - lost
    assert dataset.manifest.facts["warnings"] == []


@pytest.mark.parametrize("kept", ["lowest", "highest"])
def test_a_share_of_queries_that_the_same_hash_has_chosen(kept):
    """Of 400 queries 160 lose their labels, also where `train_queries` has left the lower end of the hash."""
    ids = sorted((f"q{i}" for i in range(1000)), key=compute_position)
    chosen = ids[:400] if kept == "lowest" else ids[-400:]
    assert choose_share(chosen, 0.4) == set(chosen[:160])


def test_a_share_of_few_queries_takes_some_and_leaves_some(base, derive):
    few = [query for query in map(str, range(99)) if compute_position(query) > 0.3][:10]
    assert choose_share(few, 0.2) == set(sorted(few, key=compute_position)[:2])
    said = "share is 0.01, which none of 8 train queries falls into; raise it"
    with pytest.raises(UserError, match=said):
        derive("part", {"of": base}, {"share": 0.01})


def test_a_share_of_evenly_spread_queries_is_a_threshold():
    ids = [f"q{i}" for i in range(1000)]
    assert choose_share(ids, 0.4) == {query for query in ids if compute_position(query) < 0.4}


def test_dev_is_a_share_of_the_queries_that_keep_their_labels(make_beir, derive):
    """Those of the lowest hashes have lost them: none of the others lies below a tenth of all hashes."""
    ids = sorted((f"q{i}" for i in range(40)), key=compute_position)
    qrels = {"train": [f"{query}\td\t1" for query in ids]}
    base = make_beir("base", [("d", "", "text")], ids, qrels)
    dataset = Collection(derive("more", {"of": base}, {"share": 0.5, "dev_from_train": 0.1}))
    labelled = [query for query in ids if query not in dataset.queries("unlabelled")]
    assert list(dataset.queries("dev")) == labelled[: round(len(labelled) / 10)]


def test_another_datasets_training_queries(base, derive, beir, make):
    texts = {"q1": "another question", "x": "what is 9", "y": "tested elsewhere"}
    (beir / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": q, "text": t}) + "\n" for q, t in texts.items())
    )
    (beir / "qrels" / "train.tsv").write_text("q1\td1\t1\nx\td1\t1\n")
    (beir / "qrels" / "test.tsv").write_text("y\td2\t1\n")
    (beir / "answers.jsonl").unlink()
    other = make("other", {"source": "beir"}, path=str(beir))
    dataset = derive("more", {"of": base, "queries": other})
    # the same id is another query; a text that is asked in the test set would leak it; a test query is none of training
    assert Collection(dataset).queries("unlabelled") == {"unlabelled-q1": "another question"}
    assert dataset.manifest.facts["source"]["asked_already"] == 1
    assert len(Collection(dataset).queries("train")) == 8


def test_a_file_of_queries(base, derive, tmp_path):
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "unlabelled.query.txt").write_text("7\twho knows\n8\twhat is 1\n")
    dataset = derive("file", {"of": base}, path=str(folder))
    assert Collection(dataset).queries("unlabelled") == {"unlabelled-7": "who knows"}
    (folder / "unlabelled.query.txt").write_text("7\twho knows\n7\twho asks\n")
    with pytest.raises(
        UserError,
        match=r"queries\.parquet then .*unlabelled\.query\.txt:11: query id 'unlabelled-7'",
    ):
        derive("twice", {"of": base}, path=str(folder))


def test_queries_come_from_one_place(base, derive):
    for inputs, params in (({}, {}), ({"queries": base}, {"share": 0.5})):
        with pytest.raises(UserError, match="one of queries_of, path .* and share"):
            derive("none", {"of": base, **inputs}, params)


def test_the_estimate_counts_queries_without_labels():
    counts = {"passages": 1000, "train": 500, "train_qrels": 1000, "dev": 50}
    own = {"source": "ir_datasets", "id": "msmarco-passage", "counts": counts}
    more = {"source": "unlabelled", "of": "mine"}
    plan = planned(
        datasets={
            "mine": own,
            "other": {**own, "counts": counts | {"train": 70}},
            "share": {**more, "share": 0.4},
            "elsewhere": {**more, "queries_of": "other"},
        },
        dataset="share",
    )
    size = new_setting(plan.settings, make_machine()).sizes
    share, elsewhere = (size(plan.planner.dataset(name)) for name in ("share", "elsewhere"))
    assert share.queries == {"train": 300, "unlabelled": 200, "dev": 50}
    assert share.positives["train"] == 600
    assert elsewhere.queries == {"train": 500, "unlabelled": 70, "dev": 50}
    assert elsewhere.positives["train"] == 1000


def test_a_train_split_is_carved_out_of_test_by_hash():
    splits = {f"q{i}": "test" for i in range(100)}
    moved = move_share(splits, 0.5, "test", "train")
    assert {q for q, s in moved.items() if s == "train"} == {
        q for q in splits if compute_position(q) < 0.5
    }
    with pytest.raises(UserError, match="train_from_test: the source has a train split of its own"):
        move_share(splits | {"t": "train"}, 0.5, "test", "train")
