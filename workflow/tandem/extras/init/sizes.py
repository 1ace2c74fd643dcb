"""Sizes of a first experiment that fit a machine, a collection and an encoder."""

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tandem.cluster.leases import offered
from tandem.data.statistics import PassageStatistics
from tandem.extras.estimate.resources import tokens_of
from tandem.extras.init.look import Look
from tandem.plan.encoders import Shape

LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container
GIB = 1 << 30
TYPICAL = {"passage": 73.0, "query": 8.5}  # tokens, where nothing is counted
BERT_BASE = Shape(layers=12, hidden=768, feed_forward=3072, vocabulary=30522)
SPECIAL = 3  # tokens of a pair beside its texts
GRAPH_TOKENS = 131_072  # at most; more tokens at once gain nothing
FEWEST_TOKENS = 2048
LARGE = 512  # hidden numbers, from which the learning rates of small encoders are too high


@dataclass(frozen=True)
class Machine:
    """Cores, bytes of memory, and the first GPU with its memory; an empty name without one."""

    cores: int
    memory: int
    gpu: str = ""
    gpu_memory: int = 0

    @classmethod
    def here(cls) -> Self:
        """This machine, as far as the process may use it."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with suppress(OSError, ValueError):  # "max" where there is no limit
            memory = min(memory, int(LIMIT.read_text()))
        cores = os.cpu_count() or 1
        return cls(cores, memory, *_gpu(ids[0])) if (ids := offered(os.environ)) else cls(cores, memory)

    def __str__(self) -> str:
        """The same in words."""
        gpu = f"{self.gpu} with {self.gpu_memory / GIB:.0f} GiB" if self.gpu else "no GPU"
        return f"{self.cores} cores, {self.memory / GIB:.0f} GiB of memory, {gpu}"


def _gpu(number: str) -> tuple[str, int]:
    """Name and bytes of a GPU, by the driver's own tool, which starts no CUDA."""
    words = ["nvidia-smi", f"--id={number}", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        name, _, mebibytes = done.stdout.partition("\n")[0].rpartition(", ")
        return name, int(mebibytes) << 20
    except (OSError, ValueError, subprocess.SubprocessError):
        return "a GPU of unknown size", 8 * GIB


@dataclass(frozen=True)
class Sizes:
    """What a machine can do in a first experiment: trainings of minutes on two cores, or on one GPU.

    Attributes:
        queries: split → at most so many queries of it.
        passage: the longest passage, in tokens.
        rerank: passages of a query that are re-ranked.
        minutes: of each training on two CPU cores, which a GPU passes in a thousandth of the time.
        train: further keys of every model's `train`.
    """

    queries: dict[str, int]
    passage: int
    rerank: int
    minutes: dict[str, int]
    train: dict[str, Any]


CPU = Sizes(
    queries={"train": 5_000, "dev": 500, "test": 1_000},
    passage=192,
    rerank=10,
    minutes={"de_bm25neg": 5, "ce_bm25neg": 10, "ce_deneg": 10, "rocketqav2": 10},
    train={},
)
GPU = Sizes(
    queries={"train": 50_000, "dev": 2_000, "test": 10_000},
    passage=384,
    rerank=50,
    minutes={"de_bm25neg": 3_000, "ce_bm25neg": 6_000, "ce_deneg": 6_000, "rocketqav2": 6_000},
    train={"queries_per_batch": 64, "list_size": 8},
)


def lengths(look: Look, sizes: Sizes, shape: Shape) -> dict[str, int]:
    """The longest query and passage in tokens: nine of ten are not cut, as far as machine and encoder allow."""
    query = _rounded(look.lengths["query"], "query", 8, 64)
    passage = _rounded(look.lengths["passage"], "passage", 16, sizes.passage)
    return {"query": query, "passage": min(passage, shape.positions - query - SPECIAL - 2)}


def _rounded(counted: PassageStatistics, side: str, step: int, most: int) -> int:
    tokens = tokens_of(counted, TYPICAL[side], "p90")
    return min(most, max(2 * step, step * -(-int(tokens) // step)))


def execution(machine: Machine, shape: Shape, passage: int) -> dict[str, Any]:
    """How much a GPU computes at once: tokens whose activations fill half of its memory; {} without a GPU."""
    if not machine.gpu:
        return {}
    graph = GRAPH_TOKENS
    while graph > FEWEST_TOKENS and shape.activations(graph, passage) > machine.gpu_memory / 2:
        graph //= 2
    return {"micro_tokens": min(16_384, graph), "graph_tokens": graph, "hardware": "h200"}


def train_keys(sizes: Sizes, model: str, shape: Shape, choose: str) -> dict[str, Any]:
    """A model's `train`: a budget, and the learning rate of a large encoder."""
    keys: dict[str, Any] = {"choose": choose, "budget_minutes": sizes.minutes[model]}
    return keys | ({"lr": 2.0e-5} if shape.hidden >= LARGE else {}) | sizes.train
