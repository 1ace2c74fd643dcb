"""Worker processes that answer questions in JSON lines. Each uses one library: FAISS, Java or torch, with its threads.

The first line on a worker's standard input names the parts that it serves; every further line is a question. The worker
answers each line with one line, `{"done": …}` or `{"mistake": "…"}`. It ends at the end of the input.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, TextIO

from tandem.cluster.progress import Progress
from tandem.cluster.scheduler import lease
from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.extras.import_path import with_library
from tandem.extras.serving import WORKER_THREADS, PartQuestion, Served
from tandem.retrieval.lexical.bm25 import find_k1_and_b, open_lexical_engine, require_index
from tandem.stages.base import Json
from tandem.stages.data import Bm25Params
from tandem.store.artifact import open_artifact
from tandem.store.job import Job, load

_PATIENCE_SECONDS = 2.0  # time that a worker has to end
# the function or class that opens a `Served` part; its result answers questions
WORKER_ROLES = {
    "bm25": "contrib.demo.workers:SearchedBm25",
    "vectors": "contrib.demo.vectors:open_searched",
    "models": "contrib.demo.served_models:open_model",
}


class Worker:
    """Run one process of `main` for a role of `WORKER_ROLES`; a context manager that ends the process.

    `parts` maps each part's key to its column, its parameters and the folders of its inputs by role. `plugins` are the
    configuration's plugins, which may define a part's classes.
    """

    def __init__(self, role: str, parts: dict[str, Json], plugins: Iterable[str] = ()) -> None:
        self.role = role
        words = ["search-worker", role, "--run.plugins", json.dumps([*plugins])]
        # A session of its own: only `search` gets Ctrl-C, and it ends its workers.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tandem", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True,
            env=with_library(os.environ),
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout
        self._send({"parts": parts})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()  # a worker only reads: there is nothing to finish
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._questions, self._answers):
            with suppress(BrokenPipeError):  # the worker may not have read a question
                pipe.close()

    def _send(self, message: object) -> None:
        with suppress(BrokenPipeError):  # `receive` reports that the worker has ended
            print(json.dumps(message), file=self._questions, flush=True)

    def receive(self) -> Any:
        """Return the answer to the oldest question.

        Raises:
            UserError: the question or the artifacts are at fault, or the worker has ended.
        """
        if not (line := self._answers.readline()):
            status = self._process.wait()
            ended = f"the process for {self.role} ended with status {status}"
            raise UserError(f"{ended}; what it printed above says why")
        answer = json.loads(line)
        if "mistake" in answer:
            raise UserError(answer["mistake"])
        return answer["done"]

    def ask(self, question: PartQuestion) -> Any:
        """Send a question and return its answer."""
        self._send(question)
        return self.receive()


def main(words: list[str]) -> int:
    """Run the command `search-worker ROLE`, which `search` starts.

    The worker of models leases a GPU before torch sees any.
    """
    if words[0] == "models":
        lease(1, "search")
    # Output of libraries goes to stderr, so that it does not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        serve(words[0], sys.stdin, answers)
    except BrokenPipeError:  # `search` was stopped: nobody reads what is left
        os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
    return 0


def serve(role: str, questions: Iterable[str], answers: TextIO) -> None:
    """Write an answer to every line of `questions` until they end."""
    opened: dict[str, Any] = {}
    for line in questions:
        message = json.loads(line)
        try:
            if "part" in message:
                answer = {"done": opened[message["part"]].answer(message)}
            else:
                for key, part in message["parts"].items():
                    inputs = {
                        name: open_artifact(Path(at), verify=False)
                        for name, at in part["inputs"].items()
                    }
                    served = Served(part["column"], part["params"], inputs, len(message["parts"]))
                    opened[key] = load(WORKER_ROLES[role])(served)
                answer = {"done": None}
        except UserError as error:
            answer = {"mistake": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


class SearchedBm25:
    """Search an opened index of the stage `bm25`."""

    def __init__(self, part: Served) -> None:
        params, how = Bm25Params.model_validate(part.params), Execution(workers=WORKER_THREADS)
        job = Job("bm25", Path(), params, part.inputs, how)
        self._open = ExitStack()
        self.engine = self._open.enter_context(open_lexical_engine(job))
        self.k1, self.b = find_k1_and_b(job, require_index(job))
        self.answer({"query": "warm up", "depth": 1})  # Java loads classes when they are first used

    def answer(self, question: PartQuestion) -> list[tuple[str, float]]:
        """Return (document id, score) of the best `depth` passages for `query`, best first."""
        with Progress("", 1, "queries", quiet=True) as progress:
            hits = self.engine.search(
                [("", question["query"])], self.k1, self.b, question["depth"], progress
            )
            return [hit for _, docs, scores in hits for hit in zip(docs, scores, strict=True)]
