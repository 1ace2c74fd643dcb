"""Worker processes as `search` sees them: started at once, asked one question after the other, ended with it."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import tandem
from tandem.errors import UserError

PATIENCE = 2.0  # seconds that a worker has to end


class Worker:
    """One process of `worker.main`; a context that ends it.

    Args:
        role: a key of `worker.ROLES`.
        parts: key → what the worker must know of a part, as JSON.
        workers: threads it computes with.
    """

    def __init__(self, role: str, parts: dict[str, Any], workers: int) -> None:
        self.role = role
        home = str(Path(tandem.__file__).parents[1])
        path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
        # A session of its own: Ctrl-C is for `search` alone, which ends its workers.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tandem", "search-worker", role],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self.send(parts=parts, workers=workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        process.terminate()  # it only reads: there is nothing to finish
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # a question that it did not read
                    pipe.close()

    def send(self, **question: Any) -> None:
        """Put a question without waiting for its answer."""
        pipe: Any = self._process.stdin
        try:
            pipe.write(json.dumps(question) + "\n")
            pipe.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> Any:
        """The answer to the oldest question; a `UserError` where the question or the artifacts are at fault."""
        pipe: Any = self._process.stdout
        line = pipe.readline()
        if not line:
            raise self._ended()
        told = json.loads(line)
        if "mistake" in told:
            raise UserError(told["mistake"])
        return told["done"]

    def ask(self, **question: Any) -> Any:
        """Put a question and wait for its answer."""
        self.send(**question)
        return self.receive()

    def _ended(self) -> UserError:
        status = self._process.wait()
        return UserError(f"the process for {self.role} ended with status {status}; what it printed above says why")
