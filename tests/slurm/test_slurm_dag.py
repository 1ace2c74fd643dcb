"""Snakemake on a real slurm of one machine: whatever is cancelled, killed or out of time, the bits are the undisturbed run's.

The short part is one training; `make slurm` (TANDEM_SLURM=1) runs the whole tiny collection with every fault, and the
default. Each skips where slurm is not installed, or cannot be started.
"""

import os
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
STEPS = 300  # long enough to be disturbed
long = pytest.mark.skipif("TANDEM_SLURM" not in os.environ, reason="takes minutes: make slurm")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The folder of a slurm that is up: with 8 cores, much memory and 2 GPUs, all of them pretended."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if missing:
        pytest.skip(f"slurm is not installed (no {', '.join(missing)}): apt-get install slurm-wlm munge")
    if os.getuid() != 0:
        pytest.skip("slurm's daemons of one machine need root")
    if os.path.lexists("/etc/slurm/slurm.conf"):
        pytest.skip("this machine has a slurm: /etc/slurm/slurm.conf")
    folder = tmp_path_factory.mktemp("lab")
    told = {"SLURM_LAB": str(folder), "SLURM_CPUS": "8", "SLURM_MEMORY": "200000", "SLURM_GPUS": "2"}
    environment = {**os.environ, **told, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    done = subprocess.run([UP, "up"], env=environment, capture_output=True, text=True)
    try:
        if done.returncode:
            pytest.skip(f"slurm does not come up here: {done.stderr.strip()}")
        yield folder
    finally:
        subprocess.run([UP, "down"], env=environment, capture_output=True)


class Slurm(Project):
    """The tiny project, with a dual encoder whose training is long enough to be disturbed."""

    def __init__(self, folder, encoder_folder, documents):
        super().__init__(folder, encoder_folder, documents)
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["models"]["de_bm25neg"]["train"] = {**TRAIN, "steps": STEPS}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))

    @property
    def model(self):
        """The folder of the dual encoder."""
        return self.folder / Path(self.target).parent

    def slurm(self, *words, execution="threads: 2"):
        """The command line of Snakemake on slurm; two cores a job, as in the local runs, and quick looks at the queue."""
        return [
            sys.executable, "-m", "snakemake", *words, "-s", str(ROOT / "Snakefile"), "--directory", str(self.folder),
            "--workflow-profile", "none", "--profile", str(ROOT / "config/profiles/slurm"), "--set-threads", "all=1",
            "--slurm-init-seconds-before-status-checks", "2",
            "--configfile", str(self.folder / "config.yaml"), "--config", f"execution={{{execution}}}",
        ]  # fmt: skip

    def everywhere(self, name):
        """Content hash of every file of that name under results/, by its place."""
        found = self.folder.glob(f"results/**/{name}")
        return {str(path.relative_to(self.folder)): sha256(path) for path in found}

    def weights(self):
        """Content hashes of the dual encoder's weights."""
        made = {name: one for name, one in self.everywhere("*.safetensors").items() if name.startswith(f"{self.model.relative_to(self.folder)}/")}
        assert made
        return made

    def log(self):
        """What the last try of the training has said."""
        return (self.model / "log.txt").read_text()

    def signal(self, number):
        """Send a signal to the training, and to no other process."""
        found = subprocess.run(["pgrep", "-f", f"tandem model .*--out {self.target}"], capture_output=True, text=True)
        pids = [int(pid) for pid in found.stdout.split()]
        (pid,) = [pid for pid in pids if Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python")]
        os.kill(pid, number)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, encoder_folder, documents):
    """The tiny project, run locally."""
    made = Slurm(tmp_path_factory.mktemp("undisturbed"), encoder_folder, documents)
    code, output = made.run()
    assert code == 0, output
    (stage,) = made.folder.glob("results/tiny/model/de_bm25neg-*/stage.json")
    Slurm.target = str(stage.relative_to(made.folder))
    return made


@pytest.fixture
def copied(undisturbed, tmp_path):
    """The finished project once more, without the model that is to be trained by slurm."""
    other = object.__new__(Slurm)
    other.folder = tmp_path / "copy"
    shutil.copytree(undisturbed.folder, other.folder, ignore=shutil.ignore_patterns(".snakemake"))
    shutil.rmtree(other.model)
    return other


