"""Indexes on GPUs, where faiss-gpu is installed: `execution.index_gpu` says how several share an index."""

from contextlib import nullcontext
from threading import Lock
from typing import Any

import faiss
import numpy as np

from tandem.cluster.leases import lease
from tandem.errors import UserError
from tandem.store.job import Job

NONE, REPLICATE, SHARD = "none", "replicate", "shard"
MOST = 2048  # passages a query that FAISS finds on a GPU


def wanted(job: Job) -> str:
    """How a job uses GPUs, which are leased before anything touches them.

    Raises:
        UserError: GPUs are asked for where FAISS has none.
    """
    how = str(job.execution.index_gpu)
    if how != NONE:
        lease(int(job.execution.devices), job.kind)
        if not faiss.get_num_gpus():
            raise UserError(
                f"execution.index_gpu is {how}, but FAISS {faiss.__version__} has no GPU here; "
                "install faiss-gpu (envs/setup.sh), or set it to none"
            )
    return how


def on_gpus(index: Any, how: str) -> Any:
    """An index, copied to the GPUs this process sees.

    Args:
        index: FAISS's, on the CPU.
        how: `none`: as it is; `replicate`: whole on each GPU, which share the queries; `shard`: cut into as many parts.
    Raises:
        UserError: the index has no form for GPUs, such as HNSW.
    """
    if how == NONE:
        return index
    options = faiss.GpuMultipleClonerOptions()
    options.shard = how == SHARD
    options.useFloat16 = True
    try:
        return faiss.index_cpu_to_all_gpus(index, options)
    except RuntimeError as error:
        told = str(error).strip().splitlines()[-1]
        raise UserError(f"execution.index_gpu is {how}, but FAISS cannot search this index on GPUs: {told}") from None


class Nearest:
    """Finds the nearest vector of an index, from any number of threads: FAISS's GPUs serve one call at a time.

    Args:
        index: FAISS's, on the CPU.
        how: see `on_gpus`.
    """

    def __init__(self, index: Any, how: str) -> None:
        self.index, self.turn = on_gpus(index, how), nullcontext() if how == NONE else Lock()

    def __call__(self, vectors: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The row of the nearest vector for each, shape (vectors,)."""
        with self.turn:
            return np.ascontiguousarray(self.index.search(vectors, 1)[1][:, 0])
