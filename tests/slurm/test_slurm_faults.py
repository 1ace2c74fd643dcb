"""Whatever is cancelled, killed, out of time or failing on a real slurm, the bits stay the same."""

import os
import resource
import signal
import subprocess
import time

import pytest
from slurm_kit import Disturbed, Slurm, finished, long, output_of, queue, submitted, until

pytestmark = long


@pytest.fixture(scope="module")
def undisturbed(tiny_dag, tmp_path_factory):
    """The tiny project with a longer training of the dual encoder, run locally."""
    forty = {"models": {"de_bm25neg": {"train": {"steps": 40}}}}
    project = Slurm(tiny_dag, tmp_path_factory.mktemp("undisturbed") / "project", forty)
    code, output = project.run(f"{project.model()}/stage.json")
    assert code == 0, output
    return project


@pytest.fixture
def there(undisturbed):
    """Content hashes of the undisturbed model's weights."""
    return undisturbed.hashes("*.safetensors", undisturbed.model())


@pytest.fixture
def training(lab, undisturbed, there, tmp_path):
    """A training to be disturbed; what it leaves in the queue is removed."""
    disturbed = Disturbed(
        Slurm(undisturbed, tmp_path / "copy", ignored=[os.path.basename(undisturbed.model())])
    )
    yield disturbed
    if disturbed.process and disturbed.process.returncode is None:
        disturbed.process.kill()
        disturbed.process.communicate()
    subprocess.run(["scancel", "--user", "root"], check=True)
    until(lambda: not queue())


def test_a_cancelled_job_is_submitted_again_and_goes_on(training, there):
    training.start()
    (job,) = queue()
    (shown,) = [line for line in training.top() if line.startswith("model ")]
    assert f"slurm {job} " in shown
    assert "/40" in shown or " 40 " in shown
    subprocess.run(["scancel", job], check=True)
    assert "Trying to restart job" in training.ended()
    assert "resumes at step" in training.log()
    assert training.weights() == there


def test_a_job_over_its_time_limit_is_submitted_again_with_more_memory_and_goes_on(training, there):
    training.start()
    subprocess.run(["scontrol", "update", f"JobId={queue()[0]}", "TimeLimit=1"], check=True)
    output = training.ended()
    assert "SLURM status is: 'TIMEOUT'" in output
    assert submitted(output) == ["(null) main 2 32000M 1:00", "(null) main 2 64000M 1-00:00:00"]
    assert "resumes at step" in training.log()
    assert training.weights() == there


def test_a_job_out_of_memory_is_submitted_again_with_more(training, there):
    little = {"train": {"mem_mb": "150 * attempt ** 4"}}
    line = training.project.slurm(f"{training.model}/stage.json", set_resources=little, retries=1)
    assert submitted(finished(line)) == [
        "(null) main 2 150M 1-00:00:00",
        "(null) main 2 2400M 1-00:00:00",
    ]
    assert training.weights() == there


def test_a_training_that_fails_having_come_further_uses_up_no_try(training, there):
    """It may write no file above 8 KiB any more: the next checkpoint fails, and there is no try left."""
    training.start("--retries", "0")
    resource.prlimit(training.pid(), resource.RLIMIT_FSIZE, (8192, 8192))
    training.signal(signal.SIGCONT)
    output = training.ended()
    assert "Error" not in output
    assert len(submitted(output)) == 1
    assert "resumes at step" in training.log()
    assert training.weights() == there


def test_slurmd_is_killed_and_started_again(training, lab, there):
    training.start()
    os.kill(int((lab / "slurmd.pid").read_text()), signal.SIGKILL)
    time.sleep(3)
    subprocess.run(["slurmd", "-N", os.uname().nodename.split(".")[0]], check=True)
    training.signal(signal.SIGCONT)
    assert "Trying to restart job" not in training.ended()
    assert training.weights() == there


def test_a_node_that_fails_gives_its_job_back(training, there):
    training.start()
    (job,) = queue()
    node = f"NodeName={os.uname().nodename.split('.')[0]}"
    subprocess.run(["scontrol", "update", node, "State=DOWN", "Reason=test"], check=True)
    until(lambda: output_of("squeue", "-h", "-j", job, "-o", "%T") == ["PENDING"])
    training.signal(signal.SIGKILL)  # it and what started it there are gone with the node
    subprocess.run(
        ["pkill", "-KILL", "-f", f"{training.project.folder}/.*slurm-jobstep"], check=True
    )
    subprocess.run(["scontrol", "update", node, "State=RESUME"])  # it may have come back by itself
    output = training.ended()
    assert "Trying to restart job" not in output
    assert len(submitted(output)) == 1
    assert "resumes at step" in training.log()
    assert training.weights() == there


def test_snakemake_is_killed_and_started_again(training, there):
    training.start()
    (left,) = queue()
    training.process.kill()
    training.process.communicate()
    finished(training.project.slurm("--unlock"))
    output = finished(training.project.slurm(f"{training.model}/stage.json"))
    assert f"cancels 1 slurm jobs that an earlier Snakemake has left: {left}" in output
    assert "resumes at step" in training.log()
    assert training.weights() == there


def test_a_stage_that_fails_is_tried_with_more_and_leaves_its_words_where_one_looks(
    lab, tiny_dag, tmp_path
):
    folder = tmp_path / "copy"
    here = {"datasets": {"tiny": {"source": "beir", "path": str(folder / "beir")}}}
    project = Slurm(tiny_dag, folder, here, ignored=["results"])
    with (folder / "beir/corpus.jsonl").open("a") as file:
        file.write('{"_id": "otter-1", "title": "", "text": "again"}\n')
    second = {"dataset": {"slurm_partition": "second"}}
    line = project.slurm(
        "--until", "dataset", set_resources=second, set_threads={"dataset": 4}, retries=1
    )
    output = finished(line, code=1)
    assert submitted(output) == ["(null) second 4 8000M 1:00:00", "(null) second 4 16000M 2:00:00"]
    (log,) = folder.glob("results/tiny/dataset/*/log.txt")
    assert "otter-1" in log.read_text()
    slurms = list(folder.glob("logs/slurm/rule_dataset/tiny_*/*.log"))
    assert len(slurms) == 2
    assert all(
        "Error in rule dataset" in path.read_text() and str(path) in output for path in slurms
    )