def queue(form="%i"):
    """The queue, a line a job."""
    told = subprocess.run(["squeue", "-h", "-o", form], capture_output=True, text=True, check=True).stdout
    return told.split()


def until(true, seconds=180):
    """Wait for something that comes true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.fixture
def training(lab, copied):
    """`training(…)`: Snakemake trains the model on slurm and has just saved its first checkpoint."""
    started = []

    def start(*words, execution="threads: 2, checkpoint_seconds: 0"):
        line = copied.slurm(copied.target, *words, execution=execution)
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        until(lambda: list(copied.model.glob("checkpoints/step-*/state.json")))
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
    subprocess.run(["scancel", "--user", "root"], check=True)
    until(lambda: not queue())


def ended(process):
    """What Snakemake said; it must have succeeded."""
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    return output


@long
def test_the_whole_graph_gives_the_same_bytes(lab, undisturbed, tmp_path):
    other = object.__new__(Slurm)
    other.folder = tmp_path / "whole"
    shutil.copytree(undisturbed.folder, other.folder, ignore=shutil.ignore_patterns(".snakemake", "results"))
    done = subprocess.run(other.slurm("all"), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("run.trec", "*.safetensors", "*.npy", "candidates.parquet", "scores.parquet"):
        assert other.everywhere(name) == undisturbed.everywhere(name)
    assert (other.folder / "results/tables/tiny.csv").read_text() == (
        undisturbed.folder / "results/tables/tiny.csv"
    ).read_text()
    assert not list(other.folder.glob("logs/slurm/**/*.log"))  # kept only where a job failed


@long
def test_a_training_gives_way_before_its_time_is_up_and_no_try_is_counted(lab, copied, undisturbed):
    """One minute a job, and two minutes before its end it is to give way: a single step in each, and no retry at all."""
    short = ["--set-resources", "train:runtime=1", "--retries", "0"]
    execution = "threads: 2, stop_seconds: 120"
    (copied.folder / "steps.yaml").write_text(yaml.safe_dump({"models": {"de_bm25neg": {"train": {"steps": 3}}}}))
    done = subprocess.run(copied.slurm(copied.target, *short, execution=execution), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert copied.weights() == undisturbed.weights()


@long
def test_a_cancelled_job_is_submitted_again_and_goes_on(training, copied, undisturbed):
    process = training()
    subprocess.run(["scancel", *queue()], check=True)
    assert "Trying to restart job" in ended(process)
    assert "resumes at step" in copied.log()
    assert copied.weights() == undisturbed.weights()


@long
def test_a_job_over_its_time_limit_is_submitted_again_and_goes_on(training, copied, undisturbed):
    """A training that hangs, for it is stopped, so that it does not give way by itself."""
    process = training("--set-resources", "train:runtime=1", execution="threads: 2, checkpoint_seconds: 0, stop_seconds: 0")
    copied.signal(signal.SIGSTOP)
    assert "SLURM status is: 'TIMEOUT'" in ended(process)
    assert "resumes at step" in copied.log()
    assert copied.weights() == undisturbed.weights()


@long
def test_slurmd_is_killed_and_started_again(training, lab, copied, undisturbed):
    process = training()
    os.kill(int((lab / "slurmd.pid").read_text()), signal.SIGKILL)
    time.sleep(3)
    subprocess.run(["slurmd", "-N", os.uname().nodename.split(".")[0]], check=True)
    assert "Trying to restart job" not in ended(process)
    assert copied.weights() == undisturbed.weights()


@long
def test_snakemake_is_killed_and_started_again(training, copied, undisturbed):
    process = training()
    (left,) = queue()
    process.kill()
    process.communicate()
    unlocked = subprocess.run(copied.slurm("--unlock"), capture_output=True, text=True)
    assert unlocked.returncode == 0, unlocked.stderr
    done = subprocess.run(copied.slurm(copied.target), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"cancels 1 slurm jobs that an earlier Snakemake has left: {left}" in done.stderr
    assert "resumes at step" in copied.log()
    assert copied.weights() == undisturbed.weights()
