"""Many sweeps, planned in one process and run by one Snakemake: memory and open files stay where they were."""

import copy
import csv
import gc
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from faults_kit import TORTURE
from mutations import DEFAULT

from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[2]
SWEEPS = 30 if TORTURE else 5
WARM = 2  # caches of files and of compiled expressions are filled


def resident(process: str = "self") -> float:
    """MiB of a process in memory."""
    return (
        int(Path(f"/proc/{process}/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE")
        / 2**20
    )


def opened(process: str = "self") -> int:
    """A process' open files."""
    return len(os.listdir(f"/proc/{process}/fd"))


def test_planning_sweeps_again_and_again_keeps_memory_and_open_files_flat():
    config = copy.deepcopy(DEFAULT)
    grid = {
        "models.rocketqav2.train.lr": [1e-5, 2e-5, 4e-5],
        "models.rocketqav2.candidates.depth": [20, 50],
    }
    config["sweeps"] = {"soak": {"grid": grid, "systems": ["rocketqav2.retriever"]}}
    memory, files, stages = [], [], set()
    for _ in range(WARM + SWEEPS):
        plan = FullPlan(copy.deepcopy(config), ROOT)
        plan.files_of_all()
        stages.add(len(plan.stages))
        del plan
        gc.collect()
        memory.append(resident())
        files.append(opened())
    assert len(stages) == 1
    assert set(files[WARM:]) == {files[WARM]}
    assert memory[-1] - memory[WARM] < 8, memory


def below(process: int) -> list[str]:
    """The processes that a process has started, and those that these have."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[folder.name] = (folder / "stat").read_text().rpartition(")")[2].split()[1]
    processes, last = [], {str(process)}
    while last:
        last = {child for child, parent in parents.items() if parent in last}
        processes += last
    return processes


def kind_of(process: str) -> str:
    """What a process of Snakemake's does: `tandem score`, or its program's name."""
    words = Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")
    if "tandem" not in words[:4]:
        return Path(words[0]).name
    place = words.index("tandem")
    return " ".join(words[place : place + 2])


def watched(
    process: subprocess.Popen,
) -> tuple[list[tuple[float, int]], dict[str, list[tuple[float, int]]]]:
    """Four times a second: MiB and open files of Snakemake; and the most that each of its jobs had, by what it does."""
    seen, jobs = [], {}
    while process.poll() is None:
        for job in below(process.pid):
            with suppress(OSError):  # it has ended
                kind, now = kind_of(job), (resident(job), opened(job))
                jobs[job] = (
                    kind,
                    tuple(map(max, zip(now, jobs.get(job, (kind, now))[1], strict=True))),
                )
        with suppress(OSError):
            seen.append((resident(str(process.pid)), opened(str(process.pid))))
        time.sleep(0.25)
    kinds: dict[str, list[tuple[float, int]]] = {}
    for kind, most in jobs.values():
        kinds.setdefault(kind, []).append(most)
    return seen, kinds


def flat(name: str, seen: list[tuple[float, int]]) -> None:
    """What there is at the end of a row of MiB and open files is no more than what there was at its beginning."""
    third = len(seen) // 3
    memory, files = map(max, zip(*seen[:third], strict=True))
    late, late_files = map(max, zip(*seen[-third:], strict=True))
    message = f"{memory:.0f} MiB and {files} files at first, {late:.0f} and {late_files} at the end"
    print(f"{name}: {len(seen)} times, {message}")
    assert late - memory < 16, seen
    assert late_files - files < 4, seen


@pytest.mark.skipif(not TORTURE, reason="minutes of jobs: make torture")
def test_thirty_sweeps_run_by_one_snakemake_keep_memory_and_open_files_flat(tiny_dag, copied):
    sweeps = {
        f"soak{at:02}": {"grid": {"bm25.k1": [0.5 + at / 100, 1.5 + at / 100]}, "systems": ["bm25"]}
        for at in range(SWEEPS)
    }
    more = copied.folder / "soak.yaml"
    more.write_text(yaml.safe_dump({"bm25": {"engine": "bm25s"}, "sweeps": sweeps}))
    line = tiny_dag.line("sweeps", "--keep-going")
    line[line.index("--directory") + 1], line[line.index("--cores") + 1] = str(copied.folder), "1"
    with (copied.folder / "said.txt").open("w") as log:
        process = subprocess.Popen([*line, str(more)], stdout=log, stderr=subprocess.STDOUT)
        seen, kinds = watched(process)
    assert process.returncode == 0, (copied.folder / "said.txt").read_text()[-3000:]
    for name in sweeps:
        rows = list(csv.DictReader((copied.folder / f"results/sweeps/{name}.csv").open()))
        assert len({row["stage"] for row in rows}) == 2
    flat("Snakemake", seen[len(seen) // SWEEPS * WARM :])
    for kind in ("tandem bm25", "tandem score", "tandem sweep"):
        assert len(kinds[kind]) > SWEEPS // 2  # some end between two looks
        flat(kind, kinds[kind])
