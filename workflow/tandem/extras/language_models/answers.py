"""Answers of language models, stored on disk by model and prompt: a question is never asked, nor paid for, twice.

The exception: processes that ask the same question at the same moment, such as shards of a stage, may both pay.
A model is in this process, or behind an OpenAI-compatible server: vLLM, Ollama, `transformers serve`, or a cloud's.
OpenAI's client repeats requests that fail or meet a rate limit, after ever longer pauses, or when the server says.
"""

import hashlib
import json
import math
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from tandem.config.parsing import read
from tandem.errors import UserError
from tandem.extras.language_models.options import Endpoint, LanguageModel
from tandem.redaction import redacted, remember, without_secrets
from tandem.store.job import Job

_LIKELIEST_WORDS = (
    # words at the start of an answer whose probabilities are requested: the most that servers return
    20
)
_LEAST_PROBABILITY = 1e-9  # the least assumed of a word that a server does not list
_RUN_AGAIN = "what is answered is kept: run the same command again"
_PROMPT_IDENTITY = {  # parameters that decide the answer to a prompt
    "model", "revision", "fingerprint", "url", "precision", "chat_template_kwargs", "max_completion_tokens",
    "temperature", "extra_body",
}  # fmt: skip
# The seed of a configuration that sets none: neither its questions nor its requests name it.
_USUAL_SEED = 42
_BEARER_KEY = re.compile(r"[\x21-\x7e]+")  # what may follow `Bearer ` in a header


@dataclass(frozen=True)
class ModelAnswer:
    """The answer of a model.

    Attributes:
        text: the words of the answer; if two words were compared, the likeliest first word of all.
        score: after a comparison, the log-odds of the first of two words, None if neither was likely; of a text from
            `Server.write`, its log-likelihood, None if the server does not report it; otherwise None.
        read, written: number of tokens in the prompt and in the answer.
        share: probability of both words together; None without a comparison.
    """

    text: str
    score: float | None
    read: int
    written: int
    share: float | None = None


class AnsweringModel(Protocol):
    """A language model, in this process or behind a server."""

    def complete(self, prompt: str, tokens: int) -> ModelAnswer:
        """Return an answer of at most `tokens` tokens, choosing the likeliest token at each step."""

    def compare(self, prompt: str, words: tuple[str, str]) -> ModelAnswer:
        """Return the log-odds of the first word against the second as the answer's beginning."""


