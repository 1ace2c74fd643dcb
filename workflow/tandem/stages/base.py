"""Declare kinds of stages, and convert parameters to words of a command line and back.

Declarations are data. Rules, the command line, estimates, the report and `gc` read them; nothing lists kinds again.
This package imports neither torch nor FAISS nor Java, so that planning stays light."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from operator import not_
from typing import Any, Literal, Protocol, get_args

from pydantic import ConfigDict, Field

from tandem.config.base import Items, Model
from tandem.config.retrieval import searches_on_gpu
from tandem.errors import UserError

Json = dict[str, Any]  # an object as JSON has it: resolved parameters, facts
# A function of a `Job`: `module:function` below the package `tandem`, or a plugin's own.
Entry = str | Callable[..., Any]
# Kinds of work, in the order in which a run passes them: the boxes of the report's drawing.
Box = Literal[
    "Collection", "Encoder", "Sparse search", "Training lists", "Training", "Encoding", "Retrieval", "Fusion",
    "Re-ranking", "Audits", "Scores",
]  # fmt: skip
BOXES: tuple[str, ...] = get_args(Box)
# What an artifact is: for the costs of a system, for `gc`, and for any other code that looks for a sort of artifact.
Holds = Literal[
    "collection", "encoder", "tokens", "vectors", "index", "lexical index", "lists", "training", "checkpoint", "scores",
    "other",
]  # fmt: skip


class Params(Model):
    """Base of a kind's parameters: the resolved values that decide its result and are hashed into its key.

    Where a section of the configuration has the same keys, the kind's model inherits from it.
    """

    model_config = ConfigDict(strict=False)

    plugins: Items[str] = Field(
        (), exclude_if=not_, description="the plugins that the stage uses: file@digest"
    )


@dataclass(frozen=True)
class Part:
    """The parts of a stage's work, each of so many rows, which shards share."""

    rows: int
    # texts: generated ones, `number` for each passage
    unit: Literal["passages", "queries", "texts"]


@dataclass(frozen=True)
class Scoring:
    """Describe the scores of a run.

    Attributes:
        by: what scores passages, also those of a new query; empty: the run answers no new query.
        of: the passages whose scores have a meaning: all, the first `depth`, or those of the system that was chosen.
            The other passages keep the order of the input run.
        zero: whether scores begin at 0: never, always, or (cosine) if the model's vectors have length 1.
        depth_key: the configuration's key that may make it less deep than other runs, with `{name}` for the entry.
        order_if: whether the scores of a stage state only the order of its passages; None: never.
    """

    by: Literal["", "lexical", "dual", "cross", "fusion"] = ""
    of: Literal["all", "top", "chosen"] = "all"
    zero: Literal["never", "always", "cosine"] = "never"
    depth_key: str = ""
    order_if: "Callable[[Planned], bool] | None" = None


class Planned(Protocol):
    """The properties of a planned stage that declarations may read."""

    @property
    def upstream(self) -> Json:
        """Return role → the stage that is this input."""

    @property
    def execution(self) -> Json:
        """Return its options that never change the result."""

    @property
    def values(self) -> Json:
        """Return its parameters, as the manifest has them."""


