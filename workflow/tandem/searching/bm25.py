"""BM25 in a worker: the engine of the stage `bm25`, asked one query at a time."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tandem.artifact import Job, open_artifact
from tandem.config.execution import Execution
from tandem.progress import Progress
from tandem.retrieval.lexical.bm25 import k1_and_b, open_engine, require_index


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
            job = Job("bm25", Path(), told["params"], inputs, Execution(workers=workers))
            self.parts[key] = self._open.enter_context(open_engine(job)), *k1_and_b(job, require_index(job))
            self.answer({"part": key, "query": "warm up", "depth": 1})  # Java loads classes when they are first used

    def answer(self, asked: dict[str, Any]) -> list[tuple[str, float]]:
        """(document id, score) of the best `depth` passages for `query` by `part`, best first."""
        engine, k1, b = self.parts[asked["part"]]
        with Progress("", 1, "queries", quiet=True) as progress:
            found = engine.search([("", asked["query"])], k1, b, asked["depth"], progress)
            return [hit for _, docs, scores in found for hit in zip(docs, scores, strict=True)]
