"""Processor seconds of planning sweeps: `python benchmarks/planning.py [points …]`, by default 1, 200 and 1000.

A sweep over the joint model's learning rate on the embedded default, two systems at every point. What Snakemake adds
(its start, its graph of jobs) is not in these figures: time `snakemake -n sweep_<name>` for it.
"""

import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from tandem.planning.config import gathered  # noqa: E402
from tandem.planning.plan import Plan  # noqa: E402

SYSTEMS = ["rocketqav2.retriever", "rocketqav2.retriever+rocketqav2.reranker"]


def planned(points: int) -> tuple[float, int]:
    """Processor seconds of a plan with a sweep of so many points, and its stages."""
    grid = {"models.rocketqav2.train.lr": [1e-5 + at * 1e-8 for at in range(points)]}
    config = gathered([], ROOT) | {"sweeps": {"lr": {"grid": grid, "systems": SYSTEMS}}}
    started = time.process_time()
    plan = Plan(config, ROOT)
    return time.process_time() - started, len(plan.stages)


def main() -> None:
    """Print a line per number of points."""
    for points in [int(word) for word in sys.argv[1:]] or [1, 200, 1000]:
        seconds, stages = planned(points)
        print(f"{points:,} points\t{stages:,} stages\t{seconds:.2f} s")


if __name__ == "__main__":
    main()
