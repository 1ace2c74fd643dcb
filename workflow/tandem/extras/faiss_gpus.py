"""FAISS on GPUs (faiss-gpu), where `execution.index_gpu` decides how several share an index; and FAISS's errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import faiss

from tandem.cluster.scheduler import lease
from tandem.errors import UserError
from tandem.store.job import Job

# ways to use GPUs; also "replicate"
NONE = "none"
SHARD = "shard"


@contextmanager
def explain_errors(problem: str) -> Iterator[None]:
    """Turn FAISS's errors into a `UserError` with the problem and FAISS's message, without its C++ context."""
    try:
        yield
    except MemoryError:
        raise UserError(f"{problem}: not enough memory") from None
    except RuntimeError as error:
        # Error in <function> at <file>.cpp:<line>: Error: '<condition>' failed: <message>. The last two parts vary.
        line = str(error).strip().splitlines()[-1]
        words = re.sub(r"^Error in .* at \S+:\d+: ", "", line)
        message = re.sub(r"^Error: '(.*?)' failed:? ?(?=.)", "", words)
        raise UserError(f"{problem}: {message}") from None


def lease_gpus(job: Job[Any]) -> str:
    """Return how a job uses GPUs, leased before anything uses them; a `UserError` if this FAISS has no GPU support."""
    mode = job.execution.index_gpu
    if mode != NONE:
        lease(job.execution.devices, job.kind)
        if not faiss.get_num_gpus():
            problem = (
                f"execution.index_gpu is {mode}, but FAISS {faiss.__version__} has no GPU here"
            )
            raise UserError(
                f"{problem}; install faiss-gpu in place of faiss-cpu, or set it to none"
            )
    return mode


@cache
def _make_resources() -> list[Any]:
    """Make FAISS's resources of each GPU, once per process: each reserves 1.5 GiB; one call at a time may use them."""
    return [faiss.StandardGpuResources() for _ in range(faiss.get_num_gpus())]


def on_gpus(index: Any, mode: str) -> Any:
    """Return an index, copied to the GPUs this process sees; a `UserError` for a type without a GPU form (HNSW).

    `mode` is `none`: as it is; `replicate`: a whole copy on each GPU, which share the queries; or `shard`: a part on
    each.
    """
    if mode == NONE:
        return index
    options = faiss.GpuMultipleClonerOptions()
    options.shard = mode == SHARD
    options.useFloat16 = True
    with explain_errors(
        f"execution.index_gpu is {mode}, but FAISS cannot search this index on GPUs"
    ):
        return faiss.index_cpu_to_gpu_multiple_py(_make_resources(), index, options)
