"""How stages become jobs: in how many shards, on which devices and nodes. Nothing here changes a result."""

from typing import Any

from tandem.planning.config import Config
from tandem.planning.graph import Stages
from tandem.stages import KINDS

ON_INDEXES = ("index", "ann", "tradeoffs")  # on GPUs where `execution.index_gpu` says so


class Hosted:
    """What rules ask about their jobs.

    Args:
        stages: all that are planned.
        execution: of the configuration.
    """

    def __init__(self, stages: Stages, execution: Config) -> None:
        self.stages, self.execution = stages, execution

    def shards(self, kind: str, key: str) -> list[str]:
        """The jobs that share a stage's work before it runs itself: `execution.shards` of them.

        None where nothing is to be shared and for queries' embeddings; a single shard is no job of its own: the stage
        does whatever is missing.
        """
        stage, count = self.stages.find(kind, key), self.execution["shards"]
        shared = KINDS[kind].is_shared(stage.upstream)
        if count == 1 or stage.params.get("side") == "queries" or not shared:
            return []
        return [f"{stage.folder}/shards/{i}-of-{count}.json" for i in range(count)]

    def state(self, key: str) -> list[str]:
        """The folder of the state that a checkpoint goes on from; none for the first."""
        after = self.stages.find("checkpoint", key).upstream.get("after")
        return [f"{after.folder}/state"] if after else []

    def gpus(self, kind: str, key: str) -> int:
        """GPUs of a job on one node: what Snakemake counts and slurm gives."""
        stage, declared = self.stages.find(kind, key), KINDS[kind]
        devices: int = self.execution["devices"]
        if kind in ON_INDEXES:
            return devices if self.execution["index_gpu"] != "none" else 0
        if not declared.computes(stage.upstream) or stage.execution.get("engine") == "faiss":
            return 0
        return devices if declared.ranks else 1

    def training(self) -> dict[str, Any]:
        """The resources of a training.

        On several nodes it gets as many GPUs on each (`gres`), and `start`, the words before its command: srun starts
        a launcher on every node of the job's allocation.
        """
        devices, nodes = self.execution["devices"], self.execution["nodes"]

        def gpu(wildcards: Any) -> int:
            """GPUs of the job on one node."""
            return self.gpus(wildcards.kind, wildcards.key)

        def srun(wildcards: Any, threads: int) -> str:
            """One launcher a node; what needs no device runs once."""
            return f"srun --nodes={nodes} --ntasks={nodes} --cpus-per-task={threads} " if gpu(wildcards) else ""

        if nodes == 1:
            return {"gpu": gpu, "start": "", "nodes": 1}  # slurm may spread GPUs over nodes
        # `mpi` has the slurm plugin start the job's shell once instead of under an srun of its own.
        return {
            "start": srun,
            "mpi": "srun",
            "nodes": nodes,
            "tasks": nodes,
            "tasks_per_gpu": 0,
            "gres": f"gpu:{devices}",
        }
