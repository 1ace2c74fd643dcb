"""Near-duplicates of relevant passages: found exactly, and judged as the passage they are near to."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from tandem.data import tables
from tandem.data.collection import Collection
from tandem.data.text import hash_token_trigrams, measure_similarity
from tandem.extras.near_duplicates import find_near_duplicates, hash_trigrams, label_near_duplicates


def write_corpus(path, texts):
    rows = [(doc, "", text) for doc, text in texts.items()]
    tables.write_batches(
        path, tables.make_batches(rows, tables.CORPUS_SCHEMA), tables.CORPUS_SCHEMA
    )


def words(text):
    parts = text.lower().split()
    return {tuple(parts[i : i + 3]) for i in range(max(1, len(parts) - 2))}


def test_similarity_is_the_share_of_common_word_trigrams():
    fox = hash_trigrams("the quick brown fox jumps")
    assert measure_similarity(fox, hash_trigrams("The quick, brown fox: jumps!")) == 1
    assert measure_similarity(fox, hash_trigrams("the quick brown fox leaps")) == 2 / 4
    assert measure_similarity(fox, hash_trigrams("a b")) == 0
    assert measure_similarity(hash_trigrams("数据结构算法"), hash_trigrams("数据结构算符")) == 3 / 5
    assert len(hash_trigrams("")) == len(hash_trigrams("... ☺")) == 0
    assert measure_similarity(hash_trigrams(""), hash_trigrams("")) == 0
    assert len(hash_token_trigrams(np.array([5, 6, 7, 5, 6, 7], np.uint16))) == 3


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8, 1.0])
def test_all_pairs_that_comparing_everything_finds_are_found(tmp_path, threshold):
    draw = random.Random(3)
    texts = {}
    for number in range(60):
        text = [draw.choice("abcdefgh") for _ in range(draw.randint(2, 14))]
        texts[f"d{number}"] = " ".join(text)
        text[draw.randrange(len(text))] = "z"
        texts[f"e{number}"] = " ".join(text)
    write_corpus(tmp_path / "corpus.parquet", texts)
    docs = {doc for doc in texts if doc.startswith("d")}
    expected = {}
    for doc in docs:
        own = words(texts[doc])
        near = [
            o
            for o, t in texts.items()
            if o != doc and len(own & words(t)) / len(own | words(t)) >= threshold
        ]
        if near:
            expected[doc] = near
    assert find_near_duplicates(tmp_path / "corpus.parquet", docs, threshold) == expected
    assert expected or threshold == 1


def test_a_near_duplicate_gets_the_highest_grade_of_those_it_is_near_to(tmp_path):
    texts = {
        "a": "one two three four five",
        "b": "one two three four six",
        "c": "one two three four five",
    }
    write_corpus(tmp_path / "corpus.parquet", texts | {"d": "nothing of all that"})
    judged = tables.make_table(
        [("q", "a", 1, "test"), ("q", "c", 2, "test"), ("r", "a", 0, "dev")], tables.QRELS_SCHEMA
    )
    result, added = label_near_duplicates(judged, tmp_path / "corpus.parquet", 0.5)
    assert added == 1
    assert isinstance(result, pa.Table)
    assert list(tables.iterate_rows(result))[3:] == [("q", "b", 2, "test")]
    # what people judged stays as it is: r's grade of a, and q's of c, which says the same as a
    assert list(tables.iterate_rows(result))[:3] == list(tables.iterate_rows(judged))


@pytest.mark.parametrize("judged", ["... !!!", "", "☺ ☺"])
def test_passages_without_a_word_are_near_to_nothing(make, tmp_path, judged):
    texts = {"a": judged, "b": "... !!!", "c": "", "d": "☺ ☺", "e": "one two three"}
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": doc, "text": text} for doc, text in texts.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "what"}\n')
    (folder / "qrels/test.tsv").write_text("q\ta\t1\n")
    artifact = make("mine", {"source": "beir", "near_duplicates": 0.5}, path=str(folder))
    assert artifact.manifest.facts["near_duplicates"] == 0
    assert Collection(artifact).qrels("test") == {"q": {"a": 1}}
