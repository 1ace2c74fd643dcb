import json
import random
from collections import Counter
from hashlib import md5
from itertools import groupby

import pyarrow.parquet as pq
import pytest

from tandem.cluster.work import map_in_order
from tandem.contrib.formats.dureader2 import (
    DuReaderQuestion,
    Span,
    find_best_span,
    hash_passage,
    is_positive,
    join_paragraphs,
    label,
    split_tokens,
)
from tandem.contrib.formats.options import DuReader2
from tandem.data.collection import Collection
from tandem.errors import UserError

PAPER = DuReader2(source="dureader2")


def test_span_f1_by_hand():
    # "bcd" of "abcde" and the answer "bxd" share b and d: 2·2 / (3+3)
    assert find_best_span("abcde", "bxd", 0.5) == Span(1, 4, 4 / 6)
    # the answer itself, in the middle
    assert find_best_span("xxabcxx", "abc", 0.5) == Span(2, 5, 1.0)
    # a multiset: one "a" of the answer is matched once, "aab" against "ab" is best without the first
    assert find_best_span("aab", "ab", 0.5) == Span(1, 3, 1.0)
    # in any order: "cba" shares all three
    assert find_best_span("cba", "abc", 0.5) == Span(0, 3, 1.0)
    # of equal spans the first: "a" at 0 and at 2
    assert find_best_span("aba", "a", 0.5) == Span(0, 1, 1.0)


def test_the_threshold_counts_when_it_is_met_exactly():
    # "a" against "abc": 2·1 / (1+3) = 1/2
    assert find_best_span("xa", "abc", 0.5) == Span(1, 2, 0.5)
    assert find_best_span("xa", "abc", 0.51) is None
    # 2·3 / (3+17) = 3/10, which no float is exactly
    assert find_best_span("abc", "abc" + "z" * 14, 0.3) == Span(0, 3, 0.3)


@pytest.mark.parametrize(("paragraph", "answer"), [("", "a"), ("a", ""), ("", ""), ("abc", "xyz")])
def test_nothing_shared_is_no_span(paragraph, answer):
    assert find_best_span(paragraph, answer, 0.01) is None


def every_span(paragraph, answer, threshold):
    spans = []
    for start in range(len(paragraph)):
        for end in range(start + 1, len(paragraph) + 1):
            shared = (Counter(paragraph[start:end]) & Counter(answer)).total()
            spans.append(Span(start, end, 2 * shared / (end - start + len(answer))))
    best = max(spans, key=lambda span: span.f1, default=None)
    return best if best and best.f1 >= threshold else None


@pytest.mark.parametrize("cells", [1, 7, 1 << 18])
def test_span_f1_is_that_of_all_spans(cells, monkeypatch):
    monkeypatch.setattr("tandem.contrib.formats.dureader2.SPANS_AT_ONCE", cells)
    draw = random.Random(cells)
    for _ in range(400):
        letters = "abcdef"[: draw.randint(1, 6)]
        paragraph = "".join(draw.choices(letters + "xyz", k=draw.randint(0, 22)))
        answer = "".join(draw.choices(letters, k=draw.randint(1, 10)))
        threshold = draw.choice([0.001, 0.1, 0.3, 0.5, 0.7, 1.0])
        assert find_best_span(paragraph, answer, threshold) == every_span(
            paragraph, answer, threshold
        )


def lengths(paragraphs, enough=10):
    return [
        [len(text) for text in together]
        for together in join_paragraphs(["x" * n for n in paragraphs], enough)
    ]


def test_short_paragraphs_are_joined_until_longer_than_the_limit():
    assert lengths([]) == []
    assert lengths([3, 4]) == [[3, 4]]  # a document shorter than 10 is one passage
    assert lengths([4, 5, 3, 9, 9]) == [[4, 5, 3], [9, 9]]  # 9 is not enough, 12 is
    # 10 does not exceed 10; what is left is a passage
    assert lengths([4, 6, 1, 2]) == [[4, 6, 1], [2]]
    # a paragraph that is not shorter stands alone
    assert lengths([10, 2, 30, 11]) == [[10], [2, 30], [11]]


def test_algorithm_1_on_a_record_by_hand():
    long = "这一段很长" * 60
    question = DuReaderQuestion(
        "1",
        "问?",
        ["多喝水。", " 早睡早起身体好"],
        [["医生说多喝水", "另一段"], [long, "其他", "没有"]],
    )
    # "多喝水" against "多喝水。": 2·3 / (3+4) = 0.86; the first document is one passage, the second two
    assert is_positive("医生说多喝水", [list("多喝水。")], PAPER)
    assert not is_positive("另一段", [list("多喝水。")], PAPER)
    assert label(question, PAPER) == [
        (hash_passage("医生说多喝水另一段"), True),
        (hash_passage(long), False),
        (hash_passage("其他没有"), False),
    ]
    assert hash_passage("a").hex() == md5(b"a").hexdigest()


