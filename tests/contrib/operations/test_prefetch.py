"""`prefetch`: datasets' files and encoders of the hub, from a server on this machine."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from tandem.errors import UserError
from tandem.extras.targets import Configuration
from tandem.plan.towers import published_entry

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CORPUS = b'{"_id": "d", "title": "", "text": "otters eat crabs"}\n'
FILES = {
    "/data/corpus.jsonl": CORPUS,
    "/org/tiny/config.json": b"{}",
    "/org/tiny/model.safetensors": b"w" * 5000,
    "/org/tiny/tokenizer.json": b"[]",
    "/org/tiny/pytorch_model.bin": b"pickled",
}
# Prefetch a collection of ir_datasets that says which files it was asked for; its parts are read from a folder.
ASKED = """
import sys
from contextlib import contextmanager
from pathlib import Path
import ir_datasets
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import TrecQrels, TsvDocs, TsvQueries
from tandem.contrib.operations.prefetch import fetch_ir_datasets

class Asked:
    def __init__(self, name, text):
        self.file = Path(sys.argv[1], name)
        self.file.write_text(text)
    def path(self, force=True):
        return str(self.file)
    @contextmanager
    def stream(self):
        print(self.file.name)
        yield self.file.open("rb")

docs = TsvDocs(Asked("docs", "d\\totters eat crabs\\n"))
ir_datasets.registry.register("toy", Dataset(docs))
for split in ("train", "test"):
    queries = TsvQueries(Asked(f"{split}.queries", "q\\twhat eats crabs\\n"))
    qrels = TrecQrels(Asked(f"{split}.qrels", "q 0 d 1\\n"), {})
    ir_datasets.registry.register(f"toy/{split}", Dataset(docs, queries, qrels))
