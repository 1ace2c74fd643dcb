"""Every mistake in every file format: its exit status, and the words that the last line must hold.

docs/formats.md shows the matrix as a table.
"""

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from file_formats import FORMATS, LONG, Edit, Format, edit, replace

from tandem.data.collection import Collection
from tandem.errors import UserError

# What becomes of a mistake: exit status 1, with these words in the last line (R); a warning (C); no mistake, so the
# collection holds this value (K); no difference (=); it cannot occur (–).
Outcome = tuple[str, str]


def refused(words: str) -> Outcome:
    return "R", words


def counted(warnings: str) -> Outcome:
    return "C", warnings


def accepted(value: str) -> Outcome:
    return "K", value


SAME, ABSENT = ("=", ""), ("–", "")
JSON_LINE = refused("{corpus}:{last}: not valid JSON")
POOL = refused("item 2: not valid JSON (parse error: premature EOF); mend it or fetch it again")
PARQUET = refused("{corpus}: no readable Parquet after row 0")
UNKNOWN = "1 judgements name documents that the corpus lacks and are kept: no run can find them"
LISTS = "1 rows of training lists name documents or queries that are not kept and were dropped"
NO_QRELS = refused("qrels: empty; a dataset needs judgements of at least one split, or answers")
# ids are made from texts
OWN_IDS = {"rocketqa_tsv": ABSENT, "dureader2": ABSENT, "training_lists": ABSENT}

