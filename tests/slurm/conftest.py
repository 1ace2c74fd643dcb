"""A real slurm of one machine, or of several, while its tests run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from machines_kit import Machines

UP = Path(__file__).parent / "up.sh"
PROGRAMS = ("munged", "slurmctld", "slurmd")
WITH_SBIN = f"{os.environ['PATH']}:/usr/sbin"  # where daemons are


def require(*programs):
    """Skip a test that needs programs which are not here, or root."""
    missing = [name for name in programs if not shutil.which(name, path=WITH_SBIN)]
    if missing:
        pytest.skip(
            f"slurm is not installed (no {', '.join(missing)}): apt-get install slurm-wlm munge iproute2"
        )
    if os.getuid() != 0:
        pytest.skip("a slurm needs root")


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """The folder of a slurm that is up: with 8 cores, much memory and 2 GPUs, all of them pretended."""
    require(*PROGRAMS)
    if os.path.exists("/etc/slurm/slurm.conf"):  # not a link that a killed lab has left
        pytest.skip("this machine has a slurm: /etc/slurm/slurm.conf")
    folder = tmp_path_factory.mktemp("lab")
    settings = {"SLURM_LAB": str(folder), "LAB_CPUS": "8", "LAB_MEMORY": "200000", "LAB_GPUS": "2"}
    environment = {**os.environ, **settings, "PATH": WITH_SBIN}
    done = subprocess.run(
        [UP, "up"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        if done.returncode:
            pytest.skip(f"slurm does not come up here: {done.stderr.strip()}")
        yield folder
    finally:
        subprocess.run([UP, "down"], env=environment, check=True)


@pytest.fixture(scope="session")
def machines(tmp_path_factory):
    """A controller and three nodes that share pytest's folder; each node pretends to have 2 cores and 2 GPUs."""
    require(*PROGRAMS, "ip", "nsenter", "unshare")
    every = Machines(tmp_path_factory.mktemp("machines"), tmp_path_factory.getbasetemp(), WITH_SBIN)
    try:
        if error := every.bring_up():
            pytest.skip(f"machines do not come up here: {error}")
        yield every
    finally:
        every.ask("down")
