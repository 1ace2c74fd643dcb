"""Stages run as commands: each Java machine lives in a process of its own, as in the graph."""

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


@pytest.fixture
def stage(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`stage(kind, name, params, inputs, execution, **environment)`: run a stage into `tmp_path / name`."""

    def done(
        kind: str, name: str, params: dict[str, Any], inputs: dict[str, str], execution: dict[str, Any], **more: str
    ) -> subprocess.CompletedProcess[str]:
        words = [word for key, value in params.items() for word in (f"--params.{key}", json.dumps(value))]
        words += [word for role, folder in inputs.items() for word in (f"--in.{role}", str(tmp_path / folder))]
        words += [word for key, value in execution.items() for word in (f"--run.{key}", json.dumps(value))]
        command = [sys.executable, "-m", "tandem", kind, *words, "--out", str(tmp_path / name / "stage.json")]
        return subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True)

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
