"""Canaries: secrets of a key and of URLs are in nothing that a run, or a command about it, prints or writes."""

import os
import re
import shutil
import sys
import tarfile
from urllib.parse import urlsplit

import pytest
import tiny_project
import yaml
from data.download_server import serving as serving_files
from llm_server import completion
from llm_server import serving as serving_model
from tiny_project import ROOT, passages, run_command, write_beir

CANARIES = {
    name: f"canary-{name}-0123"
    for name in ("key", "endpoint-password", "endpoint-query", "password", "signature", "mirror")
}
LAYOUT = {
    "title": "Mine",
    "baseline": {"system": "BM25"},
    "columns": [{"measure": "RR@10"}],
    "rows": [
        {"system": "BM25", "run": "bm25"},
        {"system": "Judge", "first_stage": "BM25", "run": "bm25+judge"},
    ],
}
NO_MODELS = {
    "recipes": [],
    "models": dict.fromkeys(("de_bm25neg", "ce_bm25neg", "ce_deneg", "rocketqav2")),
}


def with_secrets(url, password, query):
    """A URL with a user's password, and a secret in its query."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"me:{password}@{parts.netloc}", query=query).geturl()


class World:
    """A folder with a configuration whose collection and language model lie on two servers."""

    def __init__(self, folder, files, model):
        self.folder, self.model = folder, model
        write_beir(folder.parent / "beir", passages())
        names = ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/test.tsv")
        query = f"X-Amz-Signature={CANARIES['signature']}&part=2"
        files.files |= {
            f"/d/{name}?{query}": (folder.parent / "beir" / name).read_bytes() for name in names
        }
        urls = {
            name: with_secrets(f"{files.url}/d/{name}", CANARIES["password"], query)
            for name in names
        }
        address = with_secrets(
            model.url, CANARIES["endpoint-password"], f"api_key={CANARIES['endpoint-query']}"
        )
        endpoint = {"url": address, "key": "MY_KEY", "retries": 0}
        judge = {"method": "listwise", "model": "tiny-gpt", "endpoint": endpoint}
        mirror = {  # which has none of the files
            "from": urls["corpus.jsonl"].partition("/d/")[0],
            "to": with_secrets(f"{files.url}/none", CANARIES["mirror"], ""),
        }
        config = NO_MODELS | {
            "dataset": "mine",
            "datasets": {
                "mine": {
                    "source": "beir",
                    "files": {name: {"url": url} for name, url in urls.items()},
                }
            },
            "bm25": {"engine": "bm25s"},
            "tables": ["layout.yaml"],
            "systems": ["bm25+judge"],
            "rerank": {"depth": 5},
            "llm_rerankers": {"judge": judge},
            "audits": {
                "retriever": None,
                "judges": [],
                "systems": ["bm25"],
                "llm_judge": {"model": "tiny-gpt", "sample": 3, "depth": 2, "endpoint": endpoint},
            },
        }
        folder.mkdir()
        (folder / "mine.yaml").write_text(yaml.safe_dump(config))
        (folder / "layout.yaml").write_text(yaml.safe_dump(LAYOUT))
        self.mirrors = (
            "--config",
            f"execution={yaml.safe_dump({'mirrors': [mirror]}, default_flow_style=True).strip()}",
        )
        self.printed = []

    def run(self, *words):
        """Status and output of a command of Tandem's or Snakemake's."""
        environment = (
            os.environ
            | tiny_project.variables_of_stages()
            | {
                "MY_KEY": CANARIES["key"] + "\n",
                "TANDEM_DATA": str(self.folder / "data"),
            }
        )
        status, output = run_command(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            env=environment | {"PYTHONPATH": str(ROOT / "workflow")},
        )
        self.printed.append(output)
        return status, output

    def leaks(self):
        """(canary, where it stands) of all that was printed or written, but for the configuration itself."""
        texts = {f"output {number}": text.encode() for number, text in enumerate(self.printed)}
        for path in self.folder.rglob("*"):
            texts[f"name of {path}"] = str(path).encode()
            if path.is_file() and path.name != "mine.yaml":
                texts[str(path)] = path.read_bytes()
        return [
            (name, at)
            for at, text in texts.items()
            for name, canary in CANARIES.items()
            if canary.encode() in text
        ]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with serving_files() as files, serving_model() as model:
        yield World(tmp_path_factory.mktemp("secrets") / "run", files, model)


def test_a_run_that_fails_shows_no_secret(world):
    echo = f"Incorrect API key provided: {CANARIES['key']}"
    world.model.respond = lambda *_: (401, {"error": {"message": echo}})
    status, output = world.run("tandem", "run", "mine.yaml", *world.mirrors)
    assert status == 1
    last = output.splitlines()[-1]
    assert re.search(
        r"^tandem rerank_llm: .* status 401: .*Incorrect API key provided: \*\*\*", last
    )
    assert all(
        canary in (world.folder / "mine.yaml").read_text()
        for name, canary in CANARIES.items()
        if name not in ("key", "mirror")
    )
    assert world.leaks() == []


def test_a_run_and_what_is_said_of_it_have_no_secret(world):
    world.model.respond = lambda body, number: (
        200,
        completion("Grade: 2, and [2] > [1] > [3] > [4] > [5]"),
    )
    snakefile = ("-s", str(ROOT / "Snakefile"), "--configfile", "mine.yaml")
    shutil.rmtree(world.folder / "data")
    for words in [
        ("tandem", "prefetch", "mine.yaml", *world.mirrors),
        ("tandem", "run", "mine.yaml", *world.mirrors),
        ("tandem", "run", "mine.yaml", "audits", *world.mirrors),
        ("tandem", "prefetch", "mine.yaml", "--dry-run"),
        ("tandem", "bundle", "layout", "mine.yaml", "--out", "b.tar.gz"),
        ("tandem", "lineage", "mine/layout:Judge:RR@10", "--json"),
        ("snakemake", "-n", "-p", "--forceall", "--cores", "2", *snakefile),
    ]:
        status, output = world.run(*words)
        assert status == 0, output
    assert list(world.folder.glob("results/mine/judge_llm/*/stage.json"))
    with tarfile.open(world.folder / "b.tar.gz") as archive:
        archive.extractall(world.folder / "unpacked", filter="data")
    assert world.leaks() == []
