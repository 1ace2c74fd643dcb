"""Small datasets made by the real stage: fixtures for the tests of formats."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from download_server import serving

from tandem.data.dataset import run
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.job import Job

Passages = Iterable[tuple[str, str, str]]
DOCS = [
    {"_id": "d1", "title": "One", "text": "alpha beta"},
    {"_id": "d2", "title": "", "text": "gamma"},
]
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
def make_beir(tmp_path: Path, make: Callable[..., Artifact]) -> Callable[..., Artifact]:
    """`make_beir(name, passages, queries, qrels)`: the dataset of a BEIR folder.

    Passages are (id, title, text); a query is named by its id and asks "what <id>"; `qrels` are rows by split.
    """

    def build(
        name: str, passages: Passages, queries: Iterable[str], qrels: dict[str, list[str]]
    ) -> Artifact:
        folder = tmp_path / "beir" / name
        (folder / "qrels").mkdir(parents=True)
        documents = [{"_id": doc, "title": title, "text": text} for doc, title, text in passages]
        (folder / "corpus.jsonl").write_text(lines(documents))
        (folder / "queries.jsonl").write_text(
            lines([{"_id": query, "text": f"what {query}"} for query in queries])
        )
        for split, rows in qrels.items():
            (folder / "qrels" / f"{split}.tsv").write_text("".join(f"{row}\n" for row in rows))
        return make(name, {"source": "beir"}, path=str(folder))

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
