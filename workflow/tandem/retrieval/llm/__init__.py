"""Answers of language models, kept on disk by model and prompt: a question is never asked twice, nor paid twice.

A model is in this process, or behind an OpenAI-compatible server: vLLM, Ollama, `transformers serve`, or a cloud's.
OpenAI's client repeats requests that fail or meet a rate limit, ever later, or when the server says so.
"""

import hashlib
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from tandem.config.language_models import Endpoint
from tandem.errors import UserError
from tandem.store.job import Job

LIKELIEST = 20  # words at the beginning of an answer whose probabilities are asked for: the most that servers give
AGAIN = "what is answered is kept: run the same command again"


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
    """A file of answers (SQLite), shared by all stages that ask the same model; several threads may ask.

    The model is opened when it is first needed. `counts` are of answers that were asked for and that were there, and of
    the tokens of all of them.
    """

    def __init__(self, path: Path, open_model: Callable[[], Model]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._open, self._lock = path, open_model, Lock()
        self._model: Model | None = None
        self.counts: Counter[str] = Counter(asked=0, known=0)
        with _named(path):
            self._file = sqlite3.connect(path, timeout=60, check_same_thread=False)
            self._file.execute("CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, answer TEXT)")

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
        with self._lock, _named(self.path):
            row = self._file.execute("SELECT answer FROM answers WHERE question = ?", (key,)).fetchone()
            answer = Answer(**json.loads(row[0])) if row else None
        answer = answer or ask()
        with self._lock, _named(self.path):
            if row is None:
                self._file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, json.dumps(asdict(answer))))
                self._file.commit()
            self.counts.update(asked=row is None, known=row is not None)
            self.counts.update(prompt_tokens=answer.read, answer_tokens=answer.written)
        return answer

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn sqlite's errors about a damaged, locked, read-only or full file of answers into a `UserError`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise UserError(f"{path}: cannot be read or written ({error}); {AGAIN}") from None
    except (sqlite3.DatabaseError, TypeError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); delete it, its questions will be asked again") from None


class Server:
    """One model of a server.

    A `UserError` where the key's environment variable is not set, and of a request that fails after its repetitions.
    """

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        from openai import OpenAI

        key = os.environ.get(endpoint.key) if endpoint.key else "none"
        if not key:
            raise UserError(f"endpoint.key: the environment variable {endpoint.key} is not set; it holds the key")
        self.endpoint, self.model = endpoint, model
        self.client = OpenAI(base_url=endpoint.url, api_key=key, timeout=endpoint.timeout, max_retries=endpoint.retries)

    def complete(self, prompt: str, tokens: int) -> Answer:
        """The answer as text."""
        return self._ask(prompt, self._text, max_tokens=tokens)

    def compare(self, prompt: str, words: tuple[str, str]) -> Answer:
        """Log-odds of two words among the likeliest first words, without regard to case.

        A word that is not among them has at most the probability of the last one, which it gets.
        """
        return self._ask(prompt, partial(self._odds, words), max_tokens=1, logprobs=True, top_logprobs=LIKELIEST)

    def _ask(self, prompt: str, read: Callable[[Any], Answer], **options: Any) -> Answer:
        import openai

        at, tries = self.endpoint.url, self.endpoint.retries + 1
        try:
            response = self.client.chat.completions.create(
                model=self.model, messages=[{"role": "user", "content": prompt}], temperature=0.0, **options
            )
        except openai.APITimeoutError:
            raise UserError(f"{at}: no answer within {self.endpoint.timeout:g} s, {tries} times; {AGAIN}") from None
        except openai.APIConnectionError as error:
            raise UserError(f"{at}: cannot be reached, {tries} times ({error.__cause__ or error}); {AGAIN}") from None
        except openai.APIStatusError as error:
            words = " ".join(str(error.message).split())[:200]
            raise UserError(f"{at}: status {error.status_code}: {words}; {AGAIN}") from None
        except (openai.OpenAIError, ValueError) as error:
            raise UserError(f"{at}: gives no chat completion ({type(error).__name__}); {AGAIN}") from None
        try:
            return read(response)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise UserError(f"{at}: its response is no chat completion as it was asked for; {AGAIN}") from None

    def _text(self, response: Any) -> Answer:
        text = response.choices[0].message.content
        return Answer(str(text or ""), None, *_usage(response))

    def _odds(self, words: tuple[str, str], response: Any) -> Answer:
        if response.choices[0].logprobs is None:
            problem = "gives no probabilities of words (logprobs), by which yes_no and pairwise score"
            raise UserError(f"{self.endpoint.url}: {problem}; take method listwise, or another server")
        likeliest = response.choices[0].logprobs.content[0].top_logprobs
        lowest = min(word.logprob for word in likeliest)
        best: dict[str, float] = {}
        first, second = map(str.lower, words)
        for word in likeliest:
            name = word.token.strip().lower()
            best[name] = max(word.logprob, best.get(name, word.logprob))
        score = None if not best.keys() & {first, second} else best.get(first, lowest) - best.get(second, lowest)
        return Answer("", score, *_usage(response))


def _usage(response: Any) -> tuple[int, int]:
    """Tokens read and written, as the server counts them; 0 where it does not."""
    usage = getattr(response, "usage", None)
    return (int(usage.prompt_tokens or 0), int(usage.completion_tokens or 0)) if usage else (0, 0)


def open_answers(job: Job[Any], chat: bool) -> Answers:
    """The answers of a stage's model; the stage's parameters are `LlmParams`.

    They are kept in `results/<dataset>/answers/<model>-<digest>.sqlite`, for all stages that ask the same model. `chat`
    puts prompts into the chat template of a model in this process, if it has one.
    """
    params, endpoint = job.params, job.execution.endpoint
    if endpoint is None:
        from tandem.models.device import use_workers  # torch: not for those who ask a server

        use_workers(job.execution.workers)

    def open_model() -> Model:
        if endpoint is not None:
            return Server(endpoint, params.model)
        from tandem.retrieval.llm.local import LocalModel

        return LocalModel(params.model, params.revision, params.precision, chat)

    identity = params.model_dump(mode="json", include={"model", "revision", "fingerprint", "url", "precision"})
    if endpoint is None:
        identity["generation"] = "likeliest"  # earlier files have answers as models' own files said
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
    return Answers(job.out.parent.parent / "answers" / f"{Path(params.model).name}-{digest}.sqlite", open_model)


def at_once(job: Job[Any]) -> int:
    """How many questions are asked at a time; a model in this process answers one after the other."""
    return job.execution.endpoint.at_once if job.execution.endpoint else 1
