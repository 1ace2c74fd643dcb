"""BM25 in a worker: the engine of the stage `bm25`, asked one query at a time."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tandem.cluster.progress import Progress
from tandem.lexical.search import index_of, opened, parameters
from tandem.store.artifact import open_artifact
from tandem.store.job import Job


class Bm25:
    """Opened indexes, by part.

    Args:
        parts: key → a part's stage parameters and the folders it reads.
        workers: threads of the engines.
    """

    def __init__(self, parts: dict[str, Any], workers: int) -> None:
        self.parts: dict[str, Any] = {}
        self._open = ExitStack()
        for key, told in parts.items():
            inputs = {role: open_artifact(Path(folder), verify=False) for role, folder in told["in"].items()}
            job = Job("bm25", Path(), told["params"], inputs, {"workers": workers})
            self.parts[key] = self._open.enter_context(opened(job)), *parameters(job, index_of(job))
            self.answer({"part": key, "query": "warm up", "depth": 1})  # Java loads classes when they are first used

    def answer(self, asked: dict[str, Any]) -> list[tuple[str, float]]:
        """(document id, score) of the best `depth` passages for `query` by `part`, best first."""
        engine, k1, b = self.parts[asked["part"]]
        with Progress("", 1, "queries", quiet=True) as progress:
            found = engine.search([("", asked["query"])], k1, b, asked["depth"], progress)
            return [hit for _, docs, scores in found for hit in zip(docs, scores, strict=True)]
