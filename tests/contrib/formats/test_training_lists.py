"""Training files of several toolkits: what they list is a collection, with its training lists."""

import json
from hashlib import blake2b

import pytest

from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.extras.recognition import find_entry


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def named(title, text):
    return blake2b(f"{title}\t{text}".encode(), digest_size=8).hexdigest()


def query(text):
    return blake2b(text.encode(), digest_size=8).hexdigest()


@pytest.fixture
def read(tmp_path, make):
    """`read(files)`: the collection that `tandem init` recognises in them."""

    def build(files):
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content)
        entry, path = find_entry([str(folder)])
        assert entry["source"] == "training_lists"
        return Collection(make("mine", entry, path=path))

    return build


def test_a_file_for_evaluation_is_not_trained_on(read):
    files = {"train.jsonl": "a?", "more.jsonl": "b?", "eval.jsonl": "c?"}
    collection = read(
        {name: lines({"query": text, "pos": ["x"], "neg": ["y"]}) for name, text in files.items()}
    )
    assert sorted(collection.queries("train").values()) == ["a?", "b?"]
    assert collection.queries("dev") == {query("c?"): "c?"}


def test_flag_embeddings_texts_are_identified_by_themselves(read):
    # a? stands twice: its lists are one, and x, once positive, is positive. The score is that of the first mention.
    collection = read({
        "finetune.jsonl": lines(
            {"query": "a?", "pos": ["x"], "neg": ["y", "z"], "pos_scores": [0.75], "neg_scores": [0.5, 0.25]},
            {"query": "b?", "pos": ["y"], "neg": ["x"]},
            {"query": "a?", "pos": ["w"], "neg": ["x"]},
        )
    })  # fmt: skip
    w, x, y, z = (named("", text) for text in "wxyz")
    a, b = query("a?"), query("b?")
    assert collection.doc_ids().to_pylist() == [x, y, z, w]
    assert collection.texts([w, z]) == {w: ("", "w"), z: ("", "z")}
    assert collection.queries("train") == {a: "a?", b: "b?"}
    assert collection.qrels("train") == {a: {x: 1, w: 1}, b: {y: 1}}
    assert list(collection.lists()) == [
        (a, [(x, 1, 0.75), (y, 0, 0.5), (z, 0, 0.25), (w, 1, None)]),
        (b, [(y, 1, None), (x, 0, None)]),
    ]
    assert collection.artifact.manifest.facts["source"]["both_positive_and_negative"] == 1


def test_tevatrons_ids_are_kept_and_its_splits_are_files(read):
    def record(name, positive, negative):
        passages = [
            {"docid": doc, "title": "T", "text": f"text {doc}"} for doc in (positive, negative)
        ]
        lists = {"positive_passages": passages[:1], "negative_passages": passages[1:]}
        return {"query_id": name, "query": f"{name}?", **lists}

    train, dev = (
        lines(record("t1", "d1", "d2")),
        lines(record("v1", "d2", "d3"), record("v2", "d1", "d3")),
    )
    collection = read({"train.jsonl": train, "dev.jsonl": dev})
    assert collection.texts(["d3"]) == {"d3": ("T", "text d3")}
    assert (collection.queries("train"), collection.queries("dev")) == (
        {"t1": "t1?"},
        {"v1": "v1?", "v2": "v2?"},
    )
    assert list(collection.lists()) == [
        ("t1", [("d1", 1, None), ("d2", 0, None)]),
        ("v1", [("d2", 1, None), ("d3", 0, None)]),
        ("v2", [("d1", 1, None), ("d3", 0, None)]),
    ]


def test_test_then_dev_keeps_a_query_of_several_splits_with_its_own_lists_alone(read):
    # a? is of all three, b? of train and dev. Their training lists do not count, but the passages stay.
    collection = read({
        "train.jsonl": lines(
            {"query": "a?", "pos": ["w"], "neg": ["x"]},
            {"query": "b?", "pos": ["x"], "neg": ["y"]},
            {"query": "c?", "pos": ["y"], "neg": ["w"]},
        ),
        "dev.jsonl": lines({"query": "a?", "pos": ["y"]}, {"query": "b?", "pos": ["x"], "neg": ["z"]}),
        "test.jsonl": lines({"query": "a?", "pos": ["z"], "neg": ["w"]}),
    })  # fmt: skip
    w, x, y, z = (named("", text) for text in "wxyz")
    a, b, c = (query(f"{letter}?") for letter in "abc")
    assert collection.doc_ids().to_pylist() == [w, x, y, z]
    splits = {split: collection.qrels(split) for split in ("train", "dev", "test")}
    assert splits == {"train": {c: {y: 1}}, "dev": {b: {x: 1}}, "test": {a: {z: 1}}}
    assert list(collection.lists()) == [
        (a, [(z, 1, None), (w, 0, None)]),
        (b, [(x, 1, None), (z, 0, None)]),
        (c, [(y, 1, None), (w, 0, None)]),
    ]
    assert collection.artifact.manifest.facts["warnings"] == [
        "2 queries stand in lists of several splits; the first of test, dev, train keeps them"
    ]


def test_tevatrons_lists_of_ids_name_passages_of_a_corpus(read):
    record = {
        "query_id": 1,
        "query_text": "a?",
        "positive_document_ids": ["d2"],
        "negative_document_ids": ["d1"],
    }
    corpus = lines(*({"docid": f"d{number}", "title": "", "text": "x"} for number in range(4)))
    collection = read({"train.jsonl": lines(record), "corpus.jsonl": corpus})
    assert collection.doc_ids().to_pylist() == ["d0", "d1", "d2", "d3"]
    assert list(collection.lists()) == [("1", [("d2", 1, None), ("d1", 0, None)])]


