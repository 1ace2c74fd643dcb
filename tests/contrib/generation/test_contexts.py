"""What a generator learns to write of a query: answers, sentences, titles, passages; and what is missing."""

import json

import pytest

from tandem.contrib.generation import train
from tandem.contrib.generation.contexts import read_contexts
from tandem.contrib.generation.generators import load_generator
from tandem.data.collection import Collection
from tandem.data.dataset import run as make_dataset_stage
from tandem.errors import UserError
from tandem.extras.sentences import split_sentences
from tandem.store.artifact import open_artifact

PASSAGES = [
    ("p1", "Otters", "Otters swim well. They eat crabs in winter. In summer they eat crabs, too."),
    ("p2", "Otters", "Crabs hide under stones. An otter finds them."),
    ("p3", "", "Herons stand still. They catch frogs."),
    ("p4", "Bats", "..."),
]
QUERIES = {"q1": "what do otters eat", "q2": "what does a heron catch", "q3": "do bats sleep"}
JUDGED = [("q1", "p1"), ("q1", "p2"), ("q2", "p3"), ("q3", "p4")]


@pytest.fixture
def collection(make_job, tmp_path):
    """`collection(answers)`: four passages, and three training queries, some with answers."""

    def make(answers=None):
        folder = tmp_path / "beir"
        (folder / "qrels").mkdir(parents=True)
        rows = [
            json.dumps({"_id": doc, "title": title, "text": text}) for doc, title, text in PASSAGES
        ]
        (folder / "corpus.jsonl").write_text("\n".join(rows))
        rows = [json.dumps({"_id": query, "text": text}) for query, text in QUERIES.items()]
        (folder / "queries.jsonl").write_text("\n".join(rows))
        (folder / "qrels/train.tsv").write_text(
            "".join(f"{query}\t{doc}\t1\n" for query, doc in JUDGED)
        )
        if answers:
            rows = [json.dumps({"_id": query, "answers": own}) for query, own in answers.items()]
            (folder / "answers.jsonl").write_text("\n".join(rows))
        job = make_job(
            "dataset", tmp_path / "own-0123456789", {"source": "beir"}, {}, {"path": str(folder)}
        )
        make_dataset_stage(job)
        return Collection(open_artifact(job.out))

    return make


def contexts(collection, target, rule="string"):
    return read_contexts(collection, "train", target, rule)


def test_the_three_contexts_of_gar(collection):
    made = collection({"q1": ["crabs", "shellfish"], "q2": ["the frogs"]})
    otters, heron, bats = QUERIES.values()
    assert contexts(made, "answer") == [(otters, "crabs"), (heron, "the frogs")]
    # The first sentence with an answer, of every relevant passage; a passage without one gives none. A query without
    # answers takes the sentence with the most of its words: none of the passage about bats has any.
    assert contexts(made, "sentence") == [
        (otters, "They eat crabs in winter."),
        (otters, "Crabs hide under stones."),
    ]
    # two passages of one title are one pair
    assert contexts(made, "title") == [(otters, "Otters"), (bats, "Bats")]


def test_a_collection_without_answers_gives_the_nearest_sentence(collection):
    made = collection()
    otters, heron, bats = QUERIES.values()
    # "Otters swim well." and "They eat crabs in winter." share a word each with the query: the first.
    assert contexts(made, "sentence") == [
        (otters, "Otters swim well."),
        (heron, "They catch frogs."),
    ]
    assert contexts(made, "passage") == [
        (otters, PASSAGES[0][2]), (otters, PASSAGES[1][2]), (heron, PASSAGES[2][2]), (bats, "..."),
    ]  # fmt: skip
    with pytest.raises(
        UserError,
        match=r"own-0123456789: no query of split train has an answer, which target: answer",
    ):
        contexts(made, "answer")