def test_units_are_characters_without_blanks_or_words():
    assert split_tokens("多喝 水。\n", "characters") == ["多", "喝", "水", "。"]
    assert split_tokens("我们喜欢Python。", "words") == ["我们", "喜欢", "python"]


def record(number, documents, answers=("绿色的水",), **more):
    entries = [
        {"title": "标题", "paragraphs": paragraphs, "is_selected": True, "most_related_para": 0}
        for paragraphs in documents
    ]
    return {
        "question_id": number,
        "question": f"问题{number}",
        "answers": list(answers),
        "documents": entries,
        **more,
    }


@pytest.fixture
def raw(tmp_path):
    """Three questions of train (one without positives), one of dev, one of a test set whose answers are secret."""
    folder = tmp_path / "dureader2"
    folder.mkdir()
    train = [
        record(1, [["水是绿色的", "  ", "短"], ["别的文档"]]),
        record(2, [["没有关系"], ["别的文档"]]),
        record(3, [["水是绿色的", "短"], ["绿色的水"]]),
    ]
    segmented = record(4, [])
    segmented["documents"] = [{"segmented_paragraphs": [["绿色", "的", "水"], ["别的", "文档"]]}]
    secret = record(5, [["秘密的文档"]], answers=[])
    for name, records in {
        "search.train": train,
        "zhidao.dev": [segmented],
        "search.test": [secret],
    }.items():
        lines = [json.dumps(question, ensure_ascii=False) + "\n" for question in records]
        (folder / f"{name}.json").write_text("".join(lines), encoding="utf-8")
    return folder


PARAMS = {
    "source": "dureader2",
    "splits": {
        "test": ["search.test.json"],
        "train": ["search.train.json"],
        "dev": ["zhidao.dev.json"],
    },
}


def rows(artifact, name):
    return [tuple(row.values()) for row in pq.read_table(artifact.path(name)).to_pylist()]


def name_of(text):
    return md5(text.encode()).hexdigest()


def test_a_tiny_package_becomes_a_collection(raw, make):
    dataset = make("d", PARAMS, path=str(raw))
    texts = ["水是绿色的短", "别的文档", "没有关系", "绿色的水", "绿色的水别的文档", "秘密的文档"]
    assert rows(dataset, "corpus.parquet") == [(name_of(text), "", text) for text in texts]
    assert rows(dataset, "queries.parquet") == [
        ("1", "问题1", "train"),
        ("3", "问题3", "train"),
        ("4", "问题4", "dev"),
    ]
    # "绿色的" in "水是绿色的": 2·3 / (3+4)
    assert rows(dataset, "qrels.parquet") == [
        ("1", name_of("水是绿色的短"), 1, "train"),
        ("3", name_of("水是绿色的短"), 1, "train"),
        ("3", name_of("绿色的水"), 1, "train"),
        ("4", name_of("绿色的水别的文档"), 1, "dev"),
    ]
    assert Collection(dataset).answers("train") == {"1": ["绿色的水"], "3": ["绿色的水"]}
    assert dataset.manifest.facts["source"] == {
        "questions_without_positive": {"train": 1, "test": 1},
        "positives_per_query": {"train": 1.5, "dev": 1.0},
        "passages": 6,
        "mean_characters": sum(map(len, texts)) / 6,
    }


def test_length_threshold_and_unit_are_parameters(raw, make):
    cut = make("a", PARAMS | {"passage_characters": 2}, path=str(raw))
    assert ("1", name_of("水是绿色的"), 1, "train") in rows(cut, "qrels.parquet")
    # "水是绿色的" shares all 4 characters: 2·4 / (5+4) = 0.89
    assert {
        q for q, *_ in rows(make("b", PARAMS | {"threshold": 0.88}, path=str(raw)), "qrels.parquet")
    } == {
        "1",
        "3",
        "4",
    }
    assert {
        q for q, *_ in rows(make("c", PARAMS | {"threshold": 0.9}, path=str(raw)), "qrels.parquet")
    } == {"3", "4"}
    words = make("w", PARAMS | {"unit": "words", "threshold": 1.0}, path=str(raw))
    assert {q for q, *_ in rows(words, "qrels.parquet")} == {"3", "4"}


def test_any_number_of_workers_gives_the_same_bytes(raw, make):
    draw = random.Random(3)
    letters = "水是绿色的短文档别没有关系"
    with open(raw / "search.train.json", "a", encoding="utf-8") as file:
        for number in range(10, 150):
            documents = [
                ["".join(draw.choices(letters, k=draw.randint(1, 90))) for _ in range(6)]
                for _ in range(3)
            ]
            answers = ["".join(draw.choices(letters, k=draw.randint(3, 30)))]
            file.write(json.dumps(record(number, documents, answers)) + "\n")
    first, second = (make(f"w{n}", PARAMS, path=str(raw), workers=n) for n in (1, 2))
    assert first.manifest.files == second.manifest.files
    assert first.manifest.facts["checksum"] == second.manifest.facts["checksum"]
    assert first.manifest.facts["source"] == second.manifest.facts["source"]


