"""A process that computes with one library, asked by JSON lines: FAISS, Java and torch each bring their own threads.

The first line on standard input says which parts it serves; it answers `{"done": null}` when they are loaded. Every
further line is a question, and one line answers it: `{"done": …}`, or `{"mistake": "…"}`. The end of the input ends it.
"""

import json
import os
import sys
from typing import Any, Protocol

from tandem.errors import UserError
from tandem.store.job import load

ROLES = {"bm25": "searching.bm25:Bm25", "vectors": "searching.vectors:Vectors", "models": "searching.models:Models"}


class Role(Protocol):
    """What a worker does: made from the parts it serves and its threads, then asked."""

    def answer(self, asked: dict[str, Any]) -> Any:
        """What one question's answer is, as JSON."""


def main(words: list[str]) -> int:
    """Command `search-worker ROLE`, which `search` starts."""
    # What a library prints must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(told: dict[str, Any]) -> None:
        answers.write(json.dumps(told) + "\n")
        answers.flush()

    role: Role | None = None
    for line in sys.stdin:
        told = json.loads(line)
        try:
            if role is None:
                role = load(ROLES[words[0]])(told["parts"], told["workers"])
                reply({"done": None})
            else:
                reply({"done": role.answer(told)})
        except UserError as error:
            reply({"mistake": str(error)})
    return 0
