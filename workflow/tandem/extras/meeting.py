"""Where ranks of a training meet: within a node, or on the first of several, whose launchers slurm starts."""

import os
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tandem.cluster.launch import NODE
from tandem.cluster.scheduler import RESTARTS
from tandem.errors import UserError

_PORTS = range(15000, 30000)  # below those that systems hand out by themselves
_POLL_SECONDS = 0.2  # seconds between two attempts to meet the first node
_PATIENCE_SECONDS = 2.0  # seconds of one attempt


def meet_nodes(nodes: int, out: Path) -> list[str] | None:
    """Return torchrun's flags for this node, once the first node can be met; None if `out` was finished meanwhile."""
    meet = make_rendezvous_flags(nodes, os.environ)
    if nodes > 1 and _is_further(os.environ):
        host, _, port = meet[meet.index("--rdzv-endpoint") + 1].rpartition(":")
        if not wait_for_first(host, int(port), out):
            return None
    return meet


def _is_further(environment: Mapping[str, str]) -> bool:
    return environment.get(NODE, "0") != "0"


def wait_for_first(host: str, port: int, out: Path) -> bool:
    """Wait until the first node's launcher can be met, for as long as that launcher may wait for the output's lock.

    Returns:
        False if another process, which had the lock, has finished the output meanwhile.
    """
    before = _modified(out)
    while _modified(out) == before:
        with suppress(OSError), socket.create_connection((host, port), timeout=_PATIENCE_SECONDS):
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _modified(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def make_rendezvous_flags(nodes: int, environment: Mapping[str, str]) -> list[str]:
    """Return torchrun's flags that make nodes meet on the slurm job's first one, at a port derived from the job.

    It is a `UserError` to ask for several nodes without slurm, or for more than the allocation has.
    """
    if nodes == 1:
        return ["--standalone", "--local-addr", "127.0.0.1"]
    if "SLURM_JOB_NODELIST" not in environment:
        raise UserError(
            f"execution.nodes is {nodes}, but SLURM_JOB_NODELIST is not set: several nodes need slurm"
        )
    line = ["scontrol", "show", "hostnames", environment["SLURM_JOB_NODELIST"]]
    try:
        hosts = subprocess.run(
            line, capture_output=True, text=True, check=True, env=dict(environment)
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"the names of the slurm job's nodes are unknown: {error}") from None
    if len(hosts) < nodes:
        raise UserError(
            f"execution.nodes is {nodes}, but the slurm job has {len(hosts)}: {', '.join(hosts)}"
        )
    job = environment["SLURM_JOB_ID"]
    # A job that slurm has requeued keeps its number; processes that its first start left on a node must not be met.
    start = f"{job}.{environment.get(RESTARTS, '0')}.{environment.get('SLURM_STEP_ID', '0')}"
    meet = ["--rdzv-backend", "c10d", "--rdzv-id", start]
    meet += ["--rdzv-endpoint", f"{hosts[0]}:{_PORTS[int(job) % len(_PORTS)]}"]
    return [
        "--nnodes",
        str(nodes),
        *meet,
        "--rdzv-conf",
        f"is_host={int(not _is_further(environment))}",
    ]
