"""Stages made without Snakemake, which then finds them: importing torch takes longer than any tiny stage.

As a program it imports the libraries, and forks a process for each graph of stages that it reads about: Java, a plugin,
an environment stay in a process for good.
"""

import json
import os
import shlex
import subprocess
import sys
import traceback
from contextlib import chdir
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

from tandem import ROOT
from tandem.config.merging import gathered
from tandem.extras.plan import FullPlan
from tandem.stages import KINDS
from tandem.store.job import load, read_job

# their libraries
HEAVY = ("candidates", "embeddings", "encoder", "model", "rerank", "retrieve", "score", "tokens")


def make_stage(stage):
    """Make a planned stage in the working folder, after what it reads."""
    for parent in stage.upstream.values():
        make_stage(parent)
    if not Path(stage.manifest).exists():
        words = [
            *shlex.split(f"{stage.args} {stage.how}"),
            "--run.workers",
            "1",
            "--out",
            stage.manifest,
        ]
        load(KINDS[stage.kind].run)(read_job(stage.kind, words))


def build(target, files):
    """Make stages with all they need in the working folder: each by its own command line, but all in this process.

    Args:
        target: a table's name, a sweep's, a model's, or `all` that the configuration's tables show.
        files: of the configuration.
    """
    plan = FullPlan(gathered([Path(file) for file in files], ROOT), ROOT)
    names = plan.tables.requested() if target == "all" else [target]
    sweeps = plan.view("sweeps").planned
    if target in sweeps:
        ends = [point.stage for point in sweeps[target].scored]
    elif all(name in plan.tables for name in names):
        ends = [stage for name in names for _, stage in plan.tables[name]]
    else:
        ends = [plan.planner.model(target, "test")]
    for stage in ends:
        make_stage(stage)


def build_here(folder, target, *files):
    """`build` in a folder, in this process."""
    with chdir(folder):
        build(target, files)


def build_in(folder, target, *files, root=ROOT):
    """`build` in a folder, in a process of its own, by the code of a checkout."""
    builder = _builder(root)
    print(
        json.dumps([str(folder), target, files, dict(os.environ)]), file=builder.stdin, flush=True
    )
    status, output = json.loads(builder.stdout.readline())
    assert status == 0, output


@cache
def _builder(root):
    """This program by the code of a checkout; it ends with the process that has started it."""
    environment = os.environ | {"PYTHONPATH": f"{root}/workflow"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, __file__], cwd=root, env=environment, **pipes)


def forked(folder, target, files, environment):
    """Status and output of `build` in a folder, by a fork of this process."""
    with TemporaryFile("w+") as output:
        if not (child := os.fork()):
            for number in (1, 2):
                os.dup2(output.fileno(), number)
            status = 1
            try:
                os.environ.clear()
                os.environ.update(environment)
                build_here(folder, target, *files)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitpid(child, 0)[1]
        output.seek(0)
        return status, output.read()


if __name__ == "__main__":
    for kind in HEAVY:
        load(KINDS[kind].run)
    for line in sys.stdin:
        print(json.dumps(forked(*json.loads(line))), flush=True)
