"""Files as people have them: other formats, packed in any way, with comments, blank lines and leftovers beside them."""

import bz2
import gzip
import json
import lzma
import shutil
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from test_files_source import PASSAGE_ROWS, QUERY_ROWS, SAME, jsonl, read_all, separated
from tiny_project import ROOT, run_here

from tandem.cli import run
from tandem.contrib.formats.readers import read_head
from tandem.contrib.formats.roles import PASSAGES_ROLE, QRELS_ROLE, QUERIES_ROLE
from tandem.contrib.formats.trec import read_topics
from tandem.data.collection import Collection
from tandem.data.dataset import run_shard
from tandem.data.reading import iterate_lines, strip_packing
from tandem.errors import UserError
from tandem.extras.recognition import find_entry
from tandem.extras.records import count_lines, get_member_name
from tandem.plan.planner import Planners
from tandem.store.artifact import open_artifact
from tandem.store.job import Job

pytestmark = pytest.mark.usefixtures("data_folder")
JUDGED = [("q1", "d1", "1"), ("q2", "d2", "2")]
BEIR = {
    "corpus.jsonl": jsonl(PASSAGE_ROWS, "_id", "title", "text"),
    "queries.jsonl": jsonl(QUERY_ROWS, "_id", "text"),
    "qrels/test.tsv": separated(JUDGED),
}
OWN = {
    "corpus.tsv": separated(PASSAGE_ROWS),
    "queries.tsv": separated(QUERY_ROWS),
    "qrels.txt": separated([(query, "0", doc, grade) for query, doc, grade in JUDGED], " "),
}
TOPICS = """<top>
<num> Number: q1
<title> alpha?

<desc> Description:
Anything about it.
</top>

<top>
<num> Number: q2 <title> Topic: gamma?
<narr> Narrative: nothing else
</top>
"""
XML_TOPICS = """<?xml version="1.0" encoding="UTF-8"?>
<topics task="mine">
  <topic number="q1">
    <query>alpha?</query>
    <question>what is <i>alpha</i></question>
  </topic>
  <topic number="q2"><question>gamma?</question></topic>
</topics>
"""


def array(rows, *names):
    return json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=1)


# The same collection in each: file → content.
FORMATS = {
    "CSV": {
        "corpus.csv": 'id,title,text\nd1,One,alpha beta\nd2,,"gamma"\n',
        "queries.csv": "qid,query\nq1,alpha?\nq2,gamma?\n",
        "qrels.csv": "query_id,doc_id,relevance\nq1,d1,1\nq2,d2,2\n",
    },
    "CSV with semicolons, an index and no headers": {
        "corpus.csv": ";id;title;text\n0;d1;One;alpha beta\n1;d2;;gamma\n",
        "queries.csv": "q1,alpha?\nq2,gamma?\n",
        "qrels.csv": "q1,d1,1\nq2,d2,2\n\n",
    },
    "JSON arrays": {
        "corpus.json": array(PASSAGE_ROWS, "id", "title", "text"),
        "queries.json": array(QUERY_ROWS, "id", "text"),
        "qrels.json": array([("q1", "d1", 1), ("q2", "d2", 2)], "query_id", "doc_id", "score"),
    },
    "lines of JSON in .json and .ndjson": {
        "corpus.json": jsonl(PASSAGE_ROWS, "id", "title", "text"),
        "queries.ndjson": jsonl(QUERY_ROWS, "id", "text"),
        "qrels.txt": OWN["qrels.txt"],
    },
    "Anserini's contents, by BEIR's names": BEIR | {
        "corpus.jsonl": jsonl(PASSAGE_ROWS, "id", "title", "contents"),
        "queries.jsonl": jsonl(QUERY_ROWS, "id", "text"),
    },
    "Anserini's folder": {
        "collection_jsonl/docs00.json": jsonl(PASSAGE_ROWS[:1], "id", "title", "contents"),
        "collection_jsonl/docs01.json": jsonl(PASSAGE_ROWS[1:], "id", "title", "contents"),
        "topics.tsv": OWN["queries.tsv"],
        "qrels.txt": OWN["qrels.txt"],
    },
    "a marked header": OWN | {"qrels.tsv": "#query-id\tcorpus-id\tscore\n" + separated(JUDGED), "qrels.txt": None},
    "a marked header of words": OWN | {"qrels.txt": "# judged in 2024\n# qid 0 docno rel\n" + OWN["qrels.txt"]},
    "BEIR's header, marked": BEIR | {"qrels/test.tsv": "#query-id\tcorpus-id\tscore\n" + separated(JUDGED)},
    "blank lines at the end": OWN | {name: text + "\n \r\n\n" for name, text in OWN.items()},
    "blank lines at the end of JSON": BEIR | {name: text + "\n\n" for name, text in BEIR.items()},
    "what editors leave": BEIR | {
        "qrels/test.tsv.bak": "x", "qrels/test.tsv~": "x", "qrels/.DS_Store": "x", "qrels/#test.tsv#": "x",
    },
    "what editors leave beside files": OWN | {"qrels.txt.bak": "x", "corpus.tsv~": "x", ".corpus.tsv.swp": "x"},
    "TREC's topics": OWN | {"queries.tsv": None, "topics.401-450": TOPICS},
    "TREC's topics in text": OWN | {"queries.tsv": None, "topics.txt": TOPICS},
    "TREC's topics in XML": OWN | {"queries.tsv": None, "topics.xml": XML_TOPICS},
}  # fmt: skip


