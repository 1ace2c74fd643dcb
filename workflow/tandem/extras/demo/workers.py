"""Processes that each compute with one library, asked by JSON lines: FAISS, Java and torch bring their own threads.

The first line on a worker's standard input names the parts it serves, every further one is a question; one line answers
each: `{"done": …}`, or `{"mistake": "…"}`. The end of the input ends it.
"""

import json
import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Self, TypedDict

import tandem
from tandem.cluster.progress import Progress
from tandem.config.execution import Execution
from tandem.errors import UserError
from tandem.retrieval.lexical.bm25 import k1_and_b, open_engine, require_index
from tandem.stages.lexical import Bm25Params
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.job import Job, load

PATIENCE = 2.0  # seconds that a worker has to end
# What opens a part, given its data, the number of threads, and that of the parts of the process; it answers questions.
ROLES = {
    "bm25": "extras.demo.workers:Bm25",
    "vectors": "extras.demo.vectors:open_part",
    "models": "extras.demo.models:open_part",
}


class PartData(TypedDict):
    """What a worker must know of a part: its column, its stage's parameters, and role → folder of what it reads."""

    column: str
    params: dict[str, Any]
    inputs: dict[str, str]


class Request(TypedDict, total=False):
    """What a question asks; which of the fields it has depends on the role."""

    query: str
    vector: list[float] | list[list[float]]
    rows: list[int]
    depth: int


class Question(Request, total=False):
    """A question about a part, by its key."""

    part: str


def open_inputs(part: PartData) -> dict[str, Artifact]:
    """The artifacts that a part reads, by role."""
    return {role: open_artifact(Path(folder), verify=False) for role, folder in part["inputs"].items()}


class Worker:
    """One process of `main` for a role of `ROLES`; a context that ends it."""

    def __init__(self, role: str, parts: dict[str, PartData], threads: int) -> None:
        self.role = role
        home = str(Path(tandem.__file__).parents[1])
        path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
        # A session of its own: Ctrl-C is for `search` alone, which ends its workers.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tandem", "search-worker", role],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions: IO[str] = self._process.stdin
        self._answers: IO[str] = self._process.stdout
        self._send({"parts": parts, "threads": threads})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()  # it only reads: there is nothing to finish
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._questions, self._answers):
            with suppress(BrokenPipeError):  # a question that it did not read
                pipe.close()

    def _send(self, message: object) -> None:
        try:
            self._questions.write(json.dumps(message) + "\n")
            self._questions.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> Any:
        """The answer to the oldest question; a `UserError` where the question or the artifacts are at fault."""
        line = self._answers.readline()
        if not line:
            raise self._ended()
        answer = json.loads(line)
        if "mistake" in answer:
            raise UserError(answer["mistake"])
        return answer["done"]

    def ask(self, question: Question) -> Any:
        """Put a question and wait for its answer."""
        self._send(question)
        return self.receive()

    def _ended(self) -> UserError:
        status = self._process.wait()
        return UserError(f"the process for {self.role} ended with status {status}; what it printed above says why")


def main(words: list[str]) -> int:
    """Command `search-worker ROLE`, which `search` starts."""
    # What a library prints must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    opened: dict[str, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if "part" in message:
                reply({"done": opened[message["part"]].answer(message)})
            else:
                open_part, parts = load(ROLES[words[0]]), message["parts"]
                opened = {key: open_part(part, message["threads"], len(parts)) for key, part in parts.items()}
                reply({"done": None})
        except UserError as error:
            reply({"mistake": str(error)})
    return 0


class Bm25:
    """An opened index of the stage `bm25`."""

    def __init__(self, part: PartData, threads: int, _: int) -> None:
        params, how = Bm25Params.model_validate(part["params"]), Execution(workers=threads)
        job, self._open = Job("bm25", Path(), params, open_inputs(part), how), ExitStack()
        self.engine, (self.k1, self.b) = self._open.enter_context(open_engine(job)), k1_and_b(job, require_index(job))
        self.answer({"query": "warm up", "depth": 1})  # Java loads classes when they are first used

    def answer(self, question: Question) -> list[tuple[str, float]]:
        """(document id, score) of the best `depth` passages for `query`, best first."""
        with Progress("", 1, "queries", quiet=True) as progress:
            hits = self.engine.search([("", question["query"])], self.k1, self.b, question["depth"], progress)
            return [hit for _, docs, scores in hits for hit in zip(docs, scores, strict=True)]
