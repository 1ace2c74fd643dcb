"""The tiny project on a slurm: its command lines, a training that is disturbed, and what slurm says of its jobs."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tiny_project import ROOT, Project

from tandem.config.merging import gathered, merged
from tandem.extras.plan import FullPlan
from tandem.store.files import sha256

LONG = "TANDEM_SLURM" in os.environ
long = pytest.mark.skipif(not LONG, reason="takes minutes: make slurm")
# seconds for a job to get somewhere; a busy machine needs more
SLOW = int(os.environ.get("TANDEM_PATIENCE", "300"))


class Slurm(Project):
    """A copy of a finished tiny project, to be run on slurm.

    Args:
        project: the finished one.
        folder: the copy's.
        changes: of its configuration.
        ignored: file names that are not copied.
    """

    def __init__(self, project, folder, changes=None, ignored=()):
        self.folder = folder
        shutil.copytree(
            project.folder, folder, ignore=shutil.ignore_patterns(".snakemake", "logs", *ignored)
        )
        config = merged(yaml.safe_load((folder / "config.yaml").read_text()), changes or {})
        (folder / "config.yaml").write_text(yaml.safe_dump(config))

    def model(self):
        """The dual encoder's folder below the project's."""
        plan = FullPlan(gathered([self.folder / "config.yaml"], ROOT), ROOT)
        return plan.planner.model("de_bm25neg", "tiny").folder

    def slurm(self, *words, execution="threads: 2", **profile):
        """The command line of Snakemake on slurm: two cores a job as in the local runs, a watched queue.

        Args:
            words: further ones.
            execution: how it runs, besides the configuration.
            profile: changes of the profile: key → value, with `_` for `-`.
        """
        defaults = yaml.safe_load((ROOT / "config/profiles/slurm/config.yaml").read_text())
        del defaults["set-threads"]
        profile["slurm_init_seconds_before_status_checks"] = 2
        changes = {key.replace("_", "-"): value for key, value in profile.items()}
        (self.folder / "mycluster").mkdir(exist_ok=True)
        (self.folder / "mycluster/config.yaml").write_text(
            yaml.safe_dump(merged(defaults, changes))
        )
        return [
            sys.executable, "-m", "snakemake", *words, "-s", str(ROOT / "Snakefile"), "--directory", str(self.folder),
            "--workflow-profile", "none", "--profile", str(self.folder / "mycluster"),
            "--configfile", str(self.folder / "config.yaml"), "--config", f"execution={{{execution}}}",
        ]  # fmt: skip

    def hashes(self, name, below="results"):
        """Content hash of every file of that name below a folder, by its place; not of the kept scores of pairs."""
        paths = [path for path in (self.folder / below).rglob(name) if "pairs" not in path.parts]
        assert paths
        return {str(path.relative_to(self.folder)): sha256(path) for path in paths}


class Disturbed:
    """A training on slurm that stands still, with a checkpoint saved."""

    def __init__(self, project):
        self.project, self.model = project, project.model()
        self.process = None

    def start(self, *words):
        """Have Snakemake submit it, and stop it in its tracks."""
        every = "threads: 2, checkpoint_seconds: 0"
        line = self.project.slurm(f"{self.model}/stage.json", *words, execution=every)
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        folder = self.project.folder / self.model
        until(
            lambda: (
                list(folder.glob("checkpoints/step-*/state.json"))
                or self.process.poll() is not None
            )
        )
        self.signal(signal.SIGSTOP)

    def pid(self):
        """The training's process: that of no launcher or shell."""
        listing = subprocess.run(
            ["pgrep", "-f", f"tandem model .*--out {self.model}/"], capture_output=True, text=True
        )
        pids = [int(pid) for pid in listing.stdout.split()]
        (pid,) = [
            pid for pid in pids if Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python")
        ]
        return pid

    def signal(self, number):
        """Send a signal to the training, and to no other process."""
        os.kill(self.pid(), number)

    def ended(self):
        """What Snakemake has said; it must have succeeded."""
        output, _ = self.process.communicate(timeout=2 * SLOW)
        assert self.process.returncode == 0, output
        return output

    def log(self):
        """What the last try has said."""
        return (self.project.folder / self.model / "log.txt").read_text()

    def top(self):
        """What `tandem top` shows of the jobs that run."""
        line = [sys.executable, "-m", "tandem", "top"]
        done = subprocess.run(
            line, capture_output=True, text=True, check=True, cwd=self.project.folder
        )
        return done.stdout.splitlines()

    def weights(self):
        """Content hashes of the model's weights."""
        return self.project.hashes("*.safetensors", self.model)


def finished(line, code=0):
    """What a command line says, which must end with that status."""
    done = subprocess.run(line, capture_output=True, text=True, timeout=4 * SLOW)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def output_of(*words):
    """The lines that a command of slurm prints."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def queue():
    """Numbers of the jobs in the queue."""
    return output_of("squeue", "-h", "-o", "%i")


def submitted(output):
    """What slurm knows of each job that a Snakemake has submitted: account, partition, cores, memory, time."""
    jobs = re.findall(r"submitted with SLURM jobid (\d+)", output)
    line = ("squeue", "-h", "--noconvert", "-t", "all", "-o", "%a %P %C %m %l", "-j")
    return [" ".join(output_of(*line, job)[0].split()) for job in jobs]


def until(true):
    """Wait for something to come true."""
    deadline = time.monotonic() + SLOW
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
