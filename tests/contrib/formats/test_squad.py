import hashlib
import json
from collections import Counter

import pyarrow.parquet as pq
import pytest

from tandem.data.collection import Collection
from tandem.errors import UserError


def question(name, text, *answers, **more):
    return {
        "id": name,
        "question": text,
        "answers": [{"text": a, "answer_start": 0} for a in answers],
        **more,
    }


def squad(*articles):
    """SQuAD's JSON of (title, [(context, questions), …]) each."""
    data = [
        {
            "title": title,
            "paragraphs": [{"context": text, "qas": questions} for text, questions in paragraphs],
        }
        for title, paragraphs in articles
    ]
    return {"version": "1.1", "data": data}


def ident(title, text):
    return hashlib.sha1(f"{title}\n{text}".encode()).hexdigest()[:16]


@pytest.fixture
def built(tmp_path, make):
    """`built({split: document}, {split: document})`: the dataset of files_of and queries_of."""

    def build(files, questions=None):
        folder = tmp_path / "squad"
        folder.mkdir()
        params = {"source": "squad", "files_of": {}, "queries_of": {}}
        for key, documents in {"files_of": files, "queries_of": questions or {}}.items():
            for split, document in documents.items():
                name = f"{key}-{split}.json"
                (folder / name).write_text(json.dumps(document))
                params[key][split] = name
        return Collection(make("d", params, path=str(folder)))

    return build


TRAIN = squad(
    (
        "Otter",
        [
            ("It swims.", [question("t1", "Does it swim?", "swims", "It swims", "swims")]),
            ("It naps.", []),
        ],
    ),
)
DEV = squad(
    (
        "Heron",
        [
            (
                "It wades.",
                [question("e1", "Does it wade?", "wades"), question("e2", "What wades?", "It")],
            )
        ],
    ),
    ("Otter", [("It naps.", [question("e3", "Does it nap?", "naps")])]),
)


def test_two_files_by_hand(built):
    collection = built({"dev": DEV, "train": TRAIN})
    assert pq.read_table(collection.artifact.path("corpus.parquet")).to_pydict() == {
        "doc_id": [
            ident("Otter", "It swims."),
            ident("Otter", "It naps."),
            ident("Heron", "It wades."),
        ],
        "title": ["Otter", "Otter", "Heron"],
        "text": ["It swims.", "It naps.", "It wades."],
    }
    assert collection.queries("train") == {"t1": "Does it swim?"}
    assert collection.queries("dev") == {
        "e1": "Does it wade?",
        "e2": "What wades?",
        "e3": "Does it nap?",
    }
    heron, naps = ident("Heron", "It wades."), ident("Otter", "It naps.")
    assert collection.qrels("train") == {"t1": {ident("Otter", "It swims."): 1}}
    assert collection.qrels("dev") == {"e1": {heron: 1}, "e2": {heron: 1}, "e3": {naps: 1}}
    assert collection.answers("train") == {"t1": ["swims", "It swims"]}
    assert collection.answers("dev") == {"e1": ["wades"], "e2": ["It"], "e3": ["naps"]}
    assert collection.artifact.manifest.facts["warnings"] == []


def test_equal_texts_under_two_titles_are_two_passages(built):
    questions = [question("a", "?", "x")]
    collection = built(
        {
            "test": squad(
                ("One", [("Same.", questions)]), ("Two", [("Same.", [question("b", "?", "x")])])
            )
        }
    )
    assert collection.qrels("test") == {
        "a": {ident("One", "Same."): 1},
        "b": {ident("Two", "Same."): 1},
    }


def test_questions_in_another_language_ask_for_the_same_paragraphs(built):
    other = squad(("苍鹭", [("它涉水。", [question("e2", "什么涉水？", "它")])]))
    collection = built({"test": DEV}, {"test": other})
    assert collection.passages == 2
    assert collection.queries("test") == {"e2": "什么涉水？"}
    assert collection.qrels("test") == {"e2": {ident("Heron", "It wades."): 1}}
    assert collection.answers("test") == {"e2": ["It"]}
    assert collection.artifact.manifest.facts["warnings"] == []


def test_ids_of_drcd_paragraphs_are_kept_and_equal_paragraphs_take_the_first(built):
    document = squad(
        ("新教", [("甲", [question("1-1-1", "?", "甲")]), ("甲", [question("1-2-1", "？", "甲")])])
    )
    for number, paragraph in enumerate(document["data"][0]["paragraphs"], start=1):
        paragraph["id"] = f"1-{number}"
    collection = built({"test": document})
    assert collection.doc_ids().to_pylist() == ["1-1"]
    assert collection.artifact.manifest.facts["source"]["repeated_paragraphs"] == 1
    assert collection.qrels("test") == {"1-1-1": {"1-1": 1}, "1-2-1": {"1-1": 1}}