# Mistake → outcome in most formats (*), and in those that differ. {corpus} is the file with the passages, {place} its
# name in errors, {lines} the number of lines that it had, {last} that it has.
MATRIX: dict[str, dict[str, Outcome]] = {
    "truncated gzip": {
        "*": refused("{corpus}.gz: gzip file is truncated after line {lines}; fetch it again"),
        "files: .parquet": PARQUET, "files: .json": refused("{corpus}.gz: gzip file is truncated after item "),
    },
    "broken JSON": {
        "*": ABSENT, "beir": JSON_LINE, "files: .jsonl": JSON_LINE, "dureader2": JSON_LINE, "dpr": POOL,
        "files: .json": refused("{corpus}: item 3: not valid JSON"), "training_lists": JSON_LINE,
        "lotte": refused("qas.search.jsonl:2: not valid JSON"), "kilt": refused("q-kilt.jsonl:2: not valid JSON"),
        "entity_questions": POOL, "dureader_retrieval": refused("dev/dev.json:2: not valid JSON"),
        "squad": refused("{corpus}: Invalid JSON: EOF while parsing an object at line {last} column 1"),
    },
    "wrong column count": {
        "*": refused("{corpus}:{last}: 1 columns by tabs; a line is"),
        "beir": refused("qrels/test.tsv:3: 2 columns by tabs; the header names 3"),
        "files: .jsonl": refused("t.txt:2: 3 columns by white space; a line is query id, 0, document id, relevance"),
        "files: .csv": refused("{corpus}:{last}: 1 columns by commas; the header names 2"),
        "files: .json": refused("t.txt:2: 3 columns by white space; a line is query id, 0, document id, relevance"),
        "files: .trec": refused("t.txt:2: 5 columns by tabs; a line is query id, 0, document id, relevance"),
        "training_lists": refused("{corpus}:{last}: no pos; a field named pos or"),
        "files: .parquet": refused("{corpus}: no text; a field named text or contents or content or body"),
        "squad": ABSENT,
        "cmedqa2": refused("{corpus}:4: 2 columns by commas; the header names 3"),
        "rocketqa_tsv": refused("{corpus}:3: 2 columns by tabs; a line is query, title, text, label: 4 columns"),
        "dureader_retrieval": refused("{corpus}:3: 2 columns by tabs; a line is the text, or -, title or -, text, 0"),
        "deb822": refused("{corpus}:{last}: no field; a line of deb822 is `Name: value`"),
        "kilt": refused("{corpus}:{last}: text is null; a list of texts is needed"),
        "dureader2": ABSENT,
    },
    "duplicate id": OWN_IDS | {
        "*": refused("{place}:3: document id 'd1' again, first at 1; every id must be unique"),
        "deb822": SAME,
    },
    "unknown id in qrels": OWN_IDS | {
        "*": counted(UNKNOWN), "squad": ABSENT, "entity_questions": ABSENT, "deb822": ABSENT,
        "dpr": counted(f"{UNKNOWN}\n{LISTS}"),
    },
    "empty passage": {"*": counted("1 passages hold no text"), "dureader2": SAME, "deb822": SAME},
    "not UTF-8": {
        "*": refused("{corpus}:{last}: not UTF-8, invalid continuation byte at byte"),
        "files: .parquet": refused("{corpus}: not UTF-8 after row 0, unexpected end of data; write its texts as UTF-8"),
        "squad": refused("{corpus}:"), "files: .json": refused("{corpus}: item 3: not valid JSON"),
    },
    "Windows newlines": {"*": SAME, "files: .parquet": ABSENT},
    "byte-order mark": {"*": SAME, "files: .parquet": ABSENT},
    "id with a space": OWN_IDS | {
        "*": refused("{place}:3: document id 'd 9'; an id must not be empty or hold"),
        "deb822": refused("{corpus}:9: package 'd 9'; a name without white space is needed"),
    },
    "id with a slash": OWN_IDS | {"*": accepted("a/d9")},
    "50 MB line": {
        "*": refused("{corpus}:{last}: longer than 32 MiB; split it or mend its line ends"),
        "files: .parquet": accepted("x" * LONG), "files: .json": refused("{corpus}: an item longer than 32 MiB"),
        "squad": SAME,
    },
    "invalid pattern": {
        "*": accepted("(open"), "cmedqa2": ABSENT, "rocketqa_tsv": ABSENT, "dureader_retrieval": ABSENT,
        "deb822": ABSENT, "lotte": ABSENT, "training_lists": ABSENT,
    },
    "empty file": {
        "*": refused("{place}: the corpus is empty; at least one passage is needed"),
        "files: .parquet": PARQUET, "training_lists": NO_QRELS,
        "squad": refused("{corpus}: Invalid JSON: EOF while parsing a value at line 1 column 0"),
        "cmedqa2": refused("{corpus}:1: no column ans_id; the header must name ans_id, content"),
        "rocketqa_tsv": NO_QRELS,
        "dureader_retrieval": refused("map.json: names 2 lines, but the 1 parts beside it have 0; fetch"),
        "deb822": refused("no package of the lists has a description"),
        "dureader2": NO_QRELS,
    },
    "blank line": {
        "*": refused("{corpus}:2: an empty line"), "files: .trec": SAME, "files: .parquet": ABSENT, "squad": SAME,
        "files: .json": SAME, "training_lists": refused("{corpus}:2: not valid JSON"),
        "beir": refused("{corpus}:2: not valid JSON"), "files: .jsonl": refused("{corpus}:2: not valid JSON"),
        "dureader2": refused("{corpus}:2: not valid JSON"), "kilt": refused("{corpus}:2: not valid JSON"),
        "dureader_retrieval": refused("map.json: names 2 lines, but the 1 parts beside it have 3; fetch"),
        "deb822": refused("{corpus}:3: a record without package"),
    },
    "blank lines at the end": {
        "*": SAME, "files: .parquet": ABSENT,
        "dureader_retrieval": refused("map.json: names 2 lines, but the 1 parts beside it have 4; fetch"),
    },
}  # fmt: skip
CASES = {
    (name, mistake): row.get(name, row["*"]) for mistake, row in MATRIX.items() for name in FORMATS
}


def truncated(form: Format, folder: Path) -> None:
    """The corpus as gzip without its last 8 bytes."""
    path = folder / form.corpus
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes())[:-8])
    path.unlink()


def latin(form: Format, folder: Path) -> None:
    """A passage in ISO 8859-1."""
    form.add_passage(folder, "d9", "café au lait")
    edit(folder, form.corpus, lambda data: data.replace("é".encode(), b"\xe9"))


def passage(doc: str, text: str = "delta") -> Callable[[Format, Path], None]:
    return lambda form, folder: form.add_passage(folder, doc, text)


