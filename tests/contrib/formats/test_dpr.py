"""DPR's files: made by hand in each of their shapes, and the real questions of NQ and CuratedTREC."""

import csv
import gzip
import io
import json
import tracemalloc
import warnings
from pathlib import Path

import pytest

from tandem.contrib.formats.dpr import read_items, read_passages, read_questions
from tandem.data.collection import Collection
from tandem.errors import UserError

PASSAGES = (
    "id\ttext\ttitle\n"
    '1\t"Aaron ( or ; ""Ahärôn"") is a prophet"\tAaron\n'
    '2\t"""Eat It"" is a song by Al"\t"""Weird Al"" Yankovic"\n'
    '3\tplain, with a 12" vinyl inside\t\n'
    '4\t"quoted, with\u2028no end of line"\tTitle\n'
)
POOL = [
    {
        "question": "who was aaron",
        "answers": ["a prophet", "Moses' brother"],
        "positive_ctxs": [
            {"title": "Aaron", "text": "…", "score": 1000, "title_score": 1, "passage_id": "1"},
            {"title": "Aaron", "text": "…", "score": 12.5, "title_score": 0, "passage_id": "4"},
            {"title": "Aaron", "text": "…", "score": 11, "passage_id": "1"},
        ],
        "negative_ctxs": [{"title": "", "text": "…", "score": 3.25, "passage_id": "3"}],
        "hard_negative_ctxs": [
            {"title": "", "text": "…", "score": "7.5", "psg_id": 2},
            {"title": "", "text": "…", "passage_id": "4"},
            {"title": "", "text": "no id"},
        ],
    },
    {
        "question": "no positive?",
        "answers": [],
        "positive_ctxs": [],
        "negative_ctxs": [],
        "hard_negative_ctxs": [],
    },
]


def load_questions(folder: Path) -> list[tuple[str, str, list[str]]]:
    """(id, question, answers) of a collection without passages, in file order."""
    records = [
        {r["_id"]: r for r in map(json.loads, (folder / file).read_text().split("\n")[:-1])}
        for file in ("queries.jsonl", "answers.jsonl")
    ]
    return [(key, record["text"], records[1][key]["answers"]) for key, record in records[0].items()]


