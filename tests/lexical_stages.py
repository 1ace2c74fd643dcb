"""Stages run in a process of their own, as in the graph; all tests share one, since starting Java takes long."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tandem.data.dataset import run
from tandem.store.job import Job

DRIVER = """
import json, sys
from tandem.store.job import load, read_job
from tandem.errors import UserError
from tandem.stages import KINDS

for lines in sys.stdin:
    mistakes = []
    for kind, *words in json.loads(lines):
        try:
            load(KINDS[kind].run)(read_job(kind, words))
            mistakes.append(None)
        except UserError as error:
            mistakes.append(str(error))
    print("mistakes", json.dumps(mistakes), flush=True)
"""


@pytest.fixture
def words(tmp_path: Path) -> Callable[..., list[str]]:
    """`words(kind, name, params, inputs, execution)`: a stage's command line; folders are below `tmp_path`."""

    def make(
        kind: str,
        name: str,
        params: dict[str, Any],
        inputs: dict[str, str],
        execution: dict[str, Any] | None = None,
    ) -> list[str]:
        line = [
            word for key, value in params.items() for word in (f"--params.{key}", json.dumps(value))
        ]
        line += [
            word
            for role, folder in inputs.items()
            for word in (f"--in.{role}", str(tmp_path / folder))
        ]
        line += [
            word
            for key, value in (execution or {}).items()
            for word in (f"--run.{key}", json.dumps(value))
        ]
        return [kind, *line, "--out", str(tmp_path / name / "stage.json")]

    return make


@contextmanager
def driver(**environment: str) -> Iterator[Callable[..., list[str | None]]]:
    """A process that runs command lines; it ends with the block, and must not have died before."""
    command, env = [sys.executable, "-c", DRIVER], {**os.environ, **environment}

    def run(*lines: list[str]) -> list[str | None]:
        process.stdin.write(json.dumps(lines) + "\n")
        process.stdin.flush()
        answer = next((line for line in process.stdout if line.startswith("mistakes ")), None)
        assert answer, "the process has died"
        return json.loads(answer.removeprefix("mistakes "))

    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield run
    assert process.returncode == 0


@pytest.fixture(scope="session")
def shared() -> Iterator[Callable[..., list[str | None]]]:
    """The process that the tests share."""
    with driver() as run:
        yield run


@pytest.fixture
def stages(shared: Callable[..., list[str | None]]) -> Callable[..., list[str | None]]:
    """`stages(line, …, **environment)`: run command lines; None or the user's mistake of each.

    What counts while Java starts, `alone` or with an environment, runs in a new process.
    """

    def run(*lines: list[str], alone: bool = False, **environment: str) -> list[str | None]:
        if not (alone or environment):
            return shared(*lines)
        with driver(**environment) as own:
            return own(*lines)

    return run


@pytest.fixture
def collection(make_dataset_of: Callable[..., Path]) -> Callable[..., Path]:
    """`collection(docs, queries)`: a dataset artifact `tmp_path / "dataset"`; every query is of the test split."""

    def make(docs: dict[str, str], queries: dict[str, str]) -> Path:
        return make_dataset_of([(doc, "", text) for doc, text in docs.items()], queries)

    return make


@pytest.fixture
def make_dataset_of(tmp_path: Path) -> Callable[..., Path]:
    """`make_dataset_of(documents, queries)`: the same as `collection`, of documents (id, title, text)."""

    def make(documents: list[tuple[str, str, str]], queries: dict[str, str]) -> Path:
        folder = tmp_path / "beir"
        (folder / "qrels").mkdir(parents=True)
        rows = [
            json.dumps({"_id": doc, "title": title, "text": text}) + "\n"
            for doc, title, text in documents
        ]
        (folder / "corpus.jsonl").write_text("".join(rows))
        query_rows = [
            json.dumps({"_id": query, "text": text}) + "\n" for query, text in queries.items()
        ]
        (folder / "queries.jsonl").write_text("".join(query_rows))
        (folder / "qrels" / "test.tsv").write_text(
            "".join(f"{query}\t{documents[0][0]}\t1\n" for query in queries)
        )
        run(Job("dataset", tmp_path / "dataset", {"source": "beir"}, {}, {"path": str(folder)}))
        return tmp_path / "dataset"

    return make


@pytest.fixture
def in_java() -> Callable[..., Any]:
    """`in_java(code, inputs)`: the JSON that code prints in a process of its own, which reads `inputs` as JSON."""

    def done(code: str, inputs: Any) -> Any:
        ended = subprocess.run(
            [sys.executable, "-c", code], input=json.dumps(inputs), capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    return done
