"""A controller and three nodes, one of which is cut off from the others and comes back: the bytes stay the same."""

import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from machines_kit import Spread
from slurm_kit import SLOW, Slurm, long, until

pytestmark = long

STEPS = {"models": {"de_bm25neg": {"train": {"steps": 40}}}}
TWO_DEVICES = "threads: 2, devices: 2, checkpoint_seconds: 0"
TWO_NODES = "threads: 1, nodes: 2, checkpoint_seconds: 0"
SUBMITTED = "submitted with SLURM jobid"
WAITS = "is making this already: waits until it ends"
LATER = ("embeddings", "retrieve", "rerank", "score", "tables")  # what is made after the models


@pytest.fixture
def clean(machines):
    """The machines, which have nothing to do before and after."""
    machines.clear()
    yield machines
    machines.clear()


@pytest.fixture
def started(clean):
    """`started(project, …)`: a Snakemake on the controller that does not outlive its test."""
    processes = []

    def start(project, *words, **options):
        processes.append(project.start(*words, **options))
        return processes[-1]

    yield start
    for process in processes:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture(scope="module")
def local(tiny_dag, tmp_path_factory):
    """The tiny project with a longer training of the dual encoder, by two processes of one machine without slurm."""
    project = Slurm(tiny_dag, tmp_path_factory.mktemp("local") / "project", STEPS)
    code, output = project.run(
        f"{project.model()}/stage.json", "--config", f"execution={{{TWO_DEVICES}}}"
    )
    assert code == 0, output
    return project


class Training:
    """A training of 40 steps on the nodes that has saved a checkpoint, and its Snakemake."""

    def __init__(self, machines, local, folder):
        model = local.model()
        self.project = Spread(machines, local, folder, ignored=[os.path.basename(model)])
        self.machines, self.model = machines, model

    def begin(self, start, execution):
        """Start it, and stop its first process in its tracks."""
        self.snakemake = start(self.project, f"{self.model}/stage.json", execution=execution)
        folder = self.project.folder / self.model
        saved = folder.glob
        until(
            lambda: (
                list(saved("checkpoints/step-*/state.json")) or self.snakemake.poll() is not None
            )
        )
        self.signal(signal.SIGSTOP)

    def first(self):
        """Node and process of rank 0."""
        every = self.machines.processes(f"tandem model .*--out {self.model}/")
        ranks = [
            (node, pid)
            for node, pid in every
            if b"\0RANK=0\0" in Path(f"/proc/{pid}/environ").read_bytes()
        ]
        return ranks[0]

    def nodes(self):
        """The nodes that it runs on, that of rank 0 first."""
        every = {node for node, _ in self.machines.processes(f"tandem model .*--out {self.model}/")}
        first, _ = self.first()
        return [first, *sorted(every - {first})]

    def signal(self, number):
        """Send a signal to rank 0."""
        os.kill(self.first()[1], number)

    def log(self):
        """What its last try has said; nothing while Snakemake begins the next one."""
        path = self.project.folder / self.model / "log.txt"
        return path.read_text() if path.exists() else ""

    def check(self, local):
        """Check that it went on from its checkpoint, in the one job that was submitted, to the same weights."""
        output, status = self.project.ended(self.snakemake)
        assert status == 0, output
        assert output.count(SUBMITTED) == 1
        assert "Trying to restart job" not in output
        assert "resumes at step" in self.log()
        assert self.project.hashes("*.safetensors", self.model) == local.hashes(
            "*.safetensors", self.model
        )


@pytest.fixture
def training(clean, local, tmp_path):
    """A training to be disturbed."""
    return Training(clean, local, tmp_path / "training")


class HaltedShard(NamedTuple):
    """A stage in two shards, one of which has begun on a node and was stopped there."""

    snakemake: Any
    target: Path  # folder of the stage's artifact
    log: Path  # of the shard
    node: str


def halt_shard(machines, started, project, finished) -> HaltedShard:
    """Start the encoding of passages in two shards, and stop the first one's process once it has its lock."""
    (done,) = finished.folder.glob("results/tiny/embeddings/rocketqav2.passages-*")
    target = done.relative_to(finished.folder)
    shards = project.folder / target / "shards"
    snakemake = started(project, f"{target}/stage.json", execution="threads: 2, shards: 2")
    until(lambda: list(shards.glob(".*.json.lock")))
    name = next(shards.glob(".*.json.lock")).name.removeprefix(".").removesuffix(".lock")
    until(lambda: machines.processes(f"tandem .*--out {target}/shards/{name}"))
    ((node, pid),) = machines.processes(f"tandem .*--out {target}/shards/{name}")
    os.kill(pid, signal.SIGSTOP)
    return HaltedShard(snakemake, target, shards / name.replace(".json", ".txt"), node)