def test_the_rule_of_the_dataset_finds_the_answer(collection):
    made = collection({"q1": ["c.abs in (winter|autumn)"]})
    assert (QUERIES["q1"], "They eat crabs in winter.") in contexts(made, "sentence", "regex")
    assert QUERIES["q1"] not in dict(contexts(made, "sentence"))


def test_titles_and_sentences_that_are_missing_are_one_line(
    make_job, tmp_path, make_dataset, documents
):
    bare = make_dataset(tmp_path / "bare-0000000001", [(doc, "", "...") for doc, _, _ in documents])
    for target in ("title", "sentence"):
        with pytest.raises(
            UserError, match=f"bare-0000000001: no relevant passage of split train has a .*{target}"
        ):
            contexts(Collection(bare), target)


def test_a_generator_reads_the_query_and_learns_the_context(train_job, new_generator, tmp_path):
    model, tokenizer = load_generator(new_generator.folder / "hf")
    params = {"prompt": "{query}", "target": "passage", "target_length": 6}
    pairs = train.read_pairs(
        train_job(tmp_path / "pairs-0000000000", params=params), model, tokenizer
    )
    assert tokenizer.decode(pairs.tokens.passages[1]) == "[CLS] what does the heron eat [SEP]"
    assert tokenizer.decode(pairs.tokens.queries[1]) == "the heron eats frogs and [SEP]"
    job = train_job(tmp_path / "trained-0000000000", {"steps": 2}, params=params)
    train.run(job)
    assert open_artifact(job.out).manifest.facts["pairs"] == 20


def test_a_blank_answer_is_none(collection):
    made = collection({"q1": [" ", "shellfish"], "q2": [""]})
    otters, heron, _ = QUERIES.values()
    assert contexts(made, "answer") == [(otters, "shellfish")]
    assert (heron, "They catch frogs.") in contexts(made, "sentence")


NEAREST = {
    "hindi": ("भारत की राजधानी", ["और कुछ नहीं।", "दिल्ली भारत की राजधानी है।"]),
    "vietnamese": ("thủ đô nước nào", ["Khác.", "Thủ đô là Hà Nội."]),
    "decomposed": ("e\u0301te\u0301", ["Il fait froid.", "L'été était chaud."]),
    "chinese": ("長城在哪裡", ["其他。", "北京有長城。"]),
    "thai": ("เมืองหลวง", ["อื่นๆ", "ประเทศไทยมีเมืองหลวง"]),
}


@pytest.mark.parametrize("language", NEAREST)
def test_the_nearest_sentence_in_any_script(language, make_job, tmp_path):
    query, sentences = NEAREST[language]
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    passage = {"_id": "p", "title": "", "text": "\n\n".join(sentences)}
    (folder / "corpus.jsonl").write_text(json.dumps(passage))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": query}))
    (folder / "qrels/train.tsv").write_text("q\tp\t1\n")
    out = tmp_path / "own-0123456789"
    job = make_job("dataset", out, {"source": "beir"}, {}, {"path": str(folder)})
    make_dataset_stage(job)
    made = Collection(open_artifact(job.out))
    assert contexts(made, "sentence") == [(query, sentences[1])]


def test_sentences_by_their_marks():
    assert split_sentences("One. Two? (Three!) four") == ["One.", "Two?", "(Three!)", "four"]
    assert split_sentences("水獺游泳。「牠吃魚。」是的") == ["水獺游泳。", "「牠吃魚。」", "是的"]
    assert split_sentences("version 3.11 is out.\n\n... A heading\n\ntext") == [
        "version 3.11 is out.", "A heading", "text",
    ]  # fmt: skip
    assert split_sentences("यह वाक्य है। यह दूसरा है॥ तीसरा?") == ["यह वाक्य है।", "यह दूसरा है॥", "तीसरा?"]
    assert split_sentences("یہ جملہ ہے۔ کیا؟ ہاں") == ["یہ جملہ ہے۔", "کیا؟", "ہاں"]
    assert split_sentences(" \n ") == []
