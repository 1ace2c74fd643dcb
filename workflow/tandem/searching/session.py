"""A search that is loaded once and asked many times: its workers, and the collection that it shows."""

import os
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tandem.artifact import open_artifact
from tandem.plan.graph import Stage
from tandem.progress import say
from tandem.searching.asking import Worker
from tandem.searching.collection import Passages, Queries
from tandem.searching.systems import BM25, CROSS, DUAL, Part

ROLES = {BM25: ["bm25"], DUAL: ["vectors", "models"], CROSS: ["models"]}  # who serves a part


class Session:
    """A context: workers run while it is open.

    Args:
        system: the expression that is searched.
        run: the stage of its run.
        parts: what scores passages, those of the run first; each once.
        split: whose queries are meant where several have one text.
    Attributes:
        passages: the corpus.
        queries: the collection's queries.
        loaded: seconds that loading took.
    """

    def __init__(self, system: str, run: Stage, parts: list[Part], split: str) -> None:
        self.system, self.run, self.parts, self.split = system, run, parts, split
        self.workers: dict[str, Worker] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Start every worker, read the collection meanwhile, and wait for all."""
        began, threads = time.monotonic(), os.cpu_count() or 1
        say(f"search {self.system} · loading {', '.join(part.label for part in self.parts)}")
        told: dict[str, dict[str, Any]] = {}
        for part in self.parts:
            for role in ROLES[part.column]:
                told.setdefault(role, {})[part.key] = part.told
        try:
            for role, parts in told.items():
                self.workers[role] = self._open.enter_context(Worker(role, parts, threads))
            dataset = open_artifact(Path(self.parts[0].needs["dataset"].folder), verify=False)
            self.passages, self.queries = Passages(dataset), Queries(dataset, self.split)
            for worker in self.workers.values():
                worker.receive()
        except BaseException:
            self._open.close()
            raise
        self.loaded = time.monotonic() - began
        say(f"search {self.system} · {len(self.passages):,} passages · loaded in {self.loaded:.1f} s")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def ask(self, role: str, part: Part, **question: Any) -> Any:
        """What a worker answers about one of its parts."""
        return self.workers[role].ask(part=part.key, **question)