def test_a_node_cut_off_within_a_shard_comes_back(clean, started, tiny_dag, tmp_path):
    """The next try, on another node, waits: the first may still write, for all that anybody knows."""
    project = Spread(clean, tiny_dag, tmp_path / "cut", ignored=LATER)
    halted = halt_shard(clean, started, project, tiny_dag)
    clean.ask("cut", halted.node)
    log = halted.log
    until(lambda: log.exists() and WAITS in log.read_text())
    assert f"on {halted.node} {WAITS}" in log.read_text()
    clean.ask("heal", halted.node)
    output, status = project.ended(halted.snakemake)
    assert status == 0, output
    assert output.count(SUBMITTED) == 3  # two shards and their stage, each once
    assert "Trying to restart job" not in output
    assert project.hashes("*.npy", halted.target) == Slurm(tiny_dag, tmp_path / "local").hashes(
        "*.npy", halted.target
    )
    clean.wait_until_idle()


def test_a_node_that_is_switched_off_within_a_shard(clean, started, tiny_dag, tmp_path):
    """Its lock goes with its process: the next try, on another node, makes the shard while the first is still off."""
    project = Spread(clean, tiny_dag, tmp_path / "off", ignored=LATER)
    halted = halt_shard(clean, started, project, tiny_dag)
    clean.ask("off", halted.node)
    output, status = project.ended(halted.snakemake)
    assert status == 0, output
    assert output.count(SUBMITTED) == 3  # two shards and their stage, each once
    assert "Trying to restart job" not in output
    assert project.hashes("*.npy", halted.target) == Slurm(tiny_dag, tmp_path / "local").hashes(
        "*.npy", halted.target
    )


def test_two_nodes_train_what_one_does(clean, local, tmp_path):
    project = Spread(clean, local, tmp_path / "two", ignored=[os.path.basename(local.model())])
    project.run_there(f"{local.model()}/stage.json", execution=TWO_NODES)
    assert clean.nodes_of_jobs() & {"node[1-2]", "node[2-3]", "node[1,3]"}
    assert project.hashes("*.safetensors", local.model()) == local.hashes(
        "*.safetensors", local.model()
    )


@pytest.fixture
def late_clock(clean):
    """The machines, of which node1 is a minute behind the others."""
    if not shutil.which("cc"):
        pytest.skip("a clock differs by tests/slurm/clock.c, which needs a C compiler")
    clean.restart("node1", LAB_CLOCK="-60")
    # slurm may take it for idle before it has noticed that it was off
    until(lambda: 55 < time.time() - int(clean.ask("run", "node1", "date", "+%s")) < 120)
    clean.wait_until_idle()
    yield clean
    clean.restart("node1")


def test_two_nodes_whose_clocks_differ_train_what_one_does(late_clock, local, tmp_path):
    folder = local.model()
    project = Spread(late_clock, local, tmp_path / "clocks", ignored=[os.path.basename(folder)])
    output = project.run_there(
        f"{folder}/stage.json",
        execution=TWO_NODES,
        default_resources={"slurm_extra": "'--exclude=node3'"},
    )
    assert output.count(SUBMITTED) == 1
    assert project.hashes("*.safetensors", folder) == local.hashes("*.safetensors", folder)


def test_shards_of_a_node_whose_clock_differs(late_clock, tiny_dag, tmp_path):
    """What it writes is newer than its clock, and its jobs are older than they say."""
    project = Spread(late_clock, tiny_dag, tmp_path / "shards", ignored=LATER)
    (done,) = tiny_dag.folder.glob("results/tiny/embeddings/rocketqav2.passages-*")
    target = done.relative_to(tiny_dag.folder)
    output = project.run_there(
        f"{target}/stage.json",
        execution="threads: 2, shards: 2",
        default_resources={"slurm_extra": "'--nodelist=node1'"},
    )
    assert output.count(SUBMITTED) == 3
    assert project.hashes("*.npy", target) == Slurm(tiny_dag, tmp_path / "local").hashes(
        "*.npy", target
    )


