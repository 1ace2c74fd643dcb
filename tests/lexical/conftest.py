"""Stages run in processes of their own, as in the graph: a Java machine cannot be started twice in one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tandem.artifact import Job
from tandem.data.stage import run

DRIVER = """
import json, sys
from tandem.__main__ import load, read_job
from tandem.errors import UserError
from tandem.kinds import KINDS

for words in json.load(sys.stdin):
    told = None
    try:
        load(KINDS[words[0]].entry)(read_job(words[0], words[1:]))
    except UserError as error:
        told = str(error)
    print("told", json.dumps(told))
"""


@pytest.fixture
def words(tmp_path: Path) -> Callable[..., list[str]]:
    """`words(kind, name, params, inputs, execution)`: a stage's command line; folders are below `tmp_path`."""

    def made(
        kind: str, name: str, params: dict[str, Any], inputs: dict[str, str], execution: dict[str, Any] | None = None
    ) -> list[str]:
        line = [word for key, value in params.items() for word in (f"--params.{key}", json.dumps(value))]
        line += [word for role, folder in inputs.items() for word in (f"--in.{role}", str(tmp_path / folder))]
        line += [word for key, value in (execution or {}).items() for word in (f"--run.{key}", json.dumps(value))]
        return [kind, *line, "--out", str(tmp_path / name / "stage.json")]

    return made


@pytest.fixture
def stages() -> Callable[..., list[str | None]]:
    """`stages(line, …, **environment)`: run command lines in one new process; None or the user's mistake of each."""

    def done(*lines: list[str], **more: str) -> list[str | None]:
        command = [sys.executable, "-c", DRIVER]
        env = {**os.environ, **more}
        ended = subprocess.run(command, input=json.dumps(lines), env=env, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return [json.loads(line[5:]) for line in ended.stdout.splitlines() if line.startswith("told ")]

    return done


@pytest.fixture
def collection(tmp_path: Path) -> Callable[..., Path]:
    """`collection(docs, queries)`: a dataset artifact `tmp_path / "dataset"`; every query is of the test split."""

    def made(docs: dict[str, str], queries: dict[str, str]) -> Path:
        folder = tmp_path / "beir"
        (folder / "qrels").mkdir(parents=True)
        for name, texts in (("corpus", docs), ("queries", queries)):
            records = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts.items()]
            (folder / f"{name}.jsonl").write_text("".join(records))
        judged = "".join(f"{query}\t{next(iter(docs))}\t1\n" for query in queries)
        (folder / "qrels" / "test.tsv").write_text(judged)
        run(Job("dataset", tmp_path / "dataset", {"source": "beir"}, {}, {"path": str(folder)}))
        return tmp_path / "dataset"

    return made
