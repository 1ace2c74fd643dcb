"""Language models that re-rank, grade or write: in this process, or behind an OpenAI-compatible server."""

import re
from collections.abc import Mapping
from operator import not_
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tandem.config.base import Precision, Section, equals, problem
from tandem.config.parsing import WORDS
from tandem.config.references import NoParameter
from tandem.stages.base import Params

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Keys of a request's body that Tandem itself sets, or that a key of the entry sets.
RESERVED = frozenset({
    "chat_template_kwargs", "logprobs", "max_completion_tokens", "max_tokens", "messages", "model", "n", "stream",
    "temperature", "top_logprobs",
})  # fmt: skip


def _names_variable(value: str | None) -> str | None:
    """Refuse a value that cannot be a variable's name, without showing it: it may be the key itself."""
    if value is not None and not _VARIABLE.fullmatch(value):
        raise problem(
            " is not the name of an environment variable; put the key into one, and name that here"
        )
    return value


def _is_address(value: str) -> str:
    try:
        parts = urlsplit(value)
        known = bool(parts.hostname) and parts.port != 0
    except ValueError:  # invalid brackets or ports
        known = False
    if not known:
        raise problem(f" is {value}, no address; allowed: http://host:port/v1")
    return value


def _with_words(value: Any) -> Any:
    """Return true, false and null for their texts; Snakemake passes nested values of `--config` as texts."""
    if isinstance(value, str):
        return WORDS.get(value.lower(), value)
    if isinstance(value, Mapping):
        return {name: _with_words(inner) for name, inner in value.items()}
    return [_with_words(inner) for inner in value] if isinstance(value, list | tuple) else value


def _without_dots(value: dict[str, object]) -> dict[str, object]:
    """Refuse empty names, and names with a dot, which separates the names of nested parameters."""
    for name, inner in value.items():
        if not name or "." in name:
            raise problem(f" has a name {name!r}; allowed: names without a dot")
        if isinstance(inner, dict):
            _without_dots(inner)
    return value


FreeKeys = Annotated[dict[str, object], BeforeValidator(_with_words), AfterValidator(_without_dots)]
"""What somebody else defines: a chat template, or a server."""


def _not_reserved(value: dict[str, object]) -> dict[str, object]:
    for name in value:
        if name in RESERVED:
            raise problem(
                f" has {name}, which is not set here; it has a key of its own, or follows from the method"
            )
    return value


class Endpoint(Section):
    """How to ask an OpenAI-compatible server; nothing here changes an answer."""

    url: Annotated[str, AfterValidator(_is_address)] = Field(
        pattern="^https?://",
        description="address with the version, such as http://localhost:8000/v1",
    )
    key: Annotated[str | None, AfterValidator(_names_variable)] = Field(
        None, description="environment variable that holds the server's key; null: it needs none"
    )
    timeout: float = Field(60.0, gt=0, description="seconds that an answer may take")
    retries: int = Field(
        5,
        ge=0,
        description="repetitions of a request that fails or meets a rate limit, after ever longer pauses",
    )
    at_once: int = Field(4, ge=1, description="questions that are sent at once")


class LanguageModel(Section):
    """A language model, and what it reads."""

    model: str = Field(
        description="folder or organisation/name on the hub; with `endpoint`: its name on the server"
    )
    revision: str | None = Field(None, description="commit on the hub; null: main, which may move")
    characters: int = Field(
        2000, ge=1, description="characters of a passage that the model reads, from its beginning"
    )
    precision: Precision = Field(
        "auto",
        description="precision of a model in this process; auto: bf16 where that is faster",
    )
    chat_template_kwargs: FreeKeys = Field(
        {},
        exclude_if=not_,
        description="values for variables of the chat template, such as {enable_thinking: false}",
    )
    max_completion_tokens: int | None = Field(
        None,
        ge=1,
        exclude_if=not_,
        description="tokens of an answer with its thoughts; null: max_tokens, what the words need",
    )
    temperature: float | None = Field(
        0.0,
        ge=0,
        exclude_if=equals(0.0),
        description="temperature sent to an endpoint; null: not sent; 0: the likeliest words",
    )
    extra_body: Annotated[FreeKeys, AfterValidator(_not_reserved)] = Field(
        {},
        exclude_if=not_,
        description="further keys in requests to an endpoint, such as {reasoning_effort: minimal}",
    )


def check_served(served: LanguageModel) -> None:
    """Refuse keys of a model in this process next to an endpoint: they would only change the question's identity."""
    for key in ("revision", "precision"):
        value = getattr(served, key)
        if value != LanguageModel.model_fields[key].default:
            raise problem(f".{key} is {value}, but the endpoint has its own model; leave it out")


class HostedModel(LanguageModel):
    """A language model, and where it runs."""

    endpoint: Annotated[Endpoint | None, NoParameter()] = Field(
        None, description="server that is asked; null: the model runs in this process"
    )

    @model_validator(mode="after")
    def _of_this_process(self) -> Self:
        if self.endpoint:
            check_served(self)
        return self

    @model_validator(mode="after")
    def _of_an_endpoint(self) -> Self:
        set_here = [name for name in ("temperature", "extra_body") if name in self.model_fields_set]
        if set_here and not self.endpoint:
            raise problem(
                f".{set_here[0]} is set, but a model in this process needs none; leave it out"
            )
        return self


class LlmParams(LanguageModel, Params):
    """A language model that a stage asks."""

    fingerprint: str | None = Field(
        None,
        description="of a model in a folder: digest of names and contents of its files, of large ones by size and ends",
    )
    url: str | None = Field(
        None, description="the server's address; null: the model runs in the stage"
    )


UnlikelyBelow = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        exclude_if=equals(0.05),
        description="probability of both words together, below which an answer counts as neither; 0: never",
    ),
]
