"""Small datasets made by the real stage."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from download_server import serving

from tandem.data.dataset import run
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.job import Job

DOCS = [{"_id": "d1", "title": "One", "text": "alpha beta"}, {"_id": "d2", "title": "", "text": "gamma"}]
QUERIES = [{"_id": "q1", "text": "alpha?"}, {"_id": "q2", "text": "gamma?"}]


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """A BEIR folder of two passages, a training and a test query."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(lines(DOCS))
    (folder / "queries.jsonl").write_text(lines(QUERIES))
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq2\td2\t1\n")
    return folder


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Artifact]:
    """`make(name, params, **execution)`: run the stage `dataset`."""

    def build(name: str, params: dict[str, Any], **execution: Any) -> Artifact:
        out = tmp_path / "results" / name
        run(Job("dataset", out, params, {}, execution))
        return open_artifact(out, "dataset")

    return build


@pytest.fixture
def server() -> Iterator[Any]:
    """See `download_server.serving`."""
    with serving() as server:
        yield server


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that downloads are kept in."""
    folder = tmp_path / "tandem"
    monkeypatch.setenv("TANDEM_DATA", str(folder))
    return folder
