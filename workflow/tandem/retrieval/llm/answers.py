"""Answers of language models, kept on disk by model and prompt: a question is never asked twice, nor paid twice."""

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
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

    def complete(self, prompts: Sequence[str], tokens: int) -> list[Answer]:
        """Answers of at most so many tokens, each the likeliest word after word."""

    def compare(self, prompts: Sequence[str], words: tuple[str, str]) -> list[Answer]:
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
        self.path, self._open, self._model, self._lock = path, open_model, None, Lock()
        self.counts: Counter[str] = Counter()
        try:
            self._file = sqlite3.connect(path, timeout=60, check_same_thread=False)
            self._file.execute("CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, answer TEXT)")
        except sqlite3.DatabaseError as error:
            raise UserError(f"{path}: cannot be read ({error}); delete it, its questions will be asked again") from None

    def complete(self, prompts: Sequence[str], tokens: int) -> list[Answer]:
        """`Model.complete`, of new prompts alone."""
        return self._ask(prompts, f"complete {tokens}", lambda new: self._opened().complete(new, tokens))

    def compare(self, prompts: Sequence[str], words: tuple[str, str]) -> list[Answer]:
        """`Model.compare`, of new prompts alone."""
        return self._ask(prompts, f"compare {' '.join(words)}", lambda new: self._opened().compare(new, words))

    def _opened(self) -> Model:
        with self._lock:
            if self._model is None:
                self._model = self._open()
            return self._model

    def _ask(self, prompts: Sequence[str], how: str, ask: Callable[[list[str]], list[Answer]]) -> list[Answer]:
        keys = {prompt: hashlib.sha256(f"{how}\n{prompt}".encode()).hexdigest() for prompt in prompts}
        known = {prompt: answer for prompt, key in keys.items() if (answer := self._find(key))}
        new = [prompt for prompt in keys if prompt not in known]
        answers = dict(zip(new, ask(new), strict=True)) if new else {}
        with self._lock:
            rows = [(keys[prompt], json.dumps(asdict(answer))) for prompt, answer in answers.items()]
            self._file.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", rows)
            self._file.commit()
            self.counts.update(asked=len(new), known=len(known))
            for answer in (known | answers).values():
                self.counts.update(prompt_tokens=answer.read, answer_tokens=answer.written)
        return [(known | answers)[prompt] for prompt in prompts]

    def _find(self, key: str) -> Answer | None:
        with self._lock:
            row = self._file.execute("SELECT answer FROM answers WHERE question = ?", (key,)).fetchone()
        return Answer(**json.loads(row[0])) if row else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
