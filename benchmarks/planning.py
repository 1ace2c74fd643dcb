"""Processor seconds of planning sweeps: `python benchmarks/planning.py [--out FILE.md] [points …]`, 200 and 1000.

The sweep goes over the joint model's learning rate on the embedded default, with two systems at every point. The script
measures, for each number of points, only the plan, `snakemake -n sweep_lr` with everything to do, and the same with
nothing to do. For the last one, it creates every file that a job declares, empty, and Snakemake writes its record of
each job (.snakemake/metadata), as if the job had run. `--folder` keeps the folder of each sweep for inspection.

Seconds are user and system time of the process, since the clock is unreliable on a machine with other work. Snakemake's
own start-up is measured by `snakemake -n statistics` on the same configuration without a sweep.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from figures import machine

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from tandem.config.merging import gathered  # noqa: E402
from tandem.extras.plan import FullPlan  # noqa: E402

SYSTEMS = ["rocketqav2.retriever", "rocketqav2.retriever+rocketqav2.reranker"]
PARTS = ("csv", "md", "json", "html", "svg")  # what rule sweep makes
# A dry run in which Snakemake records every job as finished, as soon as it has built its graph.
RECORD = """
import sys
from snakemake.cli import main
from snakemake.workflow import Workflow

build = Workflow._build_dag

def recorded(self):
    build(self)
    async def every():
        for job in self.dag.jobs:
            await self.persistence.finished(job)
    self.async_run(every())

Workflow._build_dag = recorded
main(sys.argv[1:])
"""
NOTE = """Nothing to do: every manifest of the sweep and Snakemake's own record of every job are on disk. Start-up:
`snakemake -n statistics` on the same configuration without a sweep. On a machine with other work processor
seconds rise somewhat. Aims: nothing to do within 5 s beyond the start-up for 200 points, within 15 s for 1,000."""
HEAD = (
    "points",
    "stages",
    "planning",
    "start-up",
    "everything to do",
    "nothing to do",
    "beyond start-up",
)


def sweep(points: int) -> dict[str, object]:
    """Return `sweeps:` with one sweep of `points` points."""
    grid = {"models.rocketqav2.train.lr": [1e-5 + at * 1e-8 for at in range(points)]}
    return {"lr": {"grid": grid, "systems": SYSTEMS}}


def planned(sweeps: dict[str, object]) -> tuple[float, FullPlan]:
    """Return the processor seconds of a plan, and the plan."""
    config = gathered([], ROOT) | {"sweeps": sweeps}
    started = time.process_time()
    plan = FullPlan(config, ROOT)
    return time.process_time() - started, plan


def snakemake(
    folder: Path, words: Sequence[str], start: Sequence[str] = ("-m", "snakemake")
) -> tuple[float, str]:
    """Return the processor seconds of a run of Snakemake in a folder, and its output."""
    options = ("--cores", "2", "--workflow-profile", "none", "--rerun-triggers", "mtime", "params")
    line = [
        sys.executable,
        *start,
        *words,
        "-s",
        str(ROOT / "Snakefile"),
        "--directory",
        str(folder),
        *options,
    ]
    before = os.times()
    done = subprocess.run(
        [*line, "--configfile", str(folder / "config.json")],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    after = os.times()
    if done.returncode:
        raise SystemExit(done.stdout[-2000:])
    return sum(after[2:4]) - sum(before[2:4]), done.stdout


def finish(folder: Path, plan: FullPlan) -> None:
    """Create every declared file of the sweep's jobs, and let Snakemake record the jobs as done."""
    files = [stage.manifest for stage in plan.stages.values()]
    files += [f"results/sweeps/lr.{part}" for part in PARTS]
    points = folder / "results/sweeps/lr.points"
    points.parent.mkdir(parents=True, exist_ok=True)
    points.write_text(plan.view("sweeps").planned["lr"].to_json() + "\n", encoding="utf-8")
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n", encoding="utf-8")
    snakemake(folder, ["-n", "sweep_lr", "--quiet", "all"], ("-c", RECORD))


def measured(points: int, folder: Path) -> list[str]:
    """Return a line of the table."""
    seconds, plan = planned(sweep(points))
    folder.mkdir(parents=True, exist_ok=True)
    config_file = folder / "config.json"
    config_file.write_text("{}", encoding="utf-8")
    start, _ = snakemake(folder, ["-n", "statistics"])
    config_file.write_text(json.dumps({"sweeps": sweep(points)}), encoding="utf-8")
    everything, _ = snakemake(folder, ["-n", "sweep_lr", "--quiet", "all"])
    finish(folder, plan)
    nothing, output = snakemake(folder, ["-n", "sweep_lr"])
    if "rule sweep:" in output or "rule score:" in output:
        raise SystemExit(f"there was something to do: {output[-2000:]}")
    numbers = [f"{value:.1f}" for value in (seconds, start, everything, nothing, nothing - start)]
    return [f"{points:,}", f"{len(plan.stages):,}", *numbers]


def main() -> None:
    """Print the table, or write it to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("points", type=int, nargs="*", default=[200, 1000])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        lines = [measured(points, folder / str(points)) for points in args.points]
    rows = [HEAD, ["--:"] * len(HEAD), *lines]
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    if args.out:
        note = f"`python benchmarks/planning.py {' '.join(map(str, args.points))}`: processor seconds, user and system."
        args.out.write_text(
            f"# Planning sweeps\n\n{note}\n\n{machine()}\n\n{NOTE}\n\n{text}", encoding="utf-8"
        )
    print(text, end="")


if __name__ == "__main__":
    main()
