import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def dataset(home: Path, out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tandem", "dataset", "--params.source", "ir_datasets", *words]
    env = {**os.environ, "IR_DATASETS_HOME": str(home), "IR_DATASETS_SMALL_FILE_SIZE": "0"}
    return subprocess.run(
        [*command, "--out", str(out / "stage.json")], env=env, capture_output=True, text=True
    )


def test_cranfield_loads_from_files_put_where_ir_datasets_looks(tmp_path, real):
    home = tmp_path / "home"
    shutil.copytree(real("ir_datasets_home"), home)
    done = dataset(home, tmp_path / "cranfield", "--params.id", "cranfield")
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "cranfield" / "stage.json").read_text())["facts"]
    assert facts["passages"] == 1400
    assert facts["queries"] == {"test": 225}
    assert facts["qrels"] == {"test": 1837}
    assert "2 passages hold no text" in facts["warnings"]
    # the file's codes 1, 2, 3, 4 and -1, counted, are relevance 4, 3, 2, 1 and 0
    grades = pq.read_table(tmp_path / "cranfield" / "qrels.parquet")["relevance"].to_pylist()
    assert Counter(grades) == {4: 128, 3: 387, 2: 734, 1: 363, 0: 225}
    first = pq.read_table(tmp_path / "cranfield" / "corpus.parquet").slice(0, 1).to_pylist()[0]
    assert (first["doc_id"], first["title"]) == ("1", "")
    assert first["text"].startswith(
        "experimental investigation of the aerodynamics of a\nwing in a slipstream"
    )


ENTERED = """
import ir_datasets
from pathlib import Path
from tandem.data.sources import open_source
from tandem.store.job import Job
source = open_source(Job("dataset", Path(), {"source": "ir_datasets", "id": "cranfield"}, {}))
assert source.count() is None
ir_datasets.load("cranfield").docs_store().build()
assert source.count() == 1400
passages = list(source.read_corpus())
assert list(source.read_corpus_from(1390)) == passages[1390:]
assert list(source.read_corpus_from(1400)) == []
"""


def test_shards_share_what_ir_datasets_has_stored(tmp_path, real):
    home, shard = tmp_path / "home", tmp_path / "shared/shards/0-of-1.json"
    shutil.copytree(real("ir_datasets_home"), home)
    env = {**os.environ, "IR_DATASETS_HOME": str(home), "IR_DATASETS_SMALL_FILE_SIZE": "0"}
    assert dataset(home, tmp_path / "alone", "--params.id", "cranfield").returncode == 0
    subprocess.run([sys.executable, "-c", ENTERED], env=env, check=True)
    words = [
        "--params.source",
        "ir_datasets",
        "--params.id",
        "cranfield",
        "--run.shard",
        "0",
        "--run.shards",
        "1",
    ]
    subprocess.run(
        [sys.executable, "-m", "tandem", "dataset-shard", *words, "--out", str(shard)],
        env=env,
        check=True,
    )
    assert json.loads(shard.read_text()) == {"parts": [0]}
    assert dataset(home, tmp_path / "shared", "--params.id", "cranfield").returncode == 0
    for name in ("corpus.parquet", "qrels.parquet", "statistics.json"):
        assert (tmp_path / "shared" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_brights_excluded_ids_are_judgements_that_exclude(tmp_path):
    home, versions = (
        tmp_path / "home" / "bright",
        ("Gemini-1.0", "claude-3-opus", "gpt4", "grit", "llama3-70b"),
    )
    home.mkdir(parents=True)
    documents = [{"id": f"pony/{name}.txt", "content": f"about {name}"} for name in "abcd"]
    query = {
        "id": 0,
        "query": "how?",
        "reasoning": "",
        "gold_answer": "",
        "gold_ids": ["pony/a.txt"],
    }
    query |= {"excluded_ids": ["pony/b.txt", "pony/c.txt"], "gold_ids_long": ["N/A"]}
    pq.write_table(pa.Table.from_pylist(documents), home / "pony.docs.parquet")
    for name in ("pony.queries", *(f"pony.{version}_reason.queries" for version in versions)):
        pq.write_table(pa.Table.from_pylist([query]), home / f"{name}.parquet")
    done = dataset(home.parent, tmp_path / "pony", "--params.id", "bright/pony")
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "pony" / "stage.json").read_text())["facts"]
    assert (facts["passages"], facts["queries"], facts["warnings"]) == (4, {"test": 1}, [])
    rows = pq.read_table(tmp_path / "pony" / "qrels.parquet").to_pylist()
    grades = {row["doc_id"]: row["relevance"] for row in rows}
    assert grades == {"pony/a.txt": 1, "pony/b.txt": -100, "pony/c.txt": -100}
    assert pq.read_table(tmp_path / "pony" / "queries.parquet")["text"].to_pylist() == ["how?"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--params.id", "cranfeld"],
            "id: ir_datasets knows no 'cranfeld'; did you mean cranfield?",
        ),
        (
            ["--params.id", "no/such", "--params.splits.test", "cranfield"],
            "id: ir_datasets knows no 'no/such'; its catalogue is on ir-datasets.com",
        ),
        (
            ["--params.id", "cranfield", "--params.splits.dev", "msmarco-passage"],
            "splits.dev: msmarco-passage of ir_datasets has no queries; name one that has",
        ),
        (
            ["--params.splits.test", "cranfield"],
            "id: None; the id of an ir_datasets collection is needed",
        ),
    ],
)
def test_wrong_ids_are_one_line(tmp_path, words, message):
    done = dataset(tmp_path / "home", tmp_path / "d", *words)
    assert (done.returncode, done.stderr) == (1, f"tandem dataset: {message}\n")
