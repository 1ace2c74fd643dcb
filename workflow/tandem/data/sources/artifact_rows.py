"""The rows of a dataset artifact as a source gives them: what derived datasets are made of."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tandem.data.collection import ANSWERS, CORPUS, LISTS, QRELS, QUERIES
from tandem.data.sources import Answers, Judgement, Listed, Passage, Query
from tandem.data.tables import streaming
from tandem.errors import UserError
from tandem.store.artifact import Artifact
from tandem.store.job import Job


class ArtifactRows:
    """A dataset artifact, streamed in its own order; nothing is held but a batch."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact

    def corpus(self) -> Iterator[Passage]:
        """(document id, title, text) of every passage."""
        return stream(self.artifact.path(CORPUS), "doc_id", "title", "text")

    def queries(self) -> Iterator[Query]:
        """(query id, text, split) of every query."""
        return stream(self.artifact.path(QUERIES), "query_id", "text", "split")

    def qrels(self) -> Iterator[Judgement]:
        """(query id, document id, relevance, split) of every judgement."""
        return stream(self.artifact.path(QRELS), "query_id", "doc_id", "relevance", "split")

    def answers(self) -> Iterator[Answers]:
        """(query id, answers) of every question that has some."""
        return self._maybe(ANSWERS, "query_id", "answers")

    def lists(self) -> Iterator[Listed]:
        """(query id, document id, label, score) of its training lists."""
        return self._maybe(LISTS, "query_id", "doc_id", "label", "score")

    def place(self, name: str) -> str:
        """What to call a file's rows in an error."""
        return str(self.artifact.folder / name)

    def _maybe(self, name: str, *columns: str) -> Iterator[Any]:
        """The rows of a file that only some datasets have."""
        return stream(self.artifact.path(name), *columns) if name in self.artifact.manifest.files else iter(())


def stream(path: Path, *columns: str) -> Iterator[Any]:
    """Rows of a Parquet file as tuples of some columns, a batch in memory at a time."""
    with streaming(path) as file:
        for batch in file.iter_batches(columns=list(columns)):
            yield from zip(*(batch[name].to_pylist() for name in columns), strict=True)


def needed(job: Job, role: str, kind: str) -> Artifact:
    """An input of a derived dataset; a `UserError` if it is missing or of another kind."""
    if role not in job.inputs:
        raise UserError(f"dataset {job.key}: the input {role} is missing; give a {kind}")
    artifact = job.inputs[role]
    if artifact.manifest.kind != kind:
        raise UserError(f"dataset {job.key}: {role} {artifact.folder} is a {artifact.manifest.kind}, not a {kind}")
    return artifact
