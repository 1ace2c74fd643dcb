"""Which language model a stage asks: one in this process, or behind an OpenAI-compatible server.

That is vLLM, Ollama, `transformers serve`, or a cloud's. OpenAI's client repeats requests that fail or meet a rate
limit, ever later, or when the server says so.
"""

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tandem.config.language_models import Endpoint
from tandem.errors import UserError
from tandem.retrieval.llm.answers import Answer, Answers, Model
from tandem.stages.retrieval import LlmParams
from tandem.store.job import Job

LIKELIEST = 20  # words at the beginning of an answer whose probabilities are asked for: the most that servers give
AGAIN = "what is answered is kept: run the same command again"


def open_answers(job: Job[Any], chat: bool) -> Answers:
    """The answers of a stage's model; the stage's parameters are `LlmParams`.

    They are kept in `results/<dataset>/answers/<model>-<digest>.sqlite`, for all stages that ask the same model.

    Args:
        chat: put prompts into the chat template of a model in this process, if it has one.
    """
    params, endpoint = job.params, job.execution.endpoint
    if endpoint is None:
        from tandem.models.device import use_workers  # torch: not for those who ask a server

        use_workers(job.execution.workers)
    identity = params.model_dump(mode="json", include={"model", "revision", "fingerprint", "url", "precision"})
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
    path = job.out.parent.parent / "answers" / f"{Path(params.model).name}-{digest}.sqlite"
    return Answers(path, partial(_open_model, params, endpoint, chat))


def _open_model(params: LlmParams, endpoint: Endpoint | None, chat: bool) -> Model:
    if endpoint is not None:
        return Server(endpoint, params.model)
    from tandem.retrieval.llm.local import LocalModel

    return LocalModel(params.model, params.revision, params.precision, chat)


def at_once(job: Job[Any]) -> int:
    """How many questions are asked at a time; a model in this process answers one after the other."""
    return job.execution.endpoint.at_once if job.execution.endpoint else 1


class Server:
    """One model of a server.

    Raises:
        UserError: the environment variable of the key is not set; a request that still fails after its repetitions.
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
        """One answer, read from the server's response."""
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
