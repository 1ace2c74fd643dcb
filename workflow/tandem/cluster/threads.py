"""Find out how many threads a process may use, and set how its idle threads wait for work.

As a program it prints the number of cores. It imports nothing but the standard library: the Makefile runs it before
anything is installed.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

# Idle threads that spin on keep a core from other programs and, where cores are short, from the thread they wait for.
# So they spin for some tens of microseconds, about as long as a training's gaps between operations, and sleep then.
WAITING = {
    # GNU's OpenMP, torch's and FAISS's own copy: turns of a loop, by default 300,000 or more
    "GOMP_SPINCOUNT": "10000",
    # Intel's and LLVM's OpenMP: milliseconds, by default 200; old ones know no shorter unit
    "KMP_BLOCKTIME": "0",
    "OPENBLAS_THREAD_TIMEOUT": "16",  # numpy's and scipy's OpenBLAS: 2^16 cycles, by default 2^26
}
_POLICY = "OMP_WAIT_POLICY"  # OpenMP's own variable for the same
_OVERRIDE_POLICY = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # left unset if the user sets a policy
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
STATISTICS = Path("/proc/stat")
SAMPLED_SECONDS = 0.1  # how long the cores are observed, to see whether other programs compute
# share of the cores' time above which other programs count as computing
BUSY_SHARE = 0.25


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Let threads of libraries that are loaded from now on spin only for a moment; variables that are set stay.

    No result depends on it: the number of threads, which decides how sums are divided, stays.
    """
    for name, value in WAITING.items():
        if name not in _OVERRIDE_POLICY or _POLICY not in environment:
            environment.setdefault(name, value)


def sleep_at_once(environment: MutableMapping[str, str]) -> None:
    """Let threads of libraries that are loaded from now on not spin at all; variables that are set stay.

    While other programs compute, a training is then a quarter faster; by itself it takes a tenth longer.
    """
    if not is_waiting_decided(environment):
        environment[_POLICY] = "PASSIVE"
    wait_briefly(environment)


def is_waiting_decided(environment: Mapping[str, str]) -> bool:
    """Return whether an environment sets how OpenMP's threads wait; then the user has decided."""
    return any(name in environment for name in (_POLICY, *_OVERRIDE_POLICY))


def others_compute() -> bool:
    """Return whether other programs compute on this process' cores now; False if the system does not show it."""
    if not hasattr(os, "sched_getaffinity"):
        return False
    cores = os.sched_getaffinity(0)
    before = busy_seconds(cores)
    time.sleep(SAMPLED_SECONDS)
    return busy_seconds(cores) - before > BUSY_SHARE * len(cores) * SAMPLED_SECONDS


def busy_seconds(cores: set[int]) -> float:
    """Return how many seconds some cores have computed since the machine's start; 0 if the system does not show it."""
    if not STATISTICS.is_file():
        return 0.0
    ticks = 0
    for line in STATISTICS.read_text().splitlines():
        name, *columns = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system = map(int, columns[:3])
            ticks += user + nice + system
    return ticks / os.sysconf("SC_CLK_TCK")


def count_usable_cores() -> int:
    """Return how many cores this process may use: by its affinity, and by the CPU quota of its control groups.

    A quota of one and a half cores counts as two.
    """
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min([allowed, *map(math.ceil, _read_quotas())]))


def _read_quotas() -> Iterator[float]:
    """Yield the quotas in cores of this process' control groups and of those above them, of version 1 and 2."""
    with suppress(OSError, ValueError):
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                for folder in _walk_upwards(CGROUPS, path):
                    yield from _read_quota(folder / "cpu.max")
            elif "cpu" in controllers.split(","):
                for folder in _walk_upwards(CGROUPS / "cpu", path):
                    yield from _read_quota(
                        folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
                    )


def _walk_upwards(root: Path, path: str) -> Iterator[Path]:
    """Yield a group's folder and those above; a container may see its own group as the root, whatever its path."""
    group = root / path.lstrip("/")
    yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _read_quota(*files: Path) -> Iterator[float]:
    """Yield the microseconds of computing per microsecond of a period; nothing without a limit (`max`, -1)."""
    with suppress(OSError, ValueError):
        quota, period = " ".join(file.read_text() for file in files).split()
        if quota != "max" and int(quota) > 0:
            yield int(quota) / int(period)


if __name__ == "__main__":
    print(count_usable_cores())
