"""`tandem init` names the columns that it reads of files of one's own, and those that it does not."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tandem.cli import run

TITLE = "no column is the title (allowed: title)"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A working folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_lines(path: str, *lines: str) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("".join(f"{line}\n" for line in lines))


def write_records(path: str, *records: dict) -> None:
    write_lines(path, *map(json.dumps, records))


def list_column_lines(capsys, *words: str) -> list[str]:
    """Write a configuration, and return what is printed of columns and what mine.yaml has of those not read."""
    assert run(["init", "mine", "--data", *words]) == 0
    printed = capsys.readouterr().out.splitlines()
    text = Path("mine.yaml").read_text()
    assert yaml.safe_load(text)["dataset"] == "mine"
    lines = [line for line in printed if line.startswith("columns of ")]
    return lines + [line.strip() for line in text.splitlines() if "# not read" in line]


def test_a_title_that_is_called_a_headline_is_named(here, capsys):
    write_lines("d/corpus.csv", "DocID,headline,text", "d1,Otters,The otter eats crabs.")
    write_lines("d/queries.tsv", "qid\tquestion\tlang", "q1\twhat does the otter eat\ten")
    write_lines("d/qrels.tsv", "q1\td1\t1")
    assert list_column_lines(capsys, "d") == [
        f"columns of corpus.csv: DocID as id, text; not read: headline; {TITLE}",
        "columns of queries.tsv: qid as id, question as text; not read: lang",
        f"# not read of corpus.csv: headline; {TITLE}",
        "# not read of queries.tsv: lang",
    ]


def test_keys_of_json_are_named_that_hold_something(here, capsys):
    write_records(
        "d/corpus.jsonl",
        {"_id": "d1", "title": "Otters", "text": "The otter eats crabs.", "metadata": {}},
        {"_id": "d2", "title": "", "text": "The heron eats frogs.", "metadata": {"year": 1999}},
        {"_id": "d3", "title": "", "text": "The bat eats moths.", "old": None},
    )
    write_records("d/queries.jsonl", {"_id": "q1", "text": "what does the otter eat"})
    for split in ("dev", "test"):
        write_lines(f"d/qrels/{split}.tsv", "query-id\tcorpus-id\tscore", "q1\td1\t1")
    assert list_column_lines(capsys, "d") == [
        "columns of corpus.jsonl: _id as id, title, text; not read: metadata",
        "columns of queries.jsonl: _id as id, text",
        "columns of dev.tsv, test.tsv: query-id as query, corpus-id as document, score as relevance",
        "# not read of corpus.jsonl: metadata",
    ]


def test_a_header_may_be_marked(here, capsys):
    write_lines("corpus.tsv", "# id\ttext\tyear", "d1\tThe otter eats crabs.\t1999")
    write_lines("queries.tsv", "q1\twhat does the otter eat")
    write_lines("qrels.txt", "## qid iter docid rel", "q1 0 d1 1")
    assert list_column_lines(capsys, "corpus.tsv", "queries.tsv", "qrels.txt") == [
        "columns of corpus.tsv: id, text; not read: year; no column is the title (allowed: title)",
        "columns of qrels.txt: qid as query, docid as document, rel as relevance; not read: iter",
        "# not read of corpus.tsv: year; no column is the title (allowed: title)",
        "# not read of qrels.txt: iter",
    ]


def test_files_without_names_of_columns_have_no_line(here, capsys):
    write_lines("corpus.tsv", "d1\tThe otter eats crabs.")
    write_lines("queries.tsv", "q1\twhat does the otter eat")
    write_lines("qrels.txt", "q1 0 d1 1")
    assert list_column_lines(capsys, "corpus.tsv", "queries.tsv", "qrels.txt") == []


def test_parquet_semicolons_and_names_that_cannot_be_printed(here, capsys):
    (here / "d").mkdir()
    rows = {"id": ["d1"], "head\nline": ["Otters"], "text": ["The otter eats crabs."]}
    pq.write_table(pa.table(rows), "d/corpus.parquet")
    write_lines("d/queries.csv", "qid;query;lang", "q1;what does the otter eat;en")
    write_lines("d/qrels.txt", "q1 0 d1 1")
    assert list_column_lines(capsys, "d")[:2] == [
        rf'columns of corpus.parquet: id, text; not read: "head\nline"; {TITLE}',
        "columns of queries.csv: qid as id, query as text; not read: lang",
    ]


def test_keys_of_training_lists_are_named(here, capsys):
    lists = [
        {"query": f"what eats {food}", "pos": [f"It eats {food}."], "neg": ["No."], "prompt": "Q: "}
        for food in ("crabs", "frogs", "moths", "hares", "worms", "mice", "krill", "voles")
    ]
    write_records("d/train.jsonl", *lists)
    assert list_column_lines(capsys, "d") == [
        "columns of train.jsonl: query, pos, neg; not read: prompt",
        "# not read of train.jsonl: prompt",
    ]
