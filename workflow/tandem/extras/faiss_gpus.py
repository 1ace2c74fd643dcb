"""FAISS on GPUs (faiss-gpu): `execution.index_gpu` decides how several share an index; and what FAISS's errors say."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import faiss

from tandem.cluster.scheduler import lease
from tandem.errors import UserError
from tandem.store.job import Job

# ways to use GPUs; also "replicate"
NONE = "none"
SHARD = "shard"
# passages per query that FAISS retrieves on a GPU, and lists that it searches there
MOST_ON_GPU = 2048


@contextmanager
def explain_errors(problem: str) -> Iterator[None]:
    """Turn FAISS's errors into a `UserError` of the problem and FAISS's words, without their C++ context."""
    try:
        yield
    except MemoryError:
        raise UserError(f"{problem}: not enough memory") from None
    except RuntimeError as error:
        # Error in <function> at <file>.cpp:<line>: Error: '<condition>' failed: <message>, of which the last two vary.
        line = str(error).strip().splitlines()[-1]
        words = re.sub(r"^Error in .* at \S+:\d+: ", "", line)
        message = re.sub(r"^Error: '(.*?)' failed:? ?(?=.)", "", words)
        raise UserError(f"{problem}: {message}") from None


def lease_gpus(job: Job[Any]) -> str:
    """Return how a job uses GPUs, leased before anything touches them; a `UserError` where FAISS has none."""
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


def on_gpus(index: Any, mode: str) -> Any:
    """Return an index, copied to the GPUs this process sees; a `UserError` if it has no form for GPUs, such as HNSW.

    `mode` is `none`: as it is; `replicate`: whole on each GPU, which share the queries; or `shard`: a part on each.
    """
    if mode == NONE:
        return index
    options = faiss.GpuMultipleClonerOptions()
    options.shard = mode == SHARD
    options.useFloat16 = True
    with explain_errors(
        f"execution.index_gpu is {mode}, but FAISS cannot search this index on GPUs"
    ):
        return faiss.index_cpu_to_all_gpus(index, options)