class AnswerStore:
    """Stores answers in a file (SQLite), shared by all stages that ask the same model; several threads may ask.

    The model is opened when it is first needed. `counts` has the numbers of questions, of those whose answers were
    stored already, and of the tokens of all.

    Args:
        comparison: the beginning of its questions about two words; a different one marks answers by another rule.
    """

    def __init__(
        self,
        path: Path,
        open_model: Callable[[], AnsweringModel],
        comparison: str = "share of",
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._open = open_model
        self._comparison = comparison
        self._lock = Lock()
        self._model: AnsweringModel | None = None
        self._in_flight: dict[str, Future[ModelAnswer]] = {}
        self.counts: Counter[str] = Counter(asked=0, known=0)
        with _name_file(path):
            self._file = sqlite3.connect(path, timeout=60, check_same_thread=False)
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, answer TEXT)"
            )

    def complete(self, prompt: str, tokens: int) -> ModelAnswer:
        """Return a stored answer, else that of `AnsweringModel.complete`."""
        return self._ask(
            f"complete {tokens}\n{prompt}", lambda: self._opened().complete(prompt, tokens)
        )

    def compare(self, prompt: str, words: tuple[str, str]) -> ModelAnswer:
        """Return a stored answer, else that of `AnsweringModel.compare`."""
        # Answers to `compare …`, the question of earlier versions, lack a share.
        return self._ask(
            f"{self._comparison} {' '.join(words)}\n{prompt}",
            lambda: self._opened().compare(prompt, words),
        )

    def write(self, prompt: str, tokens: int, number: int, seed: int) -> ModelAnswer:
        """Return a stored answer, else that of `Server.write`; a model in this process writes none."""

        def ask() -> ModelAnswer:
            model = self._opened()
            assert isinstance(model, Server)
            return model.write(prompt, tokens, find_request_seed(number, seed))

        of_seed = "" if seed == _USUAL_SEED else f" seed {seed}"
        return self._ask(f"write {tokens} {number}{of_seed}\n{prompt}", ask)

    def _opened(self) -> AnsweringModel:
        with self._lock:
            if self._model is None:
                self._model = self._open()
            return self._model

    def _ask(self, question: str, ask: Callable[[], ModelAnswer]) -> ModelAnswer:
        """Return the stored answer, or the one that another thread is asking for; otherwise ask."""
        key = hashlib.sha256(question.encode()).hexdigest()
        with self._lock:
            answer = self._find(key)
            asked_elsewhere = self._in_flight.get(key)
            own = answer is None and asked_elsewhere is None
            if own:
                self._in_flight[key] = Future()
        if own:
            answer = self._ask_and_keep(key, ask)
        elif answer is None:
            assert asked_elsewhere is not None
            answer = asked_elsewhere.result()
        assert answer is not None

        with self._lock:
            self.counts.update(asked=own, known=not own)
            self.counts.update(prompt_tokens=answer.read, answer_tokens=answer.written)
        return answer

    def _find(self, key: str) -> ModelAnswer | None:
        """Return an answer from the file; the caller holds the lock."""
        with _name_file(self.path):
            row = self._file.execute(
                "SELECT answer FROM answers WHERE question = ?", (key,)
            ).fetchone()
            return ModelAnswer(**json.loads(row[0])) if row else None

    def _ask_and_keep(self, key: str, ask: Callable[[], ModelAnswer]) -> ModelAnswer:
        """Ask, write the answer to the file, and pass it, or the error, to the threads that wait for it."""
        try:
            answer = ask()
            with self._lock, _name_file(self.path):
                self._file.execute(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?)",
                    (key, json.dumps(asdict(answer))),
                )
                self._file.commit()
        except BaseException as error:
            with self._lock:
                self._in_flight.pop(key).set_exception(error)
            raise
        with self._lock:
            self._in_flight.pop(key).set_result(answer)
        return answer

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def _name_file(path: Path) -> Iterator[None]:
    """Turn sqlite's errors about a damaged, locked, read-only or full file of answers into a `UserError`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise UserError(f"{path}: cannot be read or written ({error}); {_RUN_AGAIN}") from None
    except (sqlite3.DatabaseError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); delete it, its questions will be asked again"
        ) from None


class LogprobsRefused(UserError):
    """A server that does not accept a request for the probabilities of words."""


class Server:
    """One model of a server.

    A `UserError` if the key's environment variable is not set or cannot be a key, and if a request still fails after
    its repetitions.
    """

    def __init__(self, endpoint: Endpoint, params: LanguageModel) -> None:
        from openai import OpenAI

        self.endpoint = endpoint
        self.params = params
        self._tells_logprobs = True  # until it refuses a request for them
        url = urlsplit(endpoint.url)
        self.client = OpenAI(
            base_url=url._replace(query="", fragment="").geturl(),
            default_query=dict(parse_qsl(url.query)),  # the client appends paths to `base_url`
            api_key=read_key(endpoint.key) if endpoint.key else "none",
            timeout=endpoint.timeout,
            max_retries=endpoint.retries,
        )

    def complete(self, prompt: str, tokens: int) -> ModelAnswer:
        """Return the answer as text."""
        return self._ask(prompt, self._text, tokens)

    def compare(self, prompt: str, words: tuple[str, str]) -> ModelAnswer:
        """Return the log-odds of two words among the likeliest first words, without regard to case.

        A word that is not among them has at most the probability of the last one listed, and at most the probability
        that all listed words leave. It gets the lesser of these, but at least 1e-9. Servers may list few words, down to
        only the chosen one.
        """
        return self._ask(
            prompt, partial(self._odds, words), 1, logprobs=True, top_logprobs=_LIKELIEST_WORDS
        )

    def write(self, prompt: str, tokens: int, seed: int) -> ModelAnswer:
        """Request a text that the server draws by a seed, with its log-likelihood if the server reports it.

        A server that has refused to report it is not asked for it again.
        """
        if self._tells_logprobs:
            try:
                return self._ask(prompt, self._likely_text, tokens, logprobs=True, seed=seed)
            except LogprobsRefused:
                self._tells_logprobs = False
        return self._ask(prompt, self._likely_text, tokens, seed=seed)

    def _ask(
        self, prompt: str, read: Callable[[Any], ModelAnswer], tokens: int, **options: Any
    ) -> ModelAnswer:
        import openai

        at = self.endpoint.url
        tries = self.endpoint.retries + 1
        params = self.params
        if params.max_completion_tokens is None:
            options["max_tokens"] = tokens
        else:
            options["max_completion_tokens"] = params.max_completion_tokens
        if params.temperature is not None:
            options["temperature"] = params.temperature
        body = dict(params.extra_body)
        if params.chat_template_kwargs:
            body["chat_template_kwargs"] = params.chat_template_kwargs
        messages: Any = [{"role": "user", "content": prompt}]
        try:
            response = self.client.chat.completions.create(
                model=params.model, messages=messages, extra_body=body, **options
            )
        except openai.APITimeoutError:
            raise UserError(
                f"{at}: no answer within {self.endpoint.timeout:g} s, {tries} times; {_RUN_AGAIN}"
            ) from None
        except openai.APIConnectionError as error:
            raise UserError(
                f"{at}: cannot be reached, {tries} times ({error.__cause__ or error}); {_RUN_AGAIN}"
            ) from None
        except openai.APIStatusError as error:
            words = " ".join(without_secrets(str(error.message)).split())[:200]
            is_of_logprobs = error.status_code == 400 and "logprobs" in str(error.message)
            refusal = LogprobsRefused if is_of_logprobs else UserError
            raise refusal(f"{at}: status {error.status_code}: {words}; {_RUN_AGAIN}") from None
        except (
            Exception
        ) as error:  # of the client or its HTTP library, whose messages may hold the key
            raise UserError(
                f"{at}: gives no chat completion ({type(error).__name__}); {_RUN_AGAIN}"
            ) from None
        try:
            return read(response)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise UserError(
                f"{at}: its response is not a chat completion as it was asked for; {_RUN_AGAIN}"
            ) from None

    def _text(self, response: Any) -> ModelAnswer:
        text = response.choices[0].message.content
        return ModelAnswer(str(text or ""), None, *_read_usage(response))

    def _likely_text(self, response: Any) -> ModelAnswer:
        answer = self._text(response)
        logprobs = response.choices[0].logprobs
        words = logprobs.content if logprobs else None
        score = float(sum(word.logprob for word in words)) if words else None
        return ModelAnswer(answer.text, score, answer.read, answer.written)

    def _odds(self, words: tuple[str, str], response: Any) -> ModelAnswer:
        if response.choices[0].logprobs is None:
            problem = (
                "gives no probabilities of words (logprobs), by which yes_no and pairwise score"
            )
            raise UserError(
                f"{self.endpoint.url}: {problem}; take method listwise, or another server"
            )
        likeliest = response.choices[0].logprobs.content[0].top_logprobs
        left = 1 - sum(math.exp(word.logprob) for word in likeliest)
        lowest = min(word.logprob for word in likeliest)
        lowest = min(lowest, math.log(max(left, _LEAST_PROBABILITY)))
        best: dict[str, float] = {}
        first, second = map(str.lower, words)
        for word in likeliest:
            name = word.token.strip().lower()
            best[name] = max(word.logprob, best.get(name, word.logprob))
        score = (
            None
            if not best.keys() & {first, second}
            else best.get(first, lowest) - best.get(second, lowest)
        )
        either = [word for word in likeliest if word.token.strip().lower() in (first, second)]
        share = sum(math.exp(word.logprob) for word in either)
        top = max(likeliest, key=lambda word: float(word.logprob)).token
        return ModelAnswer(str(top), score, *_read_usage(response), share)


def find_request_seed(number: int, seed: int) -> int:
    """Return the seed of a request for one of several texts: the text's number, or a hash if `seed` is not the usual.

    >>> find_request_seed(3, seed=42)
    3
    >>> find_request_seed(0, seed=8) == find_request_seed(1, seed=7)
    False
    """
    if seed == _USUAL_SEED:
        return number
    digest = hashlib.sha256(f"{seed} {number}".encode()).digest()
    return int.from_bytes(digest[:4]) >> 1  # 31 bits, which every server takes


def read_key(variable: str) -> str:
    """Return the key in an environment variable, without spaces and line ends around it.

    Raises:
        UserError: the variable is not set, or its value cannot be part of a request's header.
    """
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(
            f"endpoint.key: the environment variable {variable} is not set; it holds the key"
        )
    remember(key)
    if not _BEARER_KEY.fullmatch(key):
        at = next(
            place
            for place, character in enumerate(key, start=1)
            if not _BEARER_KEY.fullmatch(character)
        )
        problem = f"the environment variable {variable} holds no key: its character {at} of {len(key)} cannot be sent"
        raise UserError(
            f"endpoint.key: {problem}; allowed: letters, digits and signs of ASCII, no blanks"
        )
    return key


def _read_usage(response: Any) -> tuple[int, int]:
    """Return the tokens read and written, as the server counts them; 0 if it does not report them."""
    usage = getattr(response, "usage", None)
    return (int(usage.prompt_tokens or 0), int(usage.completion_tokens or 0)) if usage else (0, 0)


def open_answers(
    job: Job[Any], template: str | None, model: LanguageModel | None = None
) -> AnswerStore:
    """Open the answers of a stage's model; None: the model in the stage's parameters, `LlmParams`.

    They are stored in `results/<dataset>/answers/<model>-<digest>.sqlite`, for all stages that ask the same model.

    Args:
        template: for a model in this process, see `LocalModel`.
    """
    params = model or job.params
    endpoint = read_endpoint(job)
    if endpoint is None:
        from tandem.models.device import use_workers  # imports torch: not for a server

        use_workers(job.execution.workers)

    def open_model() -> AnsweringModel:
        if endpoint is not None:
            return Server(endpoint, params)
        from tandem.extras.language_models.local import LocalModel

        return LocalModel(job.params, template)

    identity = redacted(params.model_dump(mode="json", include=_PROMPT_IDENTITY))
    if endpoint is None:
        # Earlier files hold answers by the settings in models' own files, or to texts with special tokens read as such.
        identity["generation"] = "likeliest, plain texts"
        comparison = "share of"
    else:
        # Earlier answers to `share of …` gave an unlisted word the probability of the last listed one.
        comparison = "odds of"
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
    path = job.out.parent.parent / "answers" / f"{Path(params.model).name}-{digest}.sqlite"
    return AnswerStore(path, open_model, comparison)


def count_at_once(job: Job[Any]) -> int:
    """Return how many questions are asked at a time; a model in this process answers one after another."""
    endpoint = read_endpoint(job)
    return endpoint.at_once if endpoint else 1


def read_endpoint(job: Job[Any]) -> Endpoint | None:
    """Return how to ask a job's server; None for a model in this process."""
    options = job.execution.endpoint
    return None if options is None else read(Endpoint, options, f"{job.kind}: --run.endpoint")