def by_arrow(name):
    return lambda data: pa.Codec(name).compress(data, asbytes=True)


def zipped(data, name="one.txt"):
    path = Path("one.zip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)
        archive.writestr("__MACOSX/._one.txt", "x")
    packed = path.read_bytes()
    path.unlink()
    return packed


PACKINGS = {
    ".gz": gzip.compress,
    ".zst": by_arrow("zstd"),
    ".lz4": by_arrow("lz4"),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": zipped,
}


@pytest.fixture
def put(tmp_path, monkeypatch):
    """`put(files)`: the folder `data`, with these files, below the working folder."""
    monkeypatch.chdir(tmp_path)

    def write(files):
        for name, content in files.items():
            if content is not None:
                path = Path("data", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return "data"

    return write


@pytest.fixture
def read(make):
    """`read(place)`: the collection that `tandem init` recognises in a folder or archive."""

    def build(place):
        entry, path = find_entry([str(place)])
        return Collection(make("mine", entry, path=path))

    return build


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_collection(name, put, read):
    collection = read(put(FORMATS[name]))
    assert read_all(collection) == SAME
    assert collection.artifact.manifest.facts["warnings"] == []


@pytest.mark.parametrize("files", [BEIR, OWN], ids=["beir", "files"])
@pytest.mark.parametrize("end", PACKINGS)
def test_every_packing_gives_the_same_collection(end, files, put, read):
    put({})
    folder = put({name + end: PACKINGS[end](text.encode()) for name, text in files.items()})
    assert read_all(read(folder)) == SAME


def test_a_zip_of_one_file_is_what_that_is(put, read):
    folder = put({
        "corpus.zip": zipped(BEIR["corpus.jsonl"], "mine/corpus.jsonl"),
        "queries.zip": zipped(OWN["queries.tsv"], "q.tsv"),
        "qrels.zip": zipped(OWN["qrels.txt"], "x.txt"),
    })  # fmt: skip
    assert get_member_name(Path("data/corpus.zip")) == "corpus.jsonl"
    assert read_all(read(folder)) == SAME


def test_names_of_packed_files():
    names = {
        "a.tsv.gz": "a.tsv",
        "a.jsonl.zst": "a.jsonl",
        "qrels.gz": "qrels",
        "a.tsv.zip": "a.tsv",
        "a.zip": "a.zip",
    }
    assert {name: strip_packing(name) for name in names} == names


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_of_all_files_is_read_by_the_commands(kind, put, configured):
    folder = Path(
        put({f"mine/{name}": text for name, text in BEIR.items()} | {"mine/.DS_Store": "x"})
    )
    archive = Path(shutil.make_archive("mine", kind if kind == "zip" else "gztar", folder))
    shutil.rmtree(folder)
    run(["init", "config1", "--data", str(archive)])
    entry = yaml.safe_load(Path("config1.yaml").read_text())["datasets"]["config1"]
    assert (entry["source"], entry["path"]) == ("beir", str(archive))
    plan = Planners(configured("datasets.mine", entry), ROOT).base
    stage = plan.dataset("mine")
    words = [
        "--params.source",
        "beir",
        "--run.path",
        str(archive),
        "--out",
        "out/dataset/mine-0/stage.json",
    ]
    assert run_here([sys.executable, "-m", "tandem", "dataset", *words])[0] == 0
    assert read_all(Collection(open_artifact(Path("out/dataset/mine-0")))) == SAME
    archive.write_bytes(archive.read_bytes() + b"\0")
    assert Planners(configured("datasets.mine", entry), ROOT).base.dataset("mine").key != stage.key


def test_leftovers_are_named_and_change_no_key(put, read, configured, capsys):
    folder = put(BEIR)
    config = configured("datasets.mine", {"source": "beir", "path": folder})
    before = Planners(config, ROOT).base.dataset("mine").key
    put({"qrels/test.tsv.bak": "x", "qrels/.DS_Store": "x"})
    assert Planners(config, ROOT).base.dataset("mine").key == before
    read(folder)
    assert (
        "ignored, as what editors and systems leave: .DS_Store, test.tsv.bak\n"
        in capsys.readouterr().err
    )
    put({"qrels/notes.md": "x"})
    with pytest.raises(UserError, match=r"qrels/notes\.md: a split's judgements are <split>\.tsv"):
        read(folder)


def test_a_packed_copy_that_is_not_read_is_named(put, read, capsys):
    folder = put(BEIR)
    for copy in ("corpus.jsonl.gz", "corpus.jsonl.xz"):
        Path(folder, copy).write_bytes(b"not what its name says")
    assert read_all(read(folder)) == SAME
    lines = [line for line in capsys.readouterr().err.splitlines() if " is ignored: " in line]
    assert lines == [
        f"{folder}/corpus.jsonl.gz is ignored: corpus.jsonl is read",
        f"{folder}/corpus.jsonl.xz is ignored: corpus.jsonl is read",
    ]


def test_blank_lines_at_the_end_are_no_records_of_a_shard(put, tmp_path, make):
    folder = put(BEIR | {"corpus.jsonl": BEIR["corpus.jsonl"] + "\n" * 3})
    path = Path(folder, "corpus.jsonl")
    assert (count_lines(path), len(list(iterate_lines(path)))) == (2, 5)
    job = Job(
        "dataset",
        tmp_path / "results/mine",
        {"source": "beir"},
        {},
        {"path": folder, "shard": 0, "shards": 2},
    )
    assert run_shard(job) == {"parts": []}


@pytest.mark.parametrize("end", PACKINGS)
def test_a_packed_file_that_is_cut_is_one_line(end, put, tmp_path):
    put({})
    data = PACKINGS[end]("".join(f"{number}\tsome text\n" for number in range(5000)).encode())
    put({f"c.tsv{end}": data[:-20] if end != ".zip" else data[:-400]})
    with pytest.raises(
        UserError, match=r"data/c\.tsv\.\w+: \w+ file is truncated.*; fetch it again"
    ) as error:
        list(iterate_lines(Path(f"data/c.tsv{end}")))
    assert "\n" not in str(error.value)


def test_comments_and_ids_that_begin_with_a_hash(put):
    put({})
    for text, expected in {
        "#1 0 d1 1\n": (None, 0),  # a query may be called so
        "# 1 0 d1 1\nq1 0 d1 1\n": (None, 1),
        "# by hand\n# twice\nq1 0 d1 1\n": (None, 2),
        "#qid\tdocid\nq1\td1\n": (("query", "document"), 1),
        "qid iter docno rel\nq1 0 d1 1\n": (("query", "-", "document", "relevance"), 1),
    }.items():
        Path("q.txt").write_text(text)
        top = read_head(Path("q.txt"), QRELS_ROLE)
        assert (top.columns, top.lines) == expected
    Path("c.tsv").write_text("#id\ttext\n")
    assert read_head(Path("c.tsv"), PASSAGES_ROLE).columns == ("id", "text")
    Path("c.tsv").write_text("#1\ttext of it\n")
    assert read_head(Path("c.tsv"), PASSAGES_ROLE).lines == 0
    Path("q.txt").write_text("#qid\tdocid\tgrade\n")
    with pytest.raises(UserError, match=r"q\.txt:1: no relevance; a field named"):
        read_head(Path("q.txt"), QRELS_ROLE)


BROKEN = {
    "columns of a CSV": (
        {"corpus.csv": "id,text\nd1,one\nd2,two,three\n"},
        "data/corpus.csv:3: 3 columns by commas; the header names 2",
    ),
    "columns of a CSV without a header": (
        {"corpus.csv": "d1\n"},
        "data/corpus.csv:1: 1 columns by commas; without a header they are 2 or 3",
    ),
    "a CSV's open quotes": (
        {"corpus.csv": 'id,text\nd1,"one\nd2,two\n'},
        "data/corpus.csv:2: no valid CSV, unexpected end of data; a text with commas",
    ),
    "a blank line in a CSV": (
        {"corpus.csv": "id,text\n\nd1,one\n"},
        "data/corpus.csv:2: an empty line",
    ),
    "a JSON array's end": (
        {"corpus.json": '[{"id": "d1", "text": "x"}'},
        "data/corpus.json: item 2: not valid JSON",
    ),
    "a topic without a number": (
        {"topics.txt": "<top>\n<title> x\n</top>\n", "queries.tsv": None},
        "data/topics.txt:1: topic without <num>; give it one",
    ),
    "a topic that does not end": (
        {"topics.txt": "<top>\n<num> 1\n", "queries.tsv": None},
        "data/topics.txt:1: no </top> up to the end of the file; end the topic",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_one_line(name, put, read):
    files, message = BROKEN[name]
    corpus = {"corpus.tsv": None} if any("corpus" in file for file in files) else {}
    with pytest.raises(UserError) as error:
        read(put(OWN | corpus | files))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_topics_may_count_from_nought(tmp_path):
    path = tmp_path / "topics.trec"
    topic = "<top>\n<num> Number: {}\n<title> otters\n</top>\n"
    path.write_text("".join(map(topic.format, ("000", "0", "01"))))
    assert [record["id"] for _, record in read_topics(path, QUERIES_ROLE)] == ["0", "0", "1"]
