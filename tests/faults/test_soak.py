"""Many sweeps planned in one process: memory and open files stay where they were."""

import copy
import gc
import os
from pathlib import Path

from faults_kit import TORTURE
from mutations import DEFAULT

from tandem.planning.plan import Plan

ROOT = Path(__file__).parents[2]
SWEEPS = 30 if TORTURE else 5
WARM = 2  # caches of files and of compiled expressions are filled


def resident() -> float:
    """MiB of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_planning_sweeps_again_and_again_keeps_memory_and_open_files_flat():
    config = copy.deepcopy(DEFAULT)
    grid = {"models.rocketqav2.train.lr": [1e-5, 2e-5, 4e-5], "models.rocketqav2.candidates.depth": [20, 50]}
    config["sweeps"] = {"soak": {"grid": grid, "systems": ["rocketqav2.retriever"]}}
    memory, files, stages = [], [], set()
    for _ in range(WARM + SWEEPS):
        plan = Plan(copy.deepcopy(config), ROOT)
        plan.sweeps()
        stages.add(len(plan.stages))
        del plan
        gc.collect()
        memory.append(resident())
        files.append(len(os.listdir("/proc/self/fd")))
    assert len(stages) == 1
    assert set(files[WARM:]) == {files[WARM]}
    assert memory[-1] - memory[WARM] < 8, memory
