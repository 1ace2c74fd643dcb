"""Datasets made of others, with other choices of queries."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from tandem.config.datasets import Dataset
from tandem.data.collection import CORPUS, QUERIES
from tandem.data.runs import RUN_FILE
from tandem.data.sources import (
    Answers,
    DatasetJob,
    Domain,
    Judgement,
    Listed,
    Passage,
    Query,
    Source,
)
from tandem.data.tables import stream_rows
from tandem.errors import UserError
from tandem.store.artifact import Artifact


def require_input(job: DatasetJob, role: str, kind: str) -> Artifact:
    """Return an input; a `UserError` if it is missing or of another kind. Artifacts of many kinds hold a `run`."""
    if role not in job.inputs:
        raise UserError(f"dataset {job.key}: the input {role} is missing; give a {kind}")
    artifact = job.inputs[role]
    manifest = artifact.manifest
    fits = RUN_FILE in manifest.files if kind == "run" else manifest.kind == kind
    if not fits:
        raise UserError(
            f"dataset {job.key}: {role} {artifact.folder} is a {manifest.kind}, not a {kind}"
        )
    return artifact


class PartsSource(Source):
    """Read a source by one method: `read_part`."""

    @abstractmethod
    def rows(self, part: str) -> Iterator[Any]:
        """Yield the rows of a part: `corpus`, `queries`, `qrels`, `answers`, `lists` or `domains`."""

    def read_corpus(self) -> Iterator[Passage]:
        return self.rows("corpus")

    def read_queries(self) -> Iterator[Query]:
        return self.rows("queries")

    def read_qrels(self) -> Iterator[Judgement]:
        return self.rows("qrels")

    def read_answers(self) -> Iterator[Answers]:
        return self.rows("answers")

    def read_lists(self) -> Iterator[Listed]:
        return self.rows("lists")

    def read_domains(self) -> Iterator[Domain]:
        return ((doc, domain) for doc, domain in self.rows("domains") if domain)


# parts whose rows begin with a passage's id; rows of the other parts begin with a query's
PASSAGE_PARTS = ("corpus", "domains")


class DerivedSource(PartsSource):
    """Read the dataset of an input, unchanged and in its order; subclasses override what they change."""

    literal_matches = True

    def __init__(self, job: DatasetJob, entry: Dataset, role: str = "of") -> None:
        super().__init__(job, entry)
        self.base = require_input(job, role, "dataset")
        self.places = {
            "corpus": str(self.base.folder / CORPUS),
            "queries": str(self.base.folder / QUERIES),
        }
        self.facts = {role: self.base.key}

    def rows(self, part: str) -> Iterator[Any]:
        """Yield the rows of a part; nothing if the dataset has no such file."""
        name = f"{part}.parquet"
        if name not in self.base.manifest.files:
            return iter(())
        return stream_rows(self.base.path(name))

    def find_own_passages(self, split: str, docs: Iterable[str]) -> set[str]:
        """Return the documents among `docs` whose ids are also ids of a split's queries.

        A copy of such a query has another id: only a judgement can then keep it from finding its original.
        """
        queries = {query for query, _, of_split in self.rows("queries") if of_split == split}
        return {doc for doc in docs if doc in queries}
