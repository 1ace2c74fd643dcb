"""Jobs that share reading a corpus: any number of them, one or none gives the same bytes, whatever the files are."""

import gzip
import json
import random
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.data import tables
from tandem.data.dataset import run, run_shard
from tandem.data.reading import iterate_lines
from tandem.data.sources import open_source
from tandem.errors import UserError
from tandem.extras.records import count_lines
from tandem.plan.graph import Stage
from tandem.stages import KINDS
from tandem.store.job import Job

WORDS = [
    "amber",
    "birch",
    "clove",
    "dünn",
    "élan",
    "e\u0301lan",
    "flow",
    '"quoted"',
    "back\\slash",
    "语言",
]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of eight passages, in batches of four."""
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 4)
    monkeypatch.setitem(
        KINDS, "dataset", replace(KINDS["dataset"], part=replace(KINDS["dataset"].part, rows=8))
    )


def passages(count):
    draw = random.Random(count)
    titles = ["" if number % 3 else draw.choice(WORDS) for number in range(count)]
    return [
        (f"d{number}", title, " ".join(draw.choices(WORDS, k=5)))
        for number, title in enumerate(titles)
    ]


def json_lines(rows):
    return "".join(
        json.dumps(dict(zip(("_id", "title", "text"), row, strict=True))) + "\n" for row in rows
    ).encode()


def separated(rows, *header):
    return "".join("\t".join(row) + "\n" for row in [*([header] if header else []), *rows]).encode()


def write_parquet(path, rows):
    columns = zip(*rows, strict=True)
    pq.write_table(
        pa.table(dict(zip(("id", "title", "text"), columns, strict=True))), path, row_group_size=5
    )


@pytest.fixture
def written(tmp_path):
    """`written(name, rows)`: the parameters of a dataset whose passages stand in files of a form."""
    (tmp_path / "queries.tsv").write_text("q1\tamber?\nq2\tbirch?\n")
    (tmp_path / "qrels.tsv").write_text("q1\td1\t1\nq2\td9\t1\n")
    own = {"source": "files", "queries": {"test": "queries.tsv"}, "qrels": {"test": "qrels.tsv"}}

    def write(form, rows):
        if form == "beir":
            (tmp_path / "qrels").mkdir()
            (tmp_path / "qrels/test.tsv").write_text("q1\td1\t1\n")
            (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "amber?"}')
            # the last line without its end
            (tmp_path / "corpus.jsonl").write_bytes(json_lines(rows).rstrip(b"\n"))
            return {"source": "beir"}
        if form == "dpr":
            (tmp_path / "psgs.tsv").write_bytes(
                separated([(doc, text, title) for doc, title, text in rows], "id", "text", "title")
            )
            (tmp_path / "nq.qa.csv").write_text("amber?\t['amber']\n")
            return {"source": "dpr", "corpus": "psgs.tsv", "questions": {"test": "nq.qa.csv"}}
        if form == "parquet":
            write_parquet(tmp_path / "c.parquet", rows)
        elif form == "headed":
            (tmp_path / "c.tsv").write_bytes(separated(rows, "id", "title", "text"))
        else:  # several packed files
            for number, first in enumerate(range(0, len(rows), 13)):
                part = json_lines(rows[first : first + 13])
                (tmp_path / f"c{number}.jsonl.gz").write_bytes(gzip.compress(part))
        return own | {
            "corpus": {"parquet": "c.parquet", "headed": "c.tsv", "packed": "c*.jsonl.gz"}[form]
        }

    return write


def files(out):
    """The bytes of an artifact's files, and what its manifest says of the collection."""
    manifest = json.loads((out / "stage.json").read_text())
    assert sorted(path.name for path in out.iterdir()) == sorted([*manifest["files"], "stage.json"])
    return manifest["facts"], {name: (out / name).read_bytes() for name in manifest["files"]}


