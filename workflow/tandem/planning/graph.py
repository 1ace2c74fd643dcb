"""From a configuration to stages with readable, content-addressed keys.

A stage is (kind, name, params, upstream stages). Its digest covers its kind's version, its resolved params and the
digests of everything upstream, so two variants share exactly the artifacts they agree on. How work is split is not in
it.
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tandem.artifact import MANIFEST
from tandem.stages import KINDS

# Parameters that came later, by kind (and objective): dotted path → the value that means "as before". Such a value is
# left out of the digest, so that artifacts made before the parameter existed keep their names.
NEUTRAL: dict[str, dict[str, Any]] = {
    "encoder": {"layers": None},
    "candidates": {"labels": "qrels", "bar_answers": False, "take": "random", "negatives_per": "query"},
    "embeddings": {"dtype": "fp16"},
    "model": {
        "lora": None,
        "train.checkpoints": None,
        "train.distil": None,
        "train.margin": 1.0,
        "train.distil.margin": 1.0,
        "train.distil.temperature": 1.0,
    },
    "model.dual": {"train.loss": "listwise", "train.passage_centric": 0.0, "train.regularise": None},
    "model.cross": {"train.in_batch": False},
    "model.joint": {"train.temperature": 1.0},
}
ALIKE = {"checkpoint": "model"}  # kinds with the parameters of another
DIGITS = 10
# Of `execution`: how a training runs.
TRAINING = (
    *("micro_tokens", "graph_tokens", "attention", "compile", "checkpoint_seconds", "stop_seconds", "devices", "nodes"),
)


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of one variant.

    Attributes:
        kind: key of `KINDS`.
        dataset: the folder of results/ it lives in; `shared` for what belongs to no dataset.
        name: the readable part of its key.
        params: resolved values that decide the result.
        upstream: role → stage.
        execution: how to run: flags that never change the result (a source's path, say).
    """

    kind: str
    dataset: str
    name: str
    params: dict[str, Any]
    upstream: dict[str, "Stage"] = field(default_factory=dict)
    execution: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """The first 10 hex digits of sha256 over what the stage is."""
        upstream = {role: stage.digest for role, stage in self.upstream.items()}
        return digest(self.kind, KINDS[self.kind].version, self.params, upstream)

    @property
    def key(self) -> str:
        """`<name>-<digest>`."""
        return f"{self.name}-{self.digest}"

    @property
    def folder(self) -> str:
        """The artifact's folder, relative to the working directory."""
        return f"results/{self.dataset}/{self.kind}/{self.key}"

    @property
    def manifest(self) -> str:
        """The file that says the artifact is done."""
        return f"{self.folder}/{MANIFEST}"

    @property
    def inputs(self) -> dict[str, str]:
        """Role → manifest of each upstream stage; dots become underscores, as Snakemake's names want it."""
        return {role.replace(".", "_"): stage.manifest for role, stage in sorted(self.upstream.items())}

    @property
    def args(self) -> str:
        """What it is as command-line flags, sorted and quoted for a shell."""
        flags = [(f"--in.{role}", stage.folder) for role, stage in self.upstream.items()]
        return _flags(flags + [(f"--params.{path}", literal(value)) for path, value in flat(self.params)])

    @property
    def how(self) -> str:
        """How it runs as command-line flags: kept apart, so that a change of it reruns nothing."""
        return _flags([(f"--run.{name}", literal(value)) for name, value in self.execution.items()])


def digest(kind: str, version: int, params: dict[str, Any], upstream: dict[str, str]) -> str:
    """The first 10 hex digits of sha256 over what a stage is; `upstream` are its inputs' digests by role."""
    alike = ALIKE.get(kind, kind)
    neutral = NEUTRAL.get(alike, {}) | NEUTRAL.get(f"{alike}.{params.get('objective')}", {})
    told = {path: value for path, value in flat(params) if path not in neutral or neutral[path] != value}
    return hashlib.sha256(json.dumps([kind, version, told, upstream], sort_keys=True).encode()).hexdigest()[:DIGITS]


def _flags(pairs: list[tuple[str, str]]) -> str:
    return " ".join(f"{flag} {shlex.quote(value)}" for flag, value in sorted(pairs))


def flat(params: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every leaf; empty mappings and lists are leaves."""
    for key, value in params.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def literal(value: Any) -> str:
    """A value as the command line reads it back: plain text where that is unambiguous, else JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value)


class Stages(dict[tuple[str, str], Stage]):
    """Every stage that is wanted, by (kind, key)."""

    def __init__(self) -> None:
        super().__init__()
        self._equal: dict[tuple[str, str], Stage] = {}

    def put(self, stage: Stage) -> Stage:
        """Register a stage, or give the equal one that is there, whatever its name: equal models are trained once."""
        there = self._equal.setdefault((stage.dataset, stage.digest), stage)
        return self.setdefault((there.kind, there.key), there)

    def inputs(self, kind: str) -> Callable[[Any], dict[str, str]]:
        """An input function for a rule of this kind."""
        return lambda wildcards: self.find(kind, wildcards.key).inputs

    def args(self, kind: str) -> Callable[[Any], str]:
        """A params function for a rule of this kind."""
        return lambda wildcards: self.find(kind, wildcards.key).args

    def how(self, kind: str) -> Callable[[Any], str]:
        """A resources function for a rule of this kind."""
        return lambda wildcards: self.find(kind, wildcards.key).how

    def find(self, kind: str, key: str) -> Stage:
        """The stage of a key; a KeyError that says what a key is, where nobody wants it."""
        if (kind, key) not in self:
            raise KeyError(f"the configuration wants no {kind} {key}; see `snakemake -n` for what it wants")
        return self[kind, key]


def upstream_first(stages: Iterable[Stage]) -> list[Stage]:
    """Stages and all they need, each once, inputs before what is made from them."""
    ordered: dict[tuple[str, str], Stage] = {}

    def visit(stage: Stage) -> None:
        if (stage.kind, stage.key) not in ordered:
            for above in stage.upstream.values():
                visit(above)
            ordered[stage.kind, stage.key] = stage

    for stage in stages:
        visit(stage)
    return list(ordered.values())
