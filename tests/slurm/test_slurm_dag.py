"""Snakemake on a real slurm of one machine: whatever is cancelled, killed or out of time, the bits stay the same.

The short part is one training of two steps; `make slurm` (TANDEM_SLURM=1) runs every fault, the whole tiny collection
and the default. All skip where slurm is not installed or cannot be started.
"""

import csv
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
from test_dag import ROOT, TRAIN, Project

from tandem.artifact import sha256

UP = Path(__file__).parent / "up.sh"
PROGRAMS = ("munged", "slurmctld", "slurmd")
LONG = "TANDEM_SLURM" in os.environ
STEPS = 60 if LONG else 2
long = pytest.mark.skipif(not LONG, reason="takes minutes: make slurm")
SLOW = int(os.environ.get("TANDEM_PATIENCE", "300"))  # seconds for a job to get somewhere; a busy machine needs more


@pytest.fixture(scope="module")
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
    told = {"SLURM_LAB": str(folder), "LAB_CPUS": "8", "LAB_MEMORY": "200000", "LAB_GPUS": "2"}
    environment = {**os.environ, **told, "PATH": path}
    done = subprocess.run([UP, "up"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        if done.returncode:
            pytest.skip(f"slurm does not come up here: {done.stderr.strip()}")
        yield folder
    finally:
        subprocess.run([UP, "down"], env=environment, check=True)


class Slurm(Project):
    """The tiny project, with a dual encoder whose training may be long enough to be disturbed."""

    def __init__(self, folder, encoder_folder, documents):
        super().__init__(folder, encoder_folder, documents)
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["models"]["de_bm25neg"]["train"] = {**TRAIN, "steps": STEPS}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))

    def copy(self, folder, *ignored):
        """The project once more, to be disturbed."""
        other = object.__new__(Slurm)
        other.folder = folder
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns(".snakemake", *ignored))
        return other

    def model(self, *words):
        """The dual encoder's folder below the project's."""
        code, output = self.run("-n", *words)
        assert code == 0, output
        return re.search(r"results/tiny/model/de_bm25neg-[0-9a-f]{10}", output).group()

    def slurm(self, *words, execution="threads: 2", config=()):
        """The command line of Snakemake on slurm: two cores a job as in the local runs, a watched queue."""
        return [
            sys.executable, "-m", "snakemake", *words, "-s", str(ROOT / "Snakefile"), "--directory", str(self.folder),
            "--workflow-profile", "none", "--profile", str(ROOT / "config/profiles/slurm"),
            "--set-threads", "tradeoffs=2", "--slurm-init-seconds-before-status-checks", "2",
            "--configfile", str(self.folder / "config.yaml"), "--config", f"execution={{{execution}}}", *config,
        ]  # fmt: skip

    def hashes(self, name, below="results"):
        """Content hash of every file of that name below a folder, by its place."""
        made = {str(path.relative_to(self.folder)): sha256(path) for path in (self.folder / below).rglob(name)}
        assert made
        return made


@pytest.fixture(scope="module")
def undisturbed(lab, tmp_path_factory, encoder_folder, documents):
    """The tiny project up to the dual encoder, run locally."""
    made = Slurm(tmp_path_factory.mktemp("undisturbed"), encoder_folder, documents)
    code, output = made.run(f"{made.model()}/stage.json")
    assert code == 0, output
    return made


def finished(line):
    """What a command line says, which must succeed."""
    done = subprocess.run(line, capture_output=True, text=True, timeout=4 * SLOW)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_training_gives_way_before_its_time_is_up_and_no_failure_is_counted(undisturbed, tmp_path):
    """It is to give way ten minutes before the end of its job, which has ten minutes: each job does one step."""
    two = ["models={de_bm25neg: {train: {steps: 2}}}"]
    model = undisturbed.model("--forceall", "--config", *two)
    code, output = undisturbed.run(f"{model}/stage.json", "--config", *two)
    assert code == 0, output
    there = undisturbed.hashes("*.safetensors", model)
    other = undisturbed.copy(tmp_path / "short", Path(model).name)
    line = other.slurm(f"{model}/stage.json", execution="threads: 2, stop_seconds: 600", config=two)
    said = finished([*line, "--set-resources", "train:runtime=10"])
    assert "Trying to restart job" not in said
    assert said.count("has been submitted with SLURM jobid") == 1
    assert "resumes at step 1/2" in (other.folder / model / "log.txt").read_text()
    assert other.hashes("*.safetensors", model) == there
    assert not (other.folder / model / "checkpoints").exists()


