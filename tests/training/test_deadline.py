"""A training that is to end early saves its state, says so in a line, and ends with the same bits when it goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tandem.cluster import scheduler as slurm
from tandem.errors import UserError
from tandem.store.files import sha256
from tandem.training import stage
from tandem.training.checkpoints import SIGNALS
from tandem.training.loop import TrainingLoop


def weights(folder):
    return {str(p.relative_to(folder)): sha256(p) for p in sorted(folder.rglob("*.safetensors"))}


@pytest.fixture
def scheduler(monkeypatch, tmp_path):
    """`scheduler(comment, left, restarts)`: commands of slurm that know job 12, and write down what they are told.

    They know its comment, the time that it has left, and how often it was put back into the queue.
    """

    def make(comment, left="1:30", restarts=0):
        folder = tmp_path / "bin"
        folder.mkdir()
        answers = (
            f'%k) echo "{comment}" ;; %L) echo "{left}" ;; RestartCnt) echo "{restarts}      " ;;'
        )
        squeue = f'#!/bin/sh\n[ "$3" = 12 ] && case "$5" in {answers} esac\n'
        scontrol = f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n'
        for name, text in (("squeue", squeue), ("scontrol", scontrol)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("SLURM_JOB_ID", "12")
        monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
        return tmp_path / "told"

    return make


@pytest.fixture
def signalled(monkeypatch):
    """`signalled(number, step)`: this process gets a signal while it does that step."""

    def at(number, step):
        whole = TrainingLoop.step

        def disturbed(self, state, batch):
            if state.step + 1 == step:
                os.kill(os.getpid(), number)
            return whole(self, state, batch)

        monkeypatch.setattr(TrainingLoop, "step", disturbed)

    return at


@pytest.mark.parametrize(
    ("left", "seconds"),
    [
        ("1:30", 90),
        ("0:00", 0),
        ("2:00:05", 7205),
        ("3-00:00:01", 259201),
        ("UNLIMITED", None),
        ("INVALID", None),
    ],
)
def test_the_time_left_is_what_slurm_says(scheduler, left, seconds):
    scheduler("", left)
    assert slurm.read_seconds_left({}) is None
    assert slurm.read_seconds_left({"SLURM_JOB_ID": "12"}) == seconds
    assert slurm.read_seconds_left({"SLURM_JOB_ID": "13"}) is None  # slurm does not know it


def test_the_time_left_is_by_the_controllers_clock_if_it_answers(scheduler):
    scheduler("")
    end = {"SLURM_JOB_END_TIME": str(int(time.time()) + 1000)}
    assert slurm.read_seconds_left({"SLURM_JOB_ID": "12", **end}) == 90
    assert 990 < slurm.read_seconds_left({"SLURM_JOB_ID": "13", **end}) <= 1000


@pytest.mark.usefixtures("unignored")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_training_after_its_step_and_the_next_try_goes_on(
    number, quick_job, signalled, monkeypatch
):
    undisturbed = quick_job("dual", "undisturbed")
    stage.run(undisturbed)
    handlers = [signal.getsignal(sig) for sig in SIGNALS]
    job = quick_job("dual")
    signalled(number, 2)
    with pytest.raises(UserError) as error:
        stage.run(job)
    assert str(error.value) == (
        f"train quick-0123456789 at step 2/4: stopped by {number.name}; the next try goes on from there"
    )
    # a cancelled one is not tried again
    assert error.value.status == (1 if number == signal.SIGUSR1 else 128 + number)
    assert slurm.find_newest(job.out) == "step-00000002"
    assert [signal.getsignal(sig) for sig in SIGNALS] == handlers
    signalled(signal.SIGTERM, 4)  # after the last step there is nothing to give way for
    stage.run(job)
    assert weights(job.out) == weights(undisturbed.out)
    assert not (job.out / "checkpoints").exists()


def test_a_closed_terminal_is_ignored_where_nohup_says_so(quick_job, signalled):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        job = quick_job("dual")
        signalled(signal.SIGHUP, 2)
        stage.run(job)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not (job.out / "checkpoints").exists()


@pytest.mark.parametrize(
    ("comment", "then", "expected"),
    [
        (
            "rule_train_wildcards_tiny_de",
            "the job is back in the queue and goes on from there",
            "requeue 12\n",
        ),
        ("a script of one's own", "the next try goes on from there", ""),
    ],
)
def test_before_the_end_of_its_job_a_training_does_one_more_step(
    comment, then, expected, quick_job, scheduler
):
    written = scheduler(comment)
    job = quick_job("dual", stop_seconds=100)
    for step in (1, 2, 3):
        with pytest.raises(
            UserError, match=rf"^train .* at step {step}/4: stopped 1 min \d+ s before the end"
        ) as error:
            stage.run(job)
        assert str(error.value).endswith(then)
    stage.run(job)
    assert (written.read_text() if written.exists() else "") == 3 * expected


def test_time_enough_is_no_reason_to_stop(quick_job, scheduler):
    written = scheduler("rule_train")
    stage.run(quick_job("dual", stop_seconds=10))
    assert not written.exists()


@pytest.mark.parametrize(
    ("later", "status", "expected"),
    [(True, 1, "requeue 12\n"), (False, 1, ""), (True, 128 + 15, ""), (True, 137, "")],
)
def test_a_failure_after_progress_goes_back_into_the_queue(
    later, status, expected, scheduler, tmp_path, capfd
):
    """Without a newer checkpoint Snakemake counts it; what a signal ended was cancelled, or wants more memory."""
    written = scheduler("rule_train")
    checkpoints = tmp_path / "model/de-0123456789/checkpoints"
    (checkpoints / "step-00000003").mkdir(parents=True)
    (checkpoints / "step-00000003/state.json").touch()
    this = slurm.Try(
        ["model", "--params.objective", "dual", "--out", str(checkpoints.parent / "stage.json")]
    )
    if later:
        (checkpoints / "step-00000010").mkdir()
        (checkpoints / "step-00000010/state.json").touch()
    this.failed(status)
    assert (written.read_text() if written.exists() else "") == expected
    assert (
        "has failed after step-00000010; its slurm job is back in the queue"
        in capfd.readouterr().err
    ) == bool(expected)


def test_a_process_that_its_job_has_left_behind_puts_nothing_back(scheduler):
    """Its node was cut off: slurm has started the job elsewhere, under the same number."""
    written = scheduler("rule_train", restarts=2)
    assert not slurm.requeue({"SLURM_JOB_ID": "12"})
    assert not slurm.requeue({"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"})
    assert not written.exists()
    assert slurm.requeue({"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "2"})


def test_only_trainings_go_back(scheduler, tmp_path):
    assert slurm.Try(["bm25", "--out", str(tmp_path / "stage.json")]).out is None
    assert slurm.Try(["report", "--tables", "t"]).out is None


def test_a_signal_to_one_of_two_processes_ends_both_after_the_same_step(
    model_job, command, tmp_path
):
    train = {"steps": 2000, "epochs": 1.0, "choose": "last", "validate_every": None}
    job = model_job("dual", tmp_path / "two-0123456789", train, checkpoint_seconds=0, devices=2)
    line = [sys.executable, "-m", "tandem", "model", *command(job)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True) as launcher:
        deadline = time.monotonic() + 120
        while not slurm.find_newest(job.out) and time.monotonic() < deadline:
            time.sleep(0.01)
        ranks = subprocess.run(
            ["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True
        ).stdout.split()
        (second,) = [
            int(pid) for pid in ranks if b"\0RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes()
        ]
        os.kill(second, signal.SIGTERM)
        output = launcher.communicate(timeout=120)[1]
    step = int(slurm.find_newest(job.out).removeprefix("step-"))
    assert 0 < step < 2000
    expected = f"tandem model: train two-0123456789 at step {step:,}/2,000: stopped by another process; the next try"
    assert expected in output
    assert "Traceback" not in output
    assert launcher.returncode == 1