@pytest.mark.parametrize("form", ["beir", "dpr", "parquet", "headed", "packed"])
@pytest.mark.parametrize("count", [37, 32, 3])
def test_shards_change_no_byte(form, count, written, tmp_path):
    params, path = written(form, passages(count)) | {"normalize": "nfc"}, {"path": str(tmp_path)}
    run(Job("dataset", tmp_path / "alone", params, {}, path))
    assert files(tmp_path / "alone")[0]["not_nfc"]["passages"] > 0
    for shards in (1, 2, 3, 7):
        out = tmp_path / f"by{shards}"
        parts = [
            run_shard(Job("dataset", out, params, {}, path | {"shard": i, "shards": shards}))
            for i in range(shards)
        ]
        assert [number for facts in parts for number in facts["parts"]] == [*range(-(-count // 8))]
        run(Job("dataset", out, params, {}, path))
        assert files(out) == files(tmp_path / "alone")


@pytest.mark.parametrize("text", ["", "one", "one\n", "\none\r\n\ntwo", "\ufeffone\ntwo\n"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lines_are_counted_and_passed_over(text, pack, tmp_path):
    (tmp_path / "file").write_bytes(pack(text.encode()))
    every = list(iterate_lines(tmp_path / "file"))
    assert count_lines(tmp_path / "file") == len(every)
    for skipped in range(len(every) + 2):
        assert list(iterate_lines(tmp_path / "file", skipped=skipped)) == every[skipped:]


def test_titles_that_are_left_out_count_in_the_checksum_alone(written, tmp_path):
    params, path = written("headed", passages(37)) | {"title": False}, {"path": str(tmp_path)}
    run(Job("dataset", tmp_path / "alone", params, {}, path))
    run_shard(Job("dataset", tmp_path / "shared", params, {}, path | {"shard": 0, "shards": 1}))
    run(Job("dataset", tmp_path / "shared", params, {}, path))
    assert files(tmp_path / "shared") == files(tmp_path / "alone")


def test_what_is_missing_or_damaged_the_stage_reads_itself(written, tmp_path):
    params, path, out = (
        written("packed", passages(37)),
        {"path": str(tmp_path)},
        tmp_path / "shared",
    )
    run(Job("dataset", tmp_path / "alone", params, {}, path))
    run_shard(Job("dataset", out, params, {}, path | {"shard": 0, "shards": 1}))
    (out / "work/00001.arrow").unlink()
    damaged = out / "work/00003.arrow"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    run(Job("dataset", out, params, {}, path))
    assert files(out) == files(tmp_path / "alone")


def test_a_killed_shard_goes_on_from_its_finished_parts(written, tmp_path):
    params, path, out = written("beir", passages(37)), {"path": str(tmp_path)}, tmp_path / "shared"
    job = Job("dataset", out, params, {}, path | {"shard": 0, "shards": 1})
    run_shard(job)
    marks = {number: out / f"work/{number:05d}.json" for number in range(5)}
    before = {number: mark.stat().st_mtime_ns for number, mark in marks.items()}
    for number in (2, 3):
        (out / f"work/{number:05d}.arrow").unlink()
    run_shard(job)
    assert [n for n, mark in marks.items() if mark.stat().st_mtime_ns != before[n]] == [2, 3]
    run(Job("dataset", tmp_path / "alone", params, {}, path))
    run(Job("dataset", out, params, {}, path))
    assert files(out) == files(tmp_path / "alone")


def test_a_shard_names_the_line_of_its_mistake(written, tmp_path):
    rows, path = passages(37), {"path": str(tmp_path)}
    rows[30] = ("d 30", "", "amber")
    params = written("headed", rows)
    run_shard(Job("dataset", tmp_path / "shared", params, {}, path | {"shard": 0, "shards": 2}))
    with pytest.raises(UserError, match=r"c\.tsv record:31: document id 'd 30'"):
        run_shard(Job("dataset", tmp_path / "shared", params, {}, path | {"shard": 1, "shards": 2}))
    text = json_lines(rows).splitlines(keepends=True)
    text[20] = b'{"_id": "d20"\n'
    (tmp_path / "c.jsonl").write_bytes(b"".join(text))
    with pytest.raises(UserError, match=r"c\.jsonl:21: not valid JSON"):
        run_shard(
            Job(
                "dataset",
                tmp_path / "other",
                params | {"corpus": "c.jsonl"},
                {},
                path | {"shard": 1, "shards": 2},
            )
        )


def test_documents_of_trec_are_read_by_one_job(written, tmp_path):
    params, path = written("headed", passages(9)), {"path": str(tmp_path)}
    (tmp_path / "c.trec").write_text(
        "".join(f"<DOC><DOCNO>d{n}</DOCNO>amber</DOC>\n" for n in range(20))
    )
    job = Job(
        "dataset",
        tmp_path / "trec",
        params | {"corpus": "c.trec"},
        {},
        path | {"shard": 0, "shards": 2},
    )
    assert open_source(job).count() is None
    assert run_shard(job) == {"parts": []}
    run(Job("dataset", job.out, job.params, {}, path))
    assert files(tmp_path / "trec")[0]["passages"] == 20


@pytest.mark.parametrize(
    ("source", "passages", "shared"),
    [
        ("beir", None, True),
        ("dpr", 21_015_324, True),
        ("ir_datasets", 138_364_198, True),
        ("ir_datasets", 8_841_823, False),
        ("ir_datasets", None, False),
        ("pydocs", 5_015, False),
        ("a_plugins_format", 10**9, False),
    ],
)
def test_only_what_can_be_shared_becomes_several_jobs(source, passages, shared):
    execution = {"counts": {"passages": passages}} if passages else {}
    stage = Stage("dataset", "mine", "mine", {"source": source}, execution=execution)
    assert KINDS["dataset"].is_shared(stage) is shared


PLUGIN = """
from typing import Literal

from tandem.config.datasets import DATASET_ENTRIES
from tandem.data.sources import DatasetJob, dataset_format


class Entry(DATASET_ENTRIES["beir"]):
    source: Literal["beir_of_mine"]


@dataset_format("beir_of_mine")
class Mine(dataset_format["beir"]):
    def __init__(self, job: DatasetJob, entry: Entry) -> None:
        super().__init__(job, entry)
"""
PLANNED = """
import sys
from tandem.plan.graph import Stage
from tandem.plugins import load_plugins
from tandem.stages import KINDS
(plugin,) = load_plugins(sys.argv[1:])
from tandem.config.datasets import dataset_format
assert dataset_format.plugin("beir_of_mine") == plugin
assert dataset_format.plugin("beir") is None
assert KINDS["dataset"].is_shared(Stage("dataset", "mine", "mine", {"source": "beir_of_mine"}))
"""


def test_a_plugins_format_that_goes_on_from_one_of_ours_is_shared_as_that_is(tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    subprocess.run([sys.executable, "-c", PLANNED, str(tmp_path / "mine.py")], check=True)