def test_a_node_without_the_environment_is_one_line(clean, tiny_dag, tmp_path):
    project = Spread(clean, tiny_dag, tmp_path / "bare", ignored=["score"])
    (done,) = tiny_dag.folder.glob("results/tiny/score/bm25.test-*")
    target = done.relative_to(tiny_dag.folder)
    clean.ask("run", "node1", "mount", "-t", "tmpfs", "tmpfs", sys.prefix)
    try:
        output = project.run_there(
            f"{target}/stage.json",
            code=1,
            default_resources={"slurm_extra": "'--nodelist=node1'"},
            retries=0,
        )
    finally:
        clean.ask("run", "node1", "umount", sys.prefix)
    line = output.strip().splitlines()[-1]
    assert f"{sys.executable}: not found on the job's node" in line
    assert "docs/how_to/slurm.md" in line
    assert not (project.folder / target / "stage.json").exists()


def test_the_baseline_in_four_shards_on_three_nodes_gives_the_same_bytes(clean, tiny_dag, tmp_path):
    project = Spread(clean, tiny_dag, tmp_path / "baseline", ignored=["results"])
    output = project.run_there("baseline", execution="threads: 2, shards: 4")
    assert "Trying to restart job" not in output
    submitted = re.findall(rf"{SUBMITTED} (\d+)", output)
    nodes = clean.nodes_by_job()
    assert {nodes[job] for job in submitted if job in nodes} == {"node1", "node2", "node3"}
    assert len(submitted) == len(set(submitted)) > 8  # of two stages a job for each shard
    there = Slurm(tiny_dag, tmp_path / "there")
    (run,) = tiny_dag.folder.glob("results/tiny/bm25/bm25.test-*")
    for name, folder in (
        ("*.parquet", "results/tiny/dataset"),
        ("run.*", run.relative_to(tiny_dag.folder)),
    ):
        assert project.hashes(name, folder) == there.hashes(name, folder)


def test_the_whole_graph_in_four_shards_on_three_nodes_gives_the_same_bytes(
    clean, tiny_dag, tmp_path
):
    """From the collection's file to the table: every vector, run, weight and cell is that of one machine."""
    project = Spread(clean, tiny_dag, tmp_path / "whole", ignored=["results"])
    output = project.run_there(execution="threads: 2, shards: 4", limit=12 * SLOW)
    assert "Trying to restart job" not in output
    submitted = re.findall(rf"{SUBMITTED} (\d+)", output)
    assert len(submitted) == len(set(submitted)) > 40
    there = Slurm(tiny_dag, tmp_path / "there")
    for name in ("candidates.parquet", "*.npy", "*.safetensors", "run.*", "tiny.csv"):
        assert project.hashes(name) == there.hashes(name)


def test_the_first_of_two_nodes_is_cut_off_within_a_training_and_comes_back(
    training, started, clean, local
):
    """Its process may still write: the next try, on the two others, waits for it."""
    training.begin(started, TWO_NODES)
    node, _ = training.nodes()
    clean.ask("cut", node)
    training.signal(signal.SIGCONT)
    until(lambda: clean.states()[node] == "down")
    until(lambda: f"on {node} {WAITS}" in training.log())
    clean.ask("heal", node)
    training.check(local)
    clean.wait_until_idle()


def test_files_that_are_seen_late_are_waited_for(clean, tiny_dag, tmp_path):
    """For 8 seconds the controller sees what it saw last of a file, as on a network file system."""
    if not shutil.which("bindfs"):
        pytest.skip(
            "files are shown late by bindfs, which is not installed: apt-get install bindfs"
        )
    clean.restart("ctl", LAB_LATE="ctl", LAB_LATE_SECONDS="8")
    project = Spread(clean, tiny_dag, tmp_path / "late", ignored=["score"])
    (done,) = tiny_dag.folder.glob("results/tiny/score/bm25.test-*")
    target = done.relative_to(tiny_dag.folder)
    output = project.run_there(f"{target}/stage.json", latency_wait=30)
    assert output.count(SUBMITTED) == 1
    assert project.hashes("*.parquet", target) == Slurm(tiny_dag, tmp_path / "local").hashes(
        "*.parquet", target
    )
    clean.restart("ctl")