def qa_csv(rows: list[tuple[str, list[str]]]) -> str:
    """Questions and Python lists by tabs, quoted by Python's csv where it must be, as DPR's files are."""
    text = io.StringIO()
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(
        (q, repr(answers)) for q, answers in rows
    )
    return text.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four passages, a pool of two training questions, a file of two test questions."""
    root = tmp_path / "dpr"
    root.mkdir()
    (root / "psgs_w100.tsv").write_text(PASSAGES, encoding="utf-8")
    (root / "biencoder-train.json").write_text(json.dumps(POOL, indent=4))
    (root / "test.qa.csv").write_text(
        'what is ’eat it’\t[\'a song\', "Al\'s song"]\nwho "is" al\t"[\'""Weird Al""\']"\n'
    )
    return root


PARAMS = {"source": "dpr", "questions": {"train": "biencoder-train.json", "test": "test.qa.csv"}}


def test_a_pool_and_a_file_of_answers(folder, make):
    dataset = make("dpr", PARAMS, path=str(folder))
    collection = Collection(dataset)
    assert collection.texts("1234") == {
        "1": ("Aaron", 'Aaron ( or ; "Ahärôn") is a prophet'),
        # DPR strips the quotes at both ends of the text, whichever they are; titles keep theirs.
        "2": ('"Weird Al" Yankovic', 'Eat It" is a song by Al'),
        "3": ("", 'plain, with a 12" vinyl inside'),
        "4": ("Title", "quoted, with\u2028no end of line"),
    }
    assert collection.queries("train") == {"train-0": "who was aaron", "train-1": "no positive?"}
    assert collection.queries("test") == {"test-0": "what is ’eat it’", "test-1": 'who "is" al'}
    assert collection.qrels("train") == {"train-0": {"1": 2, "4": 1}}
    assert collection.answers("train") == {
        "train-0": ["a prophet", "Moses' brother"],
        "train-1": [],
    }
    assert collection.answers("test") == {
        "test-0": ["a song", "Al's song"],
        "test-1": ['"Weird Al"'],
    }
    assert dataset.manifest.facts["qrels"] == {"train": 2, "test": 0}
    assert dataset.manifest.facts["source"] == {"contexts_without_id": 1}


def test_a_pool_gives_training_lists_in_its_order(folder, make):
    listed = list(Collection(make("dpr", PARAMS, path=str(folder))).lists())
    assert listed == [("train-0", [("1", 1, None), ("4", 1, 12.5), ("2", 0, 7.5), ("3", 0, 3.25)])]


def test_packed_files_and_a_byte_order_mark_make_no_difference(folder, make):
    plain = make("plain", PARAMS, path=str(folder)).manifest.facts["checksum"]
    for name in ("psgs_w100.tsv", "biencoder-train.json", "test.qa.csv"):
        data = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(
            gzip.compress(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
        )
    assert make("packed", PARAMS, path=str(folder)).manifest.facts["checksum"] == plain


def test_real_questions_come_back_from_their_csv_form(tmp_path, make, real):
    rows = load_questions(real("qa-dpr-nq"))
    splits = {
        split: [(q, a) for key, q, a in rows if key.startswith(split)] for split in ("dev", "test")
    }
    for split, pairs in splits.items():
        (tmp_path / f"nq-{split}.qa.csv").write_text(qa_csv(pairs), encoding="utf-8")
    (tmp_path / "psgs_w100.tsv").write_text(PASSAGES, encoding="utf-8")
    params = {"source": "dpr", "questions": {split: f"nq-{split}.qa.csv" for split in splits}}
    dataset = make("nq", params, path=str(tmp_path))
    assert dataset.manifest.facts["queries"] == {"dev": 8757, "test": 3610}
    collection = Collection(dataset)
    for split in splits:
        assert list(collection.answers(split).items()) == [
            (key, a) for key, _, a in rows if key.startswith(split)
        ]
        assert list(collection.queries(split).items()) == [
            (key, q) for key, q, _ in rows if key.startswith(split)
        ]


def test_real_patterns_survive_with_and_without_doubled_backslashes(tmp_path, real):
    rows = load_questions(real("qa-dpr-curated"))
    assert len(rows) == 694
    path = tmp_path / "curated.qa.csv"
    path.write_text(qa_csv([(q, a) for _, q, a in rows]), encoding="utf-8")
    assert [question.answers for question in read_questions(path)] == [
        answers for _, _, answers in rows
    ]
    path.write_text("how tall\t['20\\s?,?\\s?320']\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [question.answers for question in read_questions(path)] == [["20\\s?,?\\s?320"]]


# a right first line, by reader
FIRST = {read_passages: "id\ttext\ttitle\n", read_questions: "good\t['a']\n"}
BAD_LINES = {
    "two columns": (
        read_passages,
        "1\ttext\n",
        "2 columns by tabs; a line is id, text, title: 3 columns",
    ),
    "an empty line": (read_passages, "\n2\tb\tc\n", "an empty line"),
    "a quote left open": (
        read_passages,
        '1\t"text\tTitle\n2\tb\t"c"\n',
        "a quoted column is not closed",
    ),
    "one left open at the end": (read_passages, '1\t"text\tTitle', "a quoted column is not closed"),
    "an end of a line beside quotes": (
        read_passages,
        '1\t"a"\rb\tTitle\n',
        "quote columns as csv does",
    ),
    "no literal": (
        read_questions,
        "q\tChina\n",
        "the answers 'China' are not a list; write ['first', 'second']",
    ),
    "a call": (read_questions, "q\t__import__('os').getcwd()\n", "are not a list"),
    "a number": (read_questions, "q\t[1995]\n", "answers is [1995]; a list of texts is needed"),
    "a bare text": (read_questions, "q\t'a'\n", "a list of texts is needed"),
    "half a pair": (read_questions, "q\t['\\ud800']\n", "answers holds half of a surrogate pair"),
    "no answers": (
        read_questions,
        "q\n",
        "1 columns by tabs; a line is question, list of answers: 2 columns",
    ),
    "deep": (read_questions, f"q\t{'[' * 9999}\n", "are not a list"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_wrong_line_is_named(tmp_path, name):
    read, text, message = BAD_LINES[name]
    path = tmp_path / "bad.tsv"
    path.write_text(FIRST[read] + text)
    with pytest.raises(UserError) as error:
        list(read(path))
    assert str(error.value).startswith(f"{path}:2: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


GOOD = b'[{"question": "q", "answers": []}, '
BAD_JSON = {
    "an object": (
        b'{"item": {}}',
        ": begins with b'{\"item\": {}}'; a JSON array of objects is needed",
    ),
    "empty": (b"", "begins with b''"),
    "lines of objects": (
        b'{"question": "q"}\n{"question": "r"}\n',
        "a JSON array of objects is needed",
    ),
    "an end too soon": (
        GOOD + b'{"question": "r"',
        ": item 2: not valid JSON (parse error: premature EOF)",
    ),
    "something after it": (
        GOOD[:-2] + b"] x",
        "item 2: not valid JSON (parse error: trailing garbage)",
    ),
    "a member that is no object": (GOOD + b"7]", ": item 2: a JSON int; an object is needed"),
    "no question": (GOOD + b"{}]", ": item 2: question is missing; a text is needed"),
    "a latin-1 byte": (
        GOOD + b'{"question": "\xe9"}]',
        "item 2: not valid JSON (lexical error: invalid bytes in UTF8",
    ),
    "nesting": (b"[" * 100_000, ": JSON nested deeper than 500 levels"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_a_wrong_pool_is_named(tmp_path, name):
    data, message = BAD_JSON[name]
    path = tmp_path / "pool.json"
    path.write_bytes(data)
    with pytest.raises(UserError) as error:
        list(read_questions(path))
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_truncated_pool_is_named(tmp_path):
    path = tmp_path / "pool.json.gz"
    packed = gzip.compress(
        json.dumps([{"question": str(i * 7919), "answers": []} for i in range(9999)]).encode()
    )
    path.write_bytes(packed[:-500])
    with pytest.raises(
        UserError, match="gzip file is truncated after item [0-9]{4}; fetch it again"
    ):
        list(read_questions(path))


BAD_CONTEXTS = {
    "no list": (
        {"positive_ctxs": {"a": 1}},
        'positive_ctxs is {"a": 1}; a list of objects is needed',
    ),
    "a text": (
        {"positive_ctxs": ["text"]},
        'positive_ctxs is ["text"]; a list of objects is needed',
    ),
    "an odd id": ({"positive_ctxs": [{"psg_id": 1.5}]}, "positive_ctxs names a passage 1.5"),
    "an odd score": (
        {"positive_ctxs": [{"psg_id": 1, "score": "high"}]},
        "a score of positive_ctxs is 'high'",
    ),
    "a score as Python writes it": (
        {"positive_ctxs": [{"psg_id": 1, "score": "1_0"}]},
        "a score of positive_ctxs is",
    ),
}


@pytest.mark.parametrize("name", BAD_CONTEXTS)
def test_a_wrong_list_of_a_pool_is_named(folder, make, name):
    contexts, message = BAD_CONTEXTS[name]
    (folder / "biencoder-train.json").write_text(
        json.dumps([*POOL, {"question": "q", "answers": [], **contexts}])
    )
    with pytest.raises(UserError) as error:
        make("bad", PARAMS, path=str(folder))
    assert str(error.value).startswith(f"{folder / 'biencoder-train.json'}: item 3: {message}")


def test_a_pool_that_names_no_passage_is_refused(folder, make):
    (folder / "biencoder-train.json").write_text(
        json.dumps([{"question": "q", "positive_ctxs": [{"text": "t"}]}])
    )
    with pytest.raises(UserError, match="no positive_ctxs has a passage_id or psg_id"):
        make("bad", PARAMS, path=str(folder))


def test_questions_must_name_files(folder, make):
    with pytest.raises(
        UserError, match="questions: None; at least one of train, dev, test with a file"
    ):
        make("none", {"source": "dpr"}, path=str(folder))
    with pytest.raises(UserError, match=r"holds no nq\.json \(plain or packed\)"):
        make("missing", {"source": "dpr", "questions": {"dev": "nq.json"}}, path=str(folder))


def test_a_pool_is_never_in_memory_as_a_whole(tmp_path):
    path = tmp_path / "pool.json"
    item = json.dumps(
        {
            "question": "q",
            "answers": [],
            "negative_ctxs": [{"text": "word " * 100, "psg_id": 1}] * 50,
        }
    )
    path.write_text("[" + ",".join([item] * 400) + "]")
    tracemalloc.start()
    assert sum(1 for _ in read_items(path)) == 400
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20 < path.stat().st_size