def test_a_map_over_processes_reads_only_a_little_ahead():
    read = []

    def stream():
        for number in range(4000):
            read.append(number)
            yield -number

    results = map_in_order(abs, stream(), 2)
    assert next(results) == 0
    assert len(read) <= 2 * 4 * 32
    assert list(results) == list(range(1, 4000))


def append(name, text):
    def change(folder):
        with open(folder / name, "a", encoding="utf-8") as file:
            file.write(text)

    return change


def add(question):
    return append("search.train.json", json.dumps(question, ensure_ascii=False) + "\n")


BAD = {
    "broken JSON": (
        append("search.train.json", '{"question_id"\n'),
        {},
        "search.train.json:4: not valid JSON",
    ),
    "id again": (add(record(1, [])), {}, "search.train.json:4: question_id 1 again, first at "),
    "no documents": (
        add({"question_id": 9, "question": "?"}),
        {},
        "search.train.json:4: documents is null; a list of",
    ),
    "no paragraphs": (
        add({"question_id": 9, "question": "?", "documents": [{"title": "t"}]}),
        {},
        "search.train.json:4: a document has neither paragraphs nor segmented_paragraphs; one is needed",
    ),
    "answers": (add(record(9, []) | {"answers": "水"}), {}, "search.train.json:4: answers is "),
    "unit": (None, {"unit": "bytes"}, 'unit is "bytes"; allowed: characters, words'),
    "threshold": (None, {"threshold": 0}, "threshold is 0; allowed: > 0"),
    "length": (None, {"passage_characters": 0}, "passage_characters is 0; allowed: ≥ 1"),
    "file": (None, {"splits": {"train": ["no.json"]}}, "holds no no.json (plain or packed)"),
    "list": (None, {"splits": {"train": "a.json"}}, "splits.train is "),
    "splits": (None, {"splits": {}}, "splits: {}; at least one of train, dev, test"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(name, raw, make, tmp_path):
    change, params, message = BAD[name]
    if change:
        change(raw)
    with pytest.raises(UserError) as error:
        make("d", PARAMS | params, path=str(raw))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def released(real):
    """Released passages that can be put together from paragraphs at hand: text → (query, whether positive), and their
    paragraphs."""
    samples, demo = real("rocketqa-samples"), real("dureader-demo")
    labels = {}
    for name in ("dual", "cross"):
        for line in (samples / f"{name}.train.tsv").read_text(encoding="utf-8").split("\n")[:-1]:
            query, *columns = line.split("\t")
            labelled = (
                [(columns[1], 1), (columns[3], 0)]
                if name == "dual"
                else [(columns[1], int(columns[2]))]
            )
            for text, value in labelled:
                labels[text] = (query, value or labels.get(text, ("", 0))[1])
    corpus = [
        json.loads(line)
        for line in (demo / "corpus.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    ]
    documents = [
        [row["text"] for row in group] for _, group in groupby(corpus, key=lambda row: row["title"])
    ]
    parts = {
        "".join(together): together
        for document in documents
        for together in join_paragraphs(document, 256)
    }
    return {text: pair for text, pair in labels.items() if text in parts}, parts


def test_length_control_gives_released_passages(released):
    # The demo's corpus lacks the paragraphs of fewer than 10 characters and repeated ones, so most cannot be rebuilt.
    known, parts = released
    assert len(known) == 11
    assert sorted(len(parts[text]) for text in known) == [1, 3, 3, 3, 4, 4, 4, 4, 5, 6, 8]


def test_released_positives_reach_the_threshold_in_characters_not_in_words(released, real):
    known, parts = released
    demo = real("dureader-demo")
    answer_rows = [
        json.loads(line)
        for line in (demo / "answers.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    ]
    answers = {row["_id"]: row["answers"] for row in answer_rows}
    query_rows = [
        json.loads(line)
        for line in (demo / "queries.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    ]
    ids = {row["text"]: row["_id"] for row in query_rows}
    counts = Counter()
    for text, (query, value) in known.items():
        for unit in ("characters", "words"):
            rules = DuReader2(source="dureader2", unit=unit)
            cut = [split_tokens(answer, unit) for answer in answers[ids[query]]]
            counts[unit, value] += any(
                is_positive(paragraph, cut, rules) for paragraph in parts[text]
            )
    assert sum(label for _, label in known.values()) == 10
    assert counts["characters", 1] == 10
    assert counts["words", 1] == 6
    assert counts["characters", 0] == counts["words", 0] == 0