def test_both_layouts_of_cmrc_give_the_same(built, tmp_path, make):
    record = {"query_id": "TRIAL_8_QUERY_0", "query_text": "为什么？", "answers": ["因为", "因为"]}
    original = [
        {"context_id": "TRIAL_8", "context_text": "因为。", "title": "战士", "qas": [record]}
    ]
    (tmp_path / "original.json").write_text(json.dumps(original))
    like_squad = squad(
        ("战士", [("因为。", [question("TRIAL_8_QUERY_0", "为什么？", "因为", "因为")])])
    )
    like_squad["data"][0]["paragraphs"][0]["id"] = like_squad["data"][0]["id"] = "TRIAL_8"
    first = built({"test": like_squad})
    params = {"source": "squad", "files_of": {"test": "original.json"}}
    other = Collection(make("o", params, path=str(tmp_path)))
    for collection in (first, other):
        assert collection.texts(["TRIAL_8"]) == {"TRIAL_8": ("战士", "因为。")}
        assert collection.queries("test") == {"TRIAL_8_QUERY_0": "为什么？"}
        assert collection.qrels("test") == {"TRIAL_8_QUERY_0": {"TRIAL_8": 1}}
        assert collection.answers("test") == {"TRIAL_8_QUERY_0": ["因为"]}
    assert first.artifact.manifest.facts["checksum"] == other.artifact.manifest.facts["checksum"]


def test_questions_that_no_passage_answers_are_left_out(built):
    questions = [question("a", "?", "x"), question("b", "??", is_impossible=True)]
    collection = built({"test": squad(("One", [("x", questions)]))})
    assert collection.queries("test") == {"a": "?"}
    assert collection.artifact.manifest.facts["source"] == {
        "repeated_paragraphs": 0,
        "unanswerable_questions": 1,
    }


def test_questions_without_answers_are_queries_without_answers(built):
    collection = built({"test": squad(("One", [("x", [{"id": "a", "question": "?"}])]))})
    assert collection.qrels("test") == {"a": {ident("One", "x"): 1}}
    with pytest.raises(UserError, match="has no answers"):
        collection.answers("test")


WRONG = {
    "no files": (
        {},
        {},
        "files_of: none; a file of at least one split is needed, as in files_of: {test: dev.json}",
    ),
    "no question": (
        {"test": squad(("One", [("x", [])]))},
        {},
        "{0}/files_of-test.json: holds no question; name a file with questions, or leave this one out",
    ),
    "a split without paragraphs": (
        {"test": DEV},
        {"dev": DEV},
        "queries_of.dev: files_of has no dev; name the file with its paragraphs there",
    ),
    "a question from elsewhere": (
        {"test": DEV},
        {"test": TRAIN},
        "{0}/queries_of-test.json: question t1 is not in {0}/files_of-test.json;"
        " every question needs its paragraph there",
    ),
    "no articles": (
        {"test": {"articles": []}},
        {},
        "{0}/files_of-test.json: data is missing; see docs/formats.md",
    ),
    "no object": (
        {"test": {"data": [{"title": "One", "paragraphs": ["x"]}]}},
        {},
        '{0}/files_of-test.json: data[0].paragraphs[0] is "x"; Input should be an object; see docs/formats.md',
    ),
    "no context": (
        {"test": {"data": [{"paragraphs": [{"qas": []}]}]}},
        {},
        "{0}/files_of-test.json: data[0].paragraphs[0].context is missing; see docs/formats.md",
    ),
    "half a character": (
        {"test": squad(("One", [("x\ud800", [])]))},
        {},
        "{0}/files_of-test.json: Invalid JSON: unexpected end of hex escape at line 1 column 81;"
        " mend it or fetch the file again",
    ),
    "answers": (
        {"test": squad(("One", [("x", [question("a", "?") | {"answers": {"text": ["x"]}}])]))},
        {},
        '{0}/files_of-test.json: data[0].paragraphs[0].qas[0].answers is {"text": ["x"]}; '
        "Input should be a valid array; see docs/formats.md",
    ),
    "an id twice": (
        {"train": DEV, "test": DEV},
        {},
        "{0} question:4: query id 'e1' again, first at 1; every id must be unique",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_one_line(name, built, tmp_path):
    files, questions, message = WRONG[name]
    with pytest.raises(UserError) as error:
        built(files, questions)
    assert str(error.value) == message.replace("{0}", str(tmp_path / "squad"))


@pytest.mark.parametrize(("name", "passages"), [("squad", 2067), ("cmrc2018", 1104)])
def test_a_real_collection_as_squad_json_keeps_passages_questions_and_answers(
    name, passages, built, make, real
):
    original = Collection(make("beir", {"source": "beir"}, path=str(real(name))))
    converted = built({split: as_squad(original, split) for split in ("train", "dev", "test")})
    new, old = (texts(converted), texts(original))
    assert len(new) == len(old) == passages
    assert Counter(new.values()) == Counter(old.values())
    for split in ("train", "dev", "test"):
        assert converted.queries(split) == original.queries(split)
        assert converted.answers(split) == original.answers(split)
        assert {q: [new[d] for d in docs] for q, docs in converted.qrels(split).items()} == {
            q: [old[d] for d in docs] for q, docs in original.qrels(split).items()
        }


def texts(collection):
    return collection.texts(collection.doc_ids().to_pylist())


def as_squad(collection, split):
    """A split's questions on their paragraphs; paragraphs without a question stand in each split's file."""
    queries, answers = collection.queries(split), collection.answers(split)
    questions = {}
    for query, docs in collection.qrels(split).items():
        questions.setdefault(next(iter(docs)), []).append(
            question(query, queries[query], *answers[query])
        )
    rows = (
        row
        for part in collection.batches()
        for row in zip(*(c.to_pylist() for c in part.columns), strict=True)
    )
    return squad(*((title, [(text, questions.get(doc, []))]) for doc, title, text in rows))