@dataclass(frozen=True)
class Kind:
    """The declaration of one kind of stage.

    Attributes:
        name: the kind, also its command, its rule and its folder under results/<dataset>/.
        run: the function that makes it.
        params: model of its parameters.
        version: part of every digest; raise it when the meaning of the result changes.
        env: conda environment under envs/.
        threads: CPU threads of a job: all cores, one, or all cores with no other job at the same time.
        retries: how often Snakemake repeats a failed job.
        gpu: roles of the inputs that need a GPU, without numbers: `judge` for `judge.0`.
        ranks: whether several processes, one per device, may share its work.
        shard: if jobs may share its work, the function that computes one shard and returns facts for its file.
        shard_for: roles of inputs, at least one of which a stage must have to share its work; empty: none is needed.
        shard_if: whether a stage has work to share; None: always.
        shard_retries: `retries` of a shard.
        part: the size and unit of its parts, if jobs share the stage in parts of a fixed size.
        train: the function that runs before the shards and prepares what all of them need.
        lazy: roles of the inputs whose files the stage itself checks against their manifests, as far as it reads them.
        in_runs: whether an entry of `runs` may name it: it writes a run from `dataset` and perhaps `run`.
        box: the box of the report's drawing that it belongs to.
        holds: what its artifacts contain.
        vectors: for a kind that encodes, what a row of its blocks represents: a `text`, or a name that a package adds
            by `@side_encoder` (`tandem.stages.retrieval`).
        scoring: for a kind that writes runs, a description of their scores.
        split_key: for a kind that chooses something, the configuration's key of the split whose queries decide, with
            `{name}` for the entry.
        lower_is_better: whether a lower value is better, for a kind that measures one.
        verb: the word before the name of a stage in a line of progress; empty: the kind's name.
        rule: the name of its rule, if that differs from the kind's.
        is_packed: whether a bundle of a table has its files; of other kinds, except runs, it has only the manifest.
        one_thread_if: whether a stage takes one thread instead of `threads`; None: never.
        tokens: for a kind with a tokenizer, the kind of stage that makes token ids by it.
        package: the name on PyPI of a package that it needs and Tandem does not install; empty: none.
        additions: registries whose entries act in every stage of the kind, though no configuration names them: the
            keys of all these stages contain a plugin that adds an entry.
    """

    name: str
    run: Entry
    params: type[Params] | None = None
    version: int = 1
    env: Literal["data", "models", "lexical", "search", "notebooks"] = "data"
    threads: Literal["all", "one", "exclusive"] = "one"
    retries: int = 0
    gpu: tuple[str, ...] = ()
    ranks: bool = False
    shard: Entry | None = None
    shard_for: tuple[str, ...] = ()
    shard_if: Callable[[Planned], bool] | None = None
    shard_retries: int = 2
    part: Part | None = None
    train: Entry | None = None
    lazy: tuple[str, ...] = ()
    in_runs: bool = False
    box: Box = "Scores"
    holds: Holds = "other"
    vectors: str = ""
    scoring: Scoring = Scoring()
    split_key: str = ""
    lower_is_better: bool = False
    verb: str = ""
    rule: str = ""
    is_packed: bool = False
    one_thread_if: Callable[[Planned], bool] | None = None
    tokens: str = "tokens"
    package: str = ""
    additions: tuple[Iterable[str], ...] = field(default=(), compare=False)

    @property
    def rule_name(self) -> str:
        """Return the name of its rule."""
        return self.rule or self.name

    @property
    def does(self) -> str:
        """Return what it does, in words for a line of progress."""
        return self.verb or self.name.replace("_", " ")

    def takes_one_thread(self, stage: Planned) -> bool:
        """Return whether a stage of this kind takes one thread."""
        return self.threads == "one" or (
            self.one_thread_if is not None and self.one_thread_if(stage)
        )

    def require_package(self) -> None:
        """Refuse to make the stage where its `package` is not installed."""
        if not self.package:
            return
        try:
            distribution(self.package)
        except PackageNotFoundError:
            problem = f"{self.name}: the package {self.package} is not installed"
            raise UserError(
                f"{problem}; pip install {self.package}, or leave out what needs it"
            ) from None

    def uses_gpu(self, roles: Iterable[str], execution: Json) -> bool:
        """Return whether a stage with inputs of these roles uses a GPU; it needs none for the model of a server.

        `execution` has the stage's options, as planned or as its flags state them.
        """
        return (
            _any_of(roles, self.gpu)
            and "endpoint" not in execution
            and searches_on_gpu(execution.get("engine"))
        )

    @property
    def shard_command(self) -> str:
        """Return the command that computes one shard."""
        return f"{self.name}-shard"

    @property
    def train_command(self) -> str:
        """Return the command for work that must be done before all shards."""
        return f"{self.name}-train"

    def is_shared(self, stage: Planned) -> bool:
        """Return whether jobs may share the work of a stage of this kind."""
        if self.shard is None or (self.shard_if and not self.shard_if(stage)):
            return False
        return not self.shard_for or _any_of(stage.upstream, self.shard_for)


def _any_of(roles: Iterable[str], names: tuple[str, ...]) -> bool:
    """Return whether an input has one of these roles; numbers do not count: `judge.0` has the role `judge`."""
    return any(role.split(".")[0] in names for role in roles)


def flatten(params: Json, prefix: str = "") -> Json:
    """Return a mapping without nesting: `{"a": {"b": 1}}` → `{"a.b": 1}`; lists and empty mappings are values."""
    flat: Json = {}
    for name, value in params.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def nest(flat: Json) -> Json:
    """Return a nested mapping: `{"a.b": 1}` → `{"a": {"b": 1}}`."""
    nested: Json = {}
    for path, value in flat.items():
        *parents, last = path.split(".")
        at = nested
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    return nested


def format_value(value: Any) -> str:
    """Return a value as the command line reads it back: plain text where that is unambiguous, else JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value)


def parse_value(text: str) -> Any:
    """Return a flag's value: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_flags(words: Iterable[str], prefix: str) -> dict[str, str]:
    """Return the values of a stage's flags that begin with `prefix`: the rest of the flag → the text behind it.

    >>> read_flags(["rerank", "--in.model", "m", "--run.devices", "2"], "--in.")
    {'model': 'm'}
    """
    return {
        flag.removeprefix(prefix): text for flag, text in pairwise(words) if flag.startswith(prefix)
    }


def flag_value(words: list[str], flag: str, default: str = "") -> str:
    """Return the text behind a flag on a stage's command line."""
    return words[words.index(flag) + 1] if flag in words[:-1] else default
