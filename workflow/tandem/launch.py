"""The devices of a stage: leased GPUs, and one process per device by torchrun where training asks for several.

The launcher is the stage's own command. It starts the same command once per device with a rank in its environment; on
several nodes slurm starts one launcher on each, and they meet on the first.
"""

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.leases import lease
from tandem.ranks import LAUNCHER
from tandem.stages import KINDS

PORTS = range(15000, 30000)  # below those that systems hand out by themselves


def place(words: list[str]) -> int | None:
    """Give a stage its devices before anything touches them.

    Args:
        words: a command line after `python -m tandem`.
    Returns:
        The exit status if ranks have done the work; None if this process is to do it.
    Raises:
        UserError: there are fewer devices or nodes than asked for.
    """
    kind = KINDS.get(words[0].removesuffix("-shard"))
    roles = [word.removeprefix("--in.") for word in words if word.startswith("--in.")]
    computes = kind.computes(roles) if kind else words[0].endswith("-shard")
    elsewhere = _told(words, "engine", "") == "faiss"  # exact search, which runs on a GPU by torch alone
    if "RANK" in os.environ or not computes or elsewhere:
        return None
    several = kind is not None and kind.ranks
    devices, nodes = (_count(words, name) if several else 1 for name in ("devices", "nodes"))
    lease(devices, words[0])
    if devices * nodes == 1:
        return None
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _count(words, "workers") // devices)))
    return launch(words, devices, rendezvous(nodes, os.environ))


def _count(words: list[str], name: str) -> int:
    """The whole number of `--run.<name>`, 1 if it is not told."""
    told = _told(words, name, "1")
    if not told.isdecimal() or int(told) < 1:
        raise UserError(f"{words[0]}: --run.{name} is {told}; allowed are 1, 2, 3 …")
    return int(told)


def _told(words: list[str], name: str, default: str) -> str:
    """The word of `--run.<name>`."""
    flag = f"--run.{name}"
    return words[words.index(flag) + 1] if flag in words[:-1] else default


def rendezvous(nodes: int, environment: Mapping[str, str]) -> list[str]:
    """torchrun's flags that say where a job's launchers meet.

    One node needs no network. Several meet on the first node of the slurm job, at a port that follows from the job.

    Raises:
        UserError: several nodes without slurm, or an allocation that is smaller.
    """
    if nodes == 1:
        return ["--standalone", "--local-addr", "127.0.0.1"]
    if "SLURM_JOB_NODELIST" not in environment:
        raise UserError(f"execution.nodes is {nodes}, but SLURM_JOB_NODELIST is not set: several nodes need slurm")
    line = ["scontrol", "show", "hostnames", environment["SLURM_JOB_NODELIST"]]
    try:
        hosts = subprocess.run(line, capture_output=True, text=True, check=True, env=dict(environment)).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"the names of the slurm job's nodes cannot be had: {error}") from None
    if len(hosts) < nodes:
        raise UserError(f"execution.nodes is {nodes}, but the slurm job has {len(hosts)}: {', '.join(hosts)}")
    job = environment["SLURM_JOB_ID"]
    met = ["--rdzv-backend", "c10d", "--rdzv-id", f"{job}.{environment.get('SLURM_STEP_ID', '0')}"]
    met += ["--rdzv-endpoint", f"{hosts[0]}:{PORTS[int(job) % len(PORTS)]}"]
    return ["--nnodes", str(nodes), *met, "--rdzv-conf", f"is_host={int(environment.get('SLURM_NODEID', '0') == '0')}"]


def launch(words: list[str], devices: int, meet: list[str]) -> int:
    """Run a command once per device under torchrun and wait for the ranks.

    Returns:
        0, or the status of the first rank that failed; a user's mistake on any rank is one line.
    """
    logging.disable()  # torchrun's own account of a failure is a page; ours is a line
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ[LAUNCHER] = str(os.getpid())
    # Imported here: planning and most stages need no torch.
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.run import parse_args, run

    with tempfile.TemporaryDirectory(prefix="tandem-ranks-") as folder:
        flags = [*meet, "--nproc-per-node", str(devices), "--log-dir", folder]
        try:
            run(parse_args([*flags, "-m", "tandem", *words]))
        except ChildFailedError as error:
            return _failed(words[0], error)
        except SignalException as error:
            print(f"tandem {words[0]}: ended by {error.sigval.name}", file=sys.stderr)
            return 128 + error.sigval
        except RendezvousError as error:
            raise UserError(f"the nodes did not meet ({' '.join(meet)}): {error}") from None
    return 0


def _failed(command: str, error: Any) -> int:
    """Say which rank failed and how; the status to end with.

    Args:
        command: the stage.
        error: torchrun's `ChildFailedError`.
    Raises:
        UserError: what a rank left to the launcher to say.
    """
    mistakes = [one.message for _, one in sorted(error.failures.items()) if Path(one.error_file).is_file()]
    if mistakes:
        raise UserError(mistakes[0])
    rank, failure = error.get_first_failure()
    how = failure.signal_name() if failure.exitcode < 0 else f"status {failure.exitcode}"
    print(f"tandem {command}: rank {rank} ended with {how}; the other ranks were stopped", file=sys.stderr)
    return int(128 - failure.exitcode if failure.exitcode < 0 else failure.exitcode)