class Disturbed:
    """A training on slurm that stands still, with a checkpoint saved."""

    def __init__(self, project, model):
        self.project, self.model = project, model
        self.process = None

    def start(self, *words):
        """Have Snakemake submit it, and stop it in its tracks."""
        line = self.project.slurm(f"{self.model}/stage.json", execution="threads: 2, checkpoint_seconds: 0")
        self.process = subprocess.Popen([*line, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        folder = self.project.folder / self.model
        until(lambda: list(folder.glob("checkpoints/step-*/state.json")) or self.process.poll() is not None)
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        """Send a signal to the training, and to no other process."""
        found = subprocess.run(["pgrep", "-f", f"tandem model .*--out {self.model}/"], capture_output=True, text=True)
        pids = [int(pid) for pid in found.stdout.split()]
        (pid,) = [pid for pid in pids if Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python")]
        os.kill(pid, number)

    def ended(self):
        """What Snakemake has said; it must have succeeded."""
        output, _ = self.process.communicate(timeout=2 * SLOW)
        assert self.process.returncode == 0, output
        return output

    def log(self):
        """What the last try has said."""
        return (self.project.folder / self.model / "log.txt").read_text()

    def weights(self):
        """Content hashes of the model's weights."""
        return self.project.hashes("*.safetensors", self.model)


def queue():
    """Numbers of the jobs in the queue."""
    return subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, text=True, check=True).stdout.split()


def until(true):
    """Wait for something to come true."""
    deadline = time.monotonic() + SLOW
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def training(undisturbed, tmp_path):
    """A training to be disturbed; what it leaves in the queue is removed."""
    model = undisturbed.model("--forceall")
    made = Disturbed(undisturbed.copy(tmp_path / "copy", Path(model).name), model)
    yield made
    if made.process:
        made.process.kill()
        made.process.communicate()
    subprocess.run(["scancel", "--user", "root"], check=True)
    until(lambda: not queue())


@pytest.fixture
def there(undisturbed):
    """Content hashes of the undisturbed model's weights."""
    return undisturbed.hashes("*.safetensors", undisturbed.model("--forceall"))


@long
def test_a_cancelled_job_is_submitted_again_and_goes_on(training, there):
    training.start()
    subprocess.run(["scancel", *queue()], check=True)
    assert "Trying to restart job" in training.ended()
    assert "resumes at step" in training.log()
    assert training.weights() == there


@long
def test_a_job_over_its_time_limit_is_submitted_again_and_goes_on(training, there):
    training.start("--set-resources", "train:runtime=1")
    assert "SLURM status is: 'TIMEOUT'" in training.ended()
    assert "resumes at step" in training.log()
    assert training.weights() == there


@long
def test_slurmd_is_killed_and_started_again(training, lab, there):
    training.start()
    os.kill(int((lab / "slurmd.pid").read_text()), signal.SIGKILL)
    time.sleep(3)
    subprocess.run(["slurmd", "-N", os.uname().nodename.split(".")[0]], check=True)
    training.signal(signal.SIGCONT)
    assert "Trying to restart job" not in training.ended()
    assert training.weights() == there


@long
def test_snakemake_is_killed_and_started_again(training, there):
    training.start()
    (left,) = queue()
    training.process.kill()
    training.process.communicate()
    finished(training.project.slurm("--unlock"))
    said = finished(training.project.slurm(f"{training.model}/stage.json"))
    assert f"cancels 1 slurm jobs that an earlier Snakemake has left: {left}" in said
    assert "resumes at step" in training.log()
    assert training.weights() == there


@long
def test_the_whole_graph_gives_the_same_bytes(undisturbed, tmp_path):
    other = undisturbed.copy(tmp_path / "whole", "results")
    code, output = undisturbed.run()
    assert code == 0, output
    finished(other.slurm())
    for name in ("run.trec", "*.safetensors", "*.npy", "candidates.parquet", "tiny.csv"):
        assert other.hashes(name) == undisturbed.hashes(name)
    assert not list(other.folder.glob("logs/slurm/**/*.log"))  # kept only where a job has failed


@long
def test_the_default_runs_as_the_readme_says(lab, tmp_path):
    line = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--directory", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader((tmp_path / "results/tables/summary.csv").open()))
    assert len({(row["system"], row["first_stage"]) for row in rows}) == 7
    assert (tmp_path / "results/report.html").exists()
