"""How stages run. Nothing here is part of a stage's key, and nothing here changes a result."""

from typing import Literal

from pydantic import ConfigDict, Field

from tandem.config.base import Items, Section
from tandem.config.language_models import Endpoint

HEAP = "2g"  # of Java, for 8.8 million passages: Lucene maps its files into memory outside the heap


class Mirror(Section):
    """Another place for downloads."""

    from_: str = Field(alias="from", description="the beginning of a URL")
    to: str = Field(description="what replaces it")


class Training(Section):
    """How trainings and encoders use their devices."""

    micro_tokens: int = Field(2048, ge=64, description="tokens per forward and backward pass")
    graph_tokens: int = Field(16384, ge=64, description="tokens whose graph is kept in memory at once")
    attention: Literal["auto", "padded", "packed"] = Field("auto", description="auto: packed in bf16 on CUDA")
    compile: Literal["auto", "always", "never"] = Field("auto", description="torch.compile; auto: where packed on CUDA")
    checkpoint_seconds: float = Field(60.0, ge=0, description="seconds between two saved states of a training")
    stop_seconds: float = Field(120.0, ge=0, description="a training is requeued this long before its slurm job ends")
    devices: int = Field(1, ge=1, description="GPUs of a training; on a machine without GPUs, processes")
    nodes: int = Field(1, ge=1, description="machines of a training, each with that many devices; needs slurm")


class ExecutionSettings(Training):
    """The configuration's `execution` block."""

    shards: int = Field(1, ge=1, description="jobs that share the work of a stage")
    engine: Literal["auto", "faiss", "torch"] = Field("auto", description="of exact search; auto: torch on CUDA")
    search_memory: int | None = Field(None, ge=16, description="MiB that an exact search may hold; null: 2,048")
    threads: int | None = Field(None, ge=1, description="CPU threads of a job; null: all cores, one job at a time")
    index_gpu: Literal["none", "replicate", "shard"] = Field("none", description="indexes on `devices` GPUs")
    hardware: str = Field("cpu", description="entry of config/hardware/ that `estimate` calculates with")
    mirrors: Items[Mirror] = Field((), description="other places for downloads, tried in order")


class Execution(ExecutionSettings):
    """What one job's command line says about how it runs: the configuration's block and the job's own options.

    A stage gets only the options that it uses (`--run.<name>`); the others keep their defaults.
    """

    model_config = ConfigDict(strict=False)

    workers: int | None = Field(None, ge=1, description="CPU threads of this job; null: as many as cores")
    shard: int | None = Field(None, ge=0, description="which shard this job computes, counted from 0")
    path: str | None = Field(None, description="folder or file of the source")
    name: str | None = Field(None, description="name of the source")
    files: tuple[dict[str, object], ...] | dict[str, object] | None = Field(None, description="files of the source")
    checksum: str | None = Field(None, description="sha256 of the source")
    licence: str | None = Field(None, description="licence of the source, carried into model cards")
    vectors: dict[str, object] | None = Field(None, description="of an encoder: how its models make them, by its files")
    plugins: Items[str] = Field((), description="files of the plugins that the stage uses")
    heap: str | None = Field(None, description="memory of Java, as its -Xmx has it")
    endpoint: Endpoint | None = Field(None, description="of a language model that a server runs: how it is asked")
    counts: dict[str, int] | None = Field(None, description="how much the source is expected to hold")
