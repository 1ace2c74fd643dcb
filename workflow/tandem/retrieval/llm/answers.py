"""Answers of language models, kept on disk by model and prompt: a question is never asked twice, nor paid twice."""

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Protocol

from tandem.errors import UserError


@dataclass(frozen=True)
class Answer:
    """What a model said.

    Attributes:
        text: the words; empty where two words were compared.
        score: log-odds of the first of two words; None where there is a text, or where neither word was likely.
        read, written: tokens of the prompt and of the answer.
    """

    text: str
    score: float | None
    read: int
    written: int


class Model(Protocol):
    """A language model, in this process or behind a server."""

    def complete(self, prompt: str, tokens: int) -> Answer:
        """An answer of at most so many tokens, the likeliest word after word."""

    def compare(self, prompt: str, words: tuple[str, str]) -> Answer:
        """Log-odds of the first word against the second as the answer's beginning."""


class Answers:
    """A file of answers, shared by all stages that ask the same model; several threads may ask.

    Args:
        path: of the SQLite database.
        open_model: opens the model when it is first needed.
    Attributes:
        counts: answers that were asked for and that were there, tokens of all of them.
    """

    def __init__(self, path: Path, open_model: Callable[[], Model]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open, self._lock = open_model, Lock()
        self._model: Model | None = None
        self.counts: Counter[str] = Counter(asked=0, known=0)
        try:
            self._file = sqlite3.connect(path, timeout=60, check_same_thread=False)
            self._file.execute("CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, answer TEXT)")
        except sqlite3.DatabaseError as error:
            raise UserError(f"{path}: cannot be read ({error}); delete it, its questions will be asked again") from None

    def complete(self, prompt: str, tokens: int) -> Answer:
        """`Model.complete`, unless the answer is there."""
        return self._ask(f"complete {tokens}\n{prompt}", lambda: self._opened().complete(prompt, tokens))

    def compare(self, prompt: str, words: tuple[str, str]) -> Answer:
        """`Model.compare`, unless the answer is there."""
        return self._ask(f"compare {' '.join(words)}\n{prompt}", lambda: self._opened().compare(prompt, words))

    def _opened(self) -> Model:
        with self._lock:
            if self._model is None:
                self._model = self._open()
            return self._model

    def _ask(self, question: str, ask: Callable[[], Answer]) -> Answer:
        key = hashlib.sha256(question.encode()).hexdigest()
        with self._lock:
            row = self._file.execute("SELECT answer FROM answers WHERE question = ?", (key,)).fetchone()
        answer = Answer(**json.loads(row[0])) if row else ask()
        with self._lock:
            if row is None:
                self._file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, json.dumps(asdict(answer))))
                self._file.commit()
            self.counts.update(asked=row is None, known=row is not None)
            self.counts.update(prompt_tokens=answer.read, answer_tokens=answer.written)
        return answer

    def close(self) -> None:
        """Close the file."""
        self._file.close()
