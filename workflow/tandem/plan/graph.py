"""The graph of stages: readable, content-addressed keys, and the resources of jobs that rules ask for.

A stage is (kind, name, params, upstream stages). Its digest covers its kind's version, its resolved params and the
digests of everything upstream, so that two variants share exactly the artifacts they agree on. The digest does not
depend on how work is split.
"""

import hashlib
import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from tandem.config.settings import ExecutionSettings
from tandem.redaction import set_aside
from tandem.stages import KINDS, Kind, Params
from tandem.stages.base import Json, flatten, format_value
from tandem.store.artifact import MANIFEST

_P = TypeVar("_P", bound=Params)
_DIGITS = 10


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of one variant.

    Attributes:
        kind: key of `KINDS`.
        dataset: the folder of results/ it lives in; `shared` for what belongs to no dataset.
        name: the readable part of its key.
        params: resolved values that decide the result: its kind's model, a plain mapping where the kind has none.
        upstream: role → stage.
        execution: how to run: options that never change the result (a source's path, say).
    """

    kind: str
    dataset: str
    name: str
    params: Any
    # else a stage would print all stages behind it
    upstream: dict[str, "Stage"] = field(default_factory=dict, repr=False)
    execution: Json = field(default_factory=dict)

    @property
    def system(self) -> str:
        """Return the system whose run this is, which is the name without the split: `bm25+ce` of `bm25+ce.dev`."""
        return self.name.rpartition(".")[0]

    @property
    def declared(self) -> Kind:
        """The declaration of its kind."""
        return KINDS[self.kind]

    @cached_property
    def values(self) -> Json:
        """Return the parameters as the command line and the manifest have them, defaults included."""
        if isinstance(self.params, Params):
            return self.params.model_dump(mode="json")
        return dict(self.params)

    def params_as(self, model: type[_P]) -> _P:
        """Return the parameters as the model of the stage's kind."""
        return self.params if isinstance(self.params, model) else model.model_validate(self.values)

    @cached_property
    def digest(self) -> str:
        """The first 10 hex digits of sha256 over what the stage is."""
        upstream = {role: stage.digest for role, stage in self.upstream.items()}
        return digest(self.kind, KINDS[self.kind].version, self.values, upstream)

    @cached_property
    def key(self) -> str:
        """`<name>-<digest>`."""
        return f"{self.name}-{self.digest}"

    @property
    def folder(self) -> str:
        """Return the artifact's folder, relative to the working directory."""
        return f"results/{self.dataset}/{self.kind}/{self.key}"

    @property
    def manifest(self) -> str:
        """Return the file whose existence shows that the artifact is done."""
        return f"{self.folder}/{MANIFEST}"

    @property
    def inputs(self) -> dict[str, str]:
        """Return role → manifest of each upstream stage, with underscores for dots, as Snakemake needs names."""
        return {
            role.replace(".", "_"): stage.manifest for role, stage in sorted(self.upstream.items())
        }

    @property
    def args(self) -> str:
        """Return the stage as command-line flags, sorted and quoted for a shell."""
        inputs = [(f"--in.{role}", stage.folder) for role, stage in self.upstream.items()]
        params = [
            (f"--params.{path}", format_value(value))
            for path, value in self._public["params"].items()
        ]
        return _format_flags(inputs + params)

    @property
    def how(self) -> str:
        """Return how it runs as command-line flags; they are apart from `args`: changing them reruns nothing."""
        options = [
            (f"--run.{name}", format_value(value))
            for name, value in self._public["execution"].items()
        ]
        return _format_flags(options)

    @property
    def secrets(self) -> dict[str, str]:
        """Return the environment variables that its command needs: secrets of URLs, which are left out of its flags."""
        return self._command[1]

    @property
    def _public(self) -> Json:
        return self._command[0]

    @cached_property
    def _command(self) -> tuple[Json, dict[str, str]]:
        """Return the values of the flags, without secrets, and the secrets."""
        whole = {"params": flatten(self.values), "execution": self.execution}
        return set_aside(whole, self.digest)


def digest(kind: str, version: int, params: Json, upstream: dict[str, str]) -> str:
    """Return the first 10 hex digits of sha256 over a stage; `upstream` has its inputs' digests by role."""
    identity = json.dumps([kind, version, flatten(params), upstream], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()[:_DIGITS]


def _format_flags(pairs: list[tuple[str, str]]) -> str:
    return " ".join(f"{flag} {shlex.quote(value)}" for flag, value in sorted(pairs))


class Stages(dict[tuple[str, str], Stage]):
    """Hold every planned stage, by (kind, key)."""

    def __init__(self) -> None:
        super().__init__()
        self._equal: dict[tuple[str, str], Stage] = {}

    def put(self, stage: Stage) -> Stage:
        """Register a stage, or return an equal one, whatever its name: equal models are trained once."""
        known = self._equal.setdefault((stage.dataset, stage.digest), stage)
        return self.setdefault((known.kind, known.key), known)

    def find(self, kind: str, key: str) -> Stage:
        """Return the stage of a key; the KeyError for an unknown one names the command that lists keys."""
        if (kind, key) not in self:
            raise KeyError(
                f"the configuration has no {kind} {key}; `snakemake -n` lists its stages"
            )
        return self[kind, key]


def upstream_first(stages: Iterable[Stage]) -> list[Stage]:
    """Return stages and all that they need, each once, and after its inputs."""
    ordered: dict[tuple[str, str], Stage] = {}

    def visit(stage: Stage) -> None:
        if (stage.kind, stage.key) not in ordered:
            for above in stage.upstream.values():
                visit(above)
            ordered[stage.kind, stage.key] = stage

    for stage in stages:
        visit(stage)
    return list(ordered.values())


# Sorts of artifacts that a training reads behind its inputs: the origins of its weights, and a tokenizer.
ORIGINS = ("checkpoint", "encoder", "training")
# Sorts of artifacts that a search reads and that may have been made for another dataset of the same passages.
SEARCHED = ("lexical index", "vectors")
# Sorts of artifacts that tables and pages do not read: the largest ones.
UNREAD = ("checkpoint", "encoder", "index", "lexical index", "tokens", "vectors")


def read_behind_inputs(stage: Stage) -> list[Stage]:
    """Return the stages whose artifacts a stage reads although they are inputs of its inputs."""
    if stage.declared.holds not in ("checkpoint", "training"):
        return _compared_behind(stage)
    return [
        above
        for above in upstream_first(stage.upstream.values())
        if above.declared.holds in ORIGINS
    ]


def _compared_behind(stage: Stage) -> list[Stage]:
    """Return the datasets and token ids that a search compares if another dataset's vectors or index are used."""
    own = stage.upstream.get("dataset")
    searched = [part for part in stage.upstream.values() if part.declared.holds in SEARCHED]
    if own is None or all(part.upstream["dataset"].digest == own.digest for part in searched):
        return []
    return [
        part.upstream[role]
        for part in searched
        for role in ("dataset", "tokens")
        if role in part.upstream
    ]


def read_by_views(shown: Iterable[Stage]) -> list[Stage]:
    """Return the stages that a view shows, and the stages behind them whose artifacts tables and pages read."""
    named = {stage.folder for stage in shown}
    return [
        stage
        for stage in upstream_first(shown)
        if stage.folder in named or stage.declared.holds not in UNREAD
    ]


class Placement:
    """Decide how stages become jobs: in how many shards, on which devices and nodes. Nothing here changes a result."""

    def __init__(self, stages: Stages, execution: ExecutionSettings) -> None:
        self.stages = stages
        self.execution = execution

    def shards(self, kind: str, key: str) -> list[str]:
        """Return the files of the `execution.shards` jobs that share a stage's work before it runs itself.

        It is empty for queries' embeddings and if no work is shared. A single shard is not a job of its own: the stage
        computes whatever is missing.
        """
        stage = self.stages.find(kind, key)
        count = self.execution.shards
        if count == 1 or stage.values.get("side") == "queries" or not KINDS[kind].is_shared(stage):
            return []
        return [f"{stage.folder}/shards/{i}-of-{count}.json" for i in range(count)]

    def state(self, key: str) -> list[str]:
        """Return the folder of the state that a checkpoint's training resumes from; empty for the first checkpoint."""
        after = self.stages.find("checkpoint", key).upstream.get("after")
        return [f"{after.folder}/state"] if after else []

    def gpus(self, kind: str, key: str) -> int:
        """Return the GPUs of a job on one node: what Snakemake counts and slurm allocates."""
        stage = self.stages.find(kind, key)
        if "index_gpu" in stage.execution:  # it makes an index, or searches through one
            return 0 if stage.execution["index_gpu"] == "none" else self.execution.devices
        if not stage.declared.uses_gpu(stage.upstream, stage.execution):
            return 0
        return self.execution.devices if stage.declared.ranks else 1

    def training(self) -> dict[str, Any]:
        """Return the resources of a training.

        On several nodes it gets as many GPUs on each (`gres`), and `start`, the words before its command: srun starts
        a launcher on every node of the job's allocation.
        """
        devices = self.execution.devices
        nodes = self.execution.nodes

        def gpu(wildcards: Any) -> int:
            """Return the GPUs of the job on one node."""
            return self.gpus(wildcards.kind, wildcards.key)

        def srun(wildcards: Any, threads: int) -> str:
            """Return the words that start a launcher on each node, all of which end if one fails; "" without a GPU."""
            if not gpu(wildcards):
                return ""
            return f"srun --nodes={nodes} --ntasks={nodes} --cpus-per-task={threads} --kill-on-bad-exit=1 "

        if nodes == 1:
            return {"gpu": gpu, "start": "", "nodes": 1}  # slurm may distribute GPUs over nodes
        # `mpi` has the slurm plugin start the job's shell once instead of under an srun of its own.
        tasks = {
            "mpi": "srun",
            "nodes": nodes,
            "tasks": nodes,
            "tasks_per_gpu": 0,
            "gres": f"gpu:{devices}",
        }
        return {"start": srun, **tasks}
