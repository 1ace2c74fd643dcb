"""A real slurm of one machine, while its tests run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

UP = Path(__file__).parent / "up.sh"
PROGRAMS = ("munged", "slurmctld", "slurmd")


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """The folder of a slurm that is up: with 8 cores, much memory and 2 GPUs, all of them pretended."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=path)]
    if missing:
        pytest.skip(f"slurm is not installed (no {', '.join(missing)}): apt-get install slurm-wlm munge")
    if os.getuid() != 0:
        pytest.skip("a slurm of one machine needs root")
    if os.path.lexists("/etc/slurm/slurm.conf"):
        pytest.skip("this machine has a slurm: /etc/slurm/slurm.conf")
    folder = tmp_path_factory.mktemp("lab")
    settings = {"SLURM_LAB": str(folder), "LAB_CPUS": "8", "LAB_MEMORY": "200000", "LAB_GPUS": "2"}
    environment = {**os.environ, **settings, "PATH": path}
    done = subprocess.run([UP, "up"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        if done.returncode:
            pytest.skip(f"slurm does not come up here: {done.stderr.strip()}")
        yield folder
    finally:
        subprocess.run([UP, "down"], env=environment, check=True)