def corpus(change: Edit) -> Callable[[Format, Path], None]:
    return lambda form, folder: edit(folder, form.corpus, change)


MISTAKES = {
    "truncated gzip": truncated,
    "duplicate id": passage("d1", "again"),
    "empty passage": passage("d9", ""),
    "not UTF-8": latin,
    "Windows newlines": corpus(lambda data: data.replace(b"\n", b"\r\n")),
    "byte-order mark": corpus(lambda data: b"\xef\xbb\xbf" + data),
    "id with a space": passage("d 9"),
    "id with a slash": passage("a/d9"),
    "50 MB line": passage("d9", "x" * LONG),
    "empty file": corpus(replace("")),
    "blank line": corpus(lambda data: data.replace(b"\n", b"\n\n", 1)),
    "blank lines at the end": corpus(lambda data: data + b"\n \r\n"),
}


@pytest.mark.parametrize(
    ("name", "mistake"), [case for case, outcome in CASES.items() if outcome is not ABSENT]
)
def test_a_mistake(name, mistake, make, tmp_path, capsys):
    form, (sign, words), folder = FORMATS[name], CASES[name, mistake], tmp_path / "in"
    for file, content in form.files.items():
        edit(folder, file, replace(content))
    path = folder / form.corpus
    lines = path.read_bytes().count(b"\n")
    clean = make("clean", form.params, path=str(folder)).manifest if sign == "=" else None
    if mistake in form.mistakes:
        edit(folder, *form.mistakes[mistake])
    else:
        MISTAKES[mistake](form, folder)
    if sign == "R":
        with pytest.raises(UserError) as error:
            make("spoilt", form.params, path=str(folder))
        last = path.read_bytes().rstrip(b"\n").count(b"\n") + 1 if path.is_file() else 0
        place = (
            f"{folder}/passage-collection/part-*"
            if name == "dureader_retrieval"
            else f"{path}{form.place}"
        )
        assert words.format(corpus=path, place=place, lines=lines, last=last) in str(error.value)
        assert "\n" not in str(error.value)
        assert not [file for file in (tmp_path / "results").rglob("*") if file.is_file()]
        return
    artifact = make("spoilt", form.params, path=str(folder))
    assert artifact.manifest.facts["warnings"] == (words.split("\n") if sign == "C" else [])
    assert capsys.readouterr().err.count("warning") == len(artifact.manifest.facts["warnings"])
    if clean:
        assert artifact.manifest.facts["checksum"] == clean.facts["checksum"]
    if sign == "K":
        assert words in held(Collection(artifact))


def held(collection: Collection) -> set[str]:
    """Ids, texts and answers of a collection."""
    passages = pq.read_table(collection.artifact.path("corpus.parquet"))
    values = {*passages["doc_id"].to_pylist(), *passages["text"].to_pylist()}
    if "answers.parquet" in collection.artifact.manifest.files:
        table = pq.read_table(collection.artifact.path("answers.parquet"))
        values.update(answer for answers in table["answers"].to_pylist() for answer in answers)
    return values


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"_id": "late", "text": "cut o', "corpus.jsonl:17501: not valid JSON"),
        (b'{"_id": "late", "text": "caf\xe9"}', "corpus.jsonl:17501: not UTF-8"),
        (b'{"_id": "late"}', "corpus.jsonl:17501: no text; a field named text"),
        (
            b'{"_id": "p41", "text": "again"}',
            "corpus.jsonl:17501: document id 'p41' again, first at 42",
        ),
    ],
)
def test_one_bad_line_of_20_000_is_named_and_nothing_is_left(beir, make, tmp_path, line, words):
    # Passages are read and written in batches of 16,384: the first is in the file when the line is reached.
    lines = [b'{"_id": "p%d", "text": "passage %d"}' % (number, number) for number in range(20_000)]
    lines[17_500] = line
    (beir / "corpus.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(UserError) as error:
        make("spoilt", {"source": "beir", "unknown_documents": "drop"}, path=str(beir))
    assert words in str(error.value)
    assert not [file for file in (tmp_path / "results").rglob("*") if file.is_file()]