fetch_ir_datasets("toy", {"id": "toy"})
print("named")
fetch_ir_datasets("toy", {"id": "toy", "splits": {"dev": ["toy/train"]}})
"""


class Handler(BaseHTTPRequestHandler):
    """A file server that is also a hub with one model at one commit; notes what is fetched."""

    def do_GET(self):
        path = self.path.split("?")[0].replace(f"/resolve/{COMMIT}", "")
        if self.path.startswith(
            tuple(f"/api/models/org/tiny/revision/{revision}" for revision in (COMMIT, "main"))
        ):
            names = [
                (name.split("/")[-1], len(body))
                for name, body in FILES.items()
                if name.startswith("/org/")
            ]
            model = {
                "id": "org/tiny",
                "modelId": "org/tiny",
                "sha": COMMIT,
                "private": False,
                "tags": [],
                "downloads": 0,
            }
            model["siblings"] = [{"rfilename": name, "size": size} for name, size in names]
            return self.answer(json.dumps(model).encode(), "application/json")
        if self.path.startswith(f"/api/models/org/tiny/tree/{COMMIT}"):
            tree = [
                {
                    "type": "file",
                    "path": name.split("/")[-1],
                    "size": len(body),
                    "oid": hashlib.sha1(body).hexdigest(),
                }
                for name, body in FILES.items()
                if name.startswith("/org/")
            ]
            return self.answer(json.dumps(tree).encode(), "application/json")
        if path not in FILES:
            return self.send_error(404)
        if self.command == "GET":
            self.server.fetched.append(path)
        return self.answer(FILES[path])

    do_HEAD = do_GET

    def answer(self, body, kind="application/octet-stream"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def server():
    project = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    project.fetched, project.url = [], f"http://127.0.0.1:{project.server_port}"
    threading.Thread(target=project.serve_forever, daemon=True).start()
    yield project
    project.shutdown()
    project.server_close()


@pytest.fixture
def prefetch(tmp_path, server):
    """`prefetch(*flags)`: the command in a process of its own, with empty caches; (status, output, errors)."""
    queries, qrels = tmp_path / "queries.jsonl", tmp_path / "test.tsv"
    queries.write_text('{"_id": "q", "text": "what eats crabs"}\n')
    qrels.write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    files = {
        "corpus.jsonl": {"url": f"{server.url}/data/corpus.jsonl", "bytes": len(CORPUS)},
        "queries.jsonl": {"url": f"file://{queries}"},
        "qrels/test.tsv": {"url": f"file://{qrels}"},
        "qrels/train.tsv": {"url": f"file://{qrels}"},
    }
    files["corpus.jsonl"]["sha256"] = hashlib.sha256(CORPUS).hexdigest()
    config = {
        "dataset": "toy",
        "datasets": {"toy": {"source": "beir", "files": files}},
        "encoders": {
            "tiny": {"source": "hub", "name": "org/tiny", "revision": COMMIT, "pooling": "cls"}
        },
        "encoder": "tiny",
        "tables": ["baseline"],
        "systems": ["de_bm25neg"],
    }
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(config))
    env = {**os.environ, "TANDEM_DATA": str(tmp_path / "data"), "HF_HOME": str(tmp_path / "hub")}
    env |= {
        "HF_ENDPOINT": server.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }

    def run(*flags):
        command = [sys.executable, "-m", "tandem", "prefetch", "toy.yaml", *flags]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


def test_what_is_missing_is_listed_fetched_and_then_here(prefetch, server, tmp_path):
    status, output, _ = prefetch("-n")
    assert status == 0
    assert f"{len(CORPUS)} B  dataset toy  {server.url}/data/corpus.jsonl" in output
    assert "here  dataset toy  file://" in output
    assert f"5.0 kB  encoder tiny  org/tiny@{COMMIT}" in output  # 5,004: no pickle is counted
    assert "to be downloaded: 5.1 kB" in output
    assert server.fetched == []
    status, _, errors = prefetch()
    assert status == 0, errors
    assert sorted(server.fetched) == [
        "/data/corpus.jsonl",
        "/org/tiny/config.json",
        "/org/tiny/model.safetensors",
        "/org/tiny/tokenizer.json",
    ]
    (corpus,) = (tmp_path / "data").rglob("corpus.jsonl")
    assert corpus.read_bytes() == CORPUS
    server.fetched.clear()
    status, output, _ = prefetch()
    assert (status, output.splitlines()[-1]) == (0, "all of it is here")
    assert server.fetched == []


def test_a_download_that_ended_before_the_tokenizer_is_finished(prefetch, server, tmp_path):
    assert prefetch()[0] == 0
    (tokenizer,) = (tmp_path / "hub").rglob("tokenizer.json")
    content = tokenizer.resolve()
    tokenizer.unlink()
    content.unlink()
    server.fetched.clear()
    assert f"here  encoder tiny  org/tiny@{COMMIT}" not in prefetch("-n")[1]
    assert prefetch()[0] == 0
    assert server.fetched == ["/org/tiny/tokenizer.json"]


def test_a_branch_is_pinned_in_the_lock_which_plans_read(prefetch, server, tmp_path, monkeypatch):
    config = yaml.safe_load((tmp_path / "toy.yaml").read_text())
    config["encoders"]["tiny"]["revision"] = "main"
    config["llm_rerankers"] = {"judge": {"method": "yes_no", "model": "org/tiny"}}
    config["systems"] = ["de_bm25neg", "bm25+judge"]
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(config))
    _, output, _ = prefetch("-n")
    assert output.count("main may move; prefetch pins it in hub.lock.yaml") == 2
    assert "language model bm25+judge.test  org/tiny@main" in output
    assert not (tmp_path / "hub.lock.yaml").exists()
    status, _, errors = prefetch()
    assert status == 0, errors
    assert f"hub.lock.yaml: org/tiny at main is {COMMIT}" in errors
    assert yaml.safe_load((tmp_path / "hub.lock.yaml").read_text()) == {
        "org/tiny": {"main": COMMIT}
    }
    _, output, _ = prefetch("-n")
    assert f"here  encoder tiny  org/tiny@{COMMIT}" in output
    assert "may move" not in output
    monkeypatch.chdir(tmp_path)
    planner = Configuration([tmp_path / "toy.yaml"]).plan().planner
    assert planner.encoder("tiny").values["revision"] == COMMIT
    assert published_entry({}, "org/tiny").revision == COMMIT
    assert planner.run("bm25+judge", "test", "here").values["revision"] == COMMIT
    (tmp_path / "hub.lock.yaml").write_text("org/tiny: {main: latest}\n")
    with pytest.raises(UserError, match="hub.lock.yaml: is not a lock .*; mend or delete it"):
        published_entry({}, "org/tiny")


def test_published_rerankers_and_language_models_that_rank_or_judge_are_listed(prefetch, tmp_path):
    config = yaml.safe_load((tmp_path / "toy.yaml").read_text())
    of_hub = {"source": "hub", "revision": COMMIT}
    config |= {
        "rerankers": {"mini": {**of_hub, "name": "org/reranker"}},
        "systems": ["bm25+mini", "bm25+asked"],
    }
    config |= {
        "llm_rerankers": {"asked": {"method": "listwise", "model": "org/ranks", "revision": COMMIT}}
    }
    judge = {"model": "org/judges", "revision": COMMIT}
    config |= {
        "audits": {"judges": ["mini"], "retriever": None, "systems": ["bm25"], "llm_judge": judge}
    }
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(config))
    status, output, errors = prefetch("-n")
    assert status == 0, errors
    lines = [" ".join(line.split()) for line in output.splitlines() if "@" in line]
    assert lines == [
        f"size unknown encoder mini org/reranker@{COMMIT}",
        f"size unknown language model bm25+asked.test org/ranks@{COMMIT}",
        f"size unknown language model unlabelled.test org/judges@{COMMIT}",
    ]


def test_a_file_that_cannot_be_fetched_does_not_keep_the_others(
    prefetch, server, monkeypatch, tmp_path
):
    monkeypatch.delitem(FILES, "/data/corpus.jsonl")
    status, _, errors = prefetch()
    assert status == 1
    (line,) = (line for line in errors.splitlines() if line.startswith("tandem prefetch:"))
    assert "corpus.jsonl: cannot be fetched: 404 Not Found" in line
    assert "/org/tiny/model.safetensors" in server.fetched
    assert "Traceback" not in errors


def test_queries_and_qrels_of_splits_that_are_not_named_are_fetched_too(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ASKED, str(tmp_path)],
        env={**os.environ, "IR_DATASETS_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found, named = done.stdout.split("named\n")
    assert found.split() == ["docs", "train.queries", "train.qrels", "test.queries", "test.qrels"]
    assert named.split() == ["docs", "train.queries", "train.qrels"]


def test_an_encoder_that_searches_in_audits_alone_is_listed(prefetch, tmp_path):
    config = yaml.safe_load((tmp_path / "toy.yaml").read_text())
    own = {"source": "hub", "revision": COMMIT, "name": "org/searches", "pooling": "cls"}
    config["encoders"]["searching"] = own
    config["systems"] = ["bm25"]
    config["audits"] = {"judges": [], "retriever": None, "systems": ["searching"]}
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(config))
    status, output, errors = prefetch("-n")
    assert status == 0, errors
    assert f"encoder searching  org/searches@{COMMIT}" in output
