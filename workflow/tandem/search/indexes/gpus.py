"""Indexes on GPUs, where faiss-gpu is installed: `execution.index_gpu` says how several share an index."""

from typing import Any

import faiss

from tandem.artifact import Job
from tandem.errors import UserError
from tandem.leases import lease

NONE, REPLICATE, SHARD = "none", "replicate", "shard"
MOST = 2048  # passages a query that FAISS finds on a GPU


def wanted(job: Job) -> str:
    """How a job uses GPUs, which are leased before anything touches them.

    Raises:
        UserError: GPUs are asked for where FAISS has none.
    """
    how = str(job.execution.get("index_gpu", NONE))
    if how != NONE:
        lease(int(job.execution.get("devices", 1)), job.kind)
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