def test_dprs_pools_and_triplets_are_read_too(read):
    pool = {
        "question": "a?", "answers": [], "positive_ctxs": [{"title": "T", "text": "x", "score": "1000"}],
        "hard_negative_ctxs": [{"title": "", "text": "y"}], "negative_ctxs": [{"title": "", "text": "z"}],
    }  # fmt: skip
    triplets = [{"anchor": "b?", "positive": "z", "negative": "y"}]
    collection = read(
        {"pool_train.json": json.dumps([pool]), "triplets.json": json.dumps(triplets)}
    )
    assert collection.doc_ids().to_pylist() == [named("T", "x"), named("", "y"), named("", "z")]
    assert collection.qrels("train") == {
        query("a?"): {named("T", "x"): 1},
        query("b?"): {named("", "z"): 1},
    }


def test_an_id_with_several_texts_keeps_the_first_and_is_counted(read, capsys):
    record = {"query_id": "q", "query": "a?", "positive_passages": [{"docid": "d", "text": "one"}]}
    other = record | {"query_id": "r", "positive_passages": [{"docid": "d", "text": "two"}]}
    collection = read({"train.jsonl": lines(record, other)})
    assert collection.texts(["d"]) == {"d": ("", "one")}
    assert (
        "1 ids of passages have several texts; the first of each is kept" in capsys.readouterr().err
    )


WRONG = {
    "no positives": (
        {"query": "a?", "neg": ["x"]},
        "no pos; a field named pos or positive_passages or",
    ),
    "no query": ({"pos": ["x"]}, "no query; a field named query or query_text or"),
    "a number": ({"query": "a?", "pos": [3]}, "text is 3; a text is needed"),
    "a passage without a text": (
        {"query": "a?", "pos": [{"docid": "d"}]},
        "text is missing; a text is needed",
    ),
    "fewer scores": (
        {"query": "a?", "pos": ["x", "y"], "pos_scores": [1]},
        "pos_scores does not have a number for",
    ),
    "a score that is none": (
        {"query": "a?", "pos": ["x"], "pos_scores": ["high"]},
        "a score of pos is 'high'; a num",
    ),
    "ids alone": (
        {"query": "a?", "positive_document_ids": ["d"]},
        "positive_document_ids names passages alone; name",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_record_is_named(name, tmp_path, make):
    record, message = WRONG[name]
    (tmp_path / "t.jsonl").write_text(lines({"query": "b?", "pos": ["x"]}, record))
    with pytest.raises(UserError) as error:
        make(
            "mine",
            {"source": "training_lists", "lists": {"train": ["t.jsonl"]}},
            path=str(tmp_path),
        )
    assert str(error.value).startswith(f"{tmp_path}/t.jsonl:2: {message}")


def test_a_text_is_in_no_corpus_of_ids(tmp_path, make):
    (tmp_path / "t.jsonl").write_text(lines({"query": "b?", "pos": ["x"]}))
    (tmp_path / "c.jsonl").write_text(lines({"docid": "d", "text": "x"}))
    entry = {"source": "training_lists", "lists": {"train": ["t.jsonl"]}, "corpus": "c.jsonl"}
    with pytest.raises(
        UserError, match=r"t\.jsonl:1: a passage of pos has no id, by which corpus would have it"
    ):
        make("mine", entry, path=str(tmp_path))


def test_mined_negatives_may_stand_one_a_field(read):
    numbered = {f"negative_{number}": f"n{number}" for number in (1, 10, 2)}
    collection = read({
        "train.jsonl": lines(
            {"anchor": "a?", "positive": "x", **numbered},
            {"anchor": "b?", "positive": "n2", "neg_2": "y", "neg_1": "x", "pos_count": 1, "position": "top"},
        )
    })  # fmt: skip
    x, y, n1, n2, n10 = (named("", text) for text in ("x", "y", "n1", "n2", "n10"))
    assert list(collection.lists()) == [
        (query("a?"), [(x, 1, None), (n1, 0, None), (n2, 0, None), (n10, 0, None)]),
        (query("b?"), [(n2, 1, None), (x, 0, None), (y, 0, None)]),
    ]


@pytest.mark.parametrize("key", ["positive_2", "negatives_hard", "neg_texts", "pos_docs"])
@pytest.mark.parametrize("value", ["y", ["y"], [{"text": "y"}]])
def test_texts_under_a_name_that_is_not_read_are_refused(key, value, read):
    files = {"train.jsonl": lines({"query": "a?", "pos": ["x"], key: value})}
    with pytest.raises(
        UserError, match=rf"train\.jsonl:1: {key} is not read; .* negative_1"
    ) as error:
        read(files)
    assert "\n" not in str(error.value)


def test_an_id_of_two_queries_is_refused(read):
    first, second = ({"docid": name, "title": "", "text": name} for name in "xy")
    listed = {"positive_passages": [first], "negative_passages": [second]}
    record = {"query_id": "0", "query": "a?", **listed}
    with pytest.raises(UserError, match=r"test\.jsonl:1: query id 0 stands for two texts"):
        read({"train.jsonl": lines(record), "test.jsonl": lines(record | {"query": "b?"})})
