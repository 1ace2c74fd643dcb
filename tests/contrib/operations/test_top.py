"""`top`: what running jobs say, here and over ssh; and how they say it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tandem.cli import run
from tandem.cluster.progress import Progress
from tandem.errors import UserError
from tandem.extras.running.progress_files import keep_progress_file


@pytest.fixture
def job(project):
    """`job(place, **facts)`: a job's progress file below results/toy."""

    def write(place, **facts):
        path = project.root / "results/toy" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        now = time.time()
        head = {
            "command": path.parts[-3],
            "key": path.parent.name,
            "node": "n1",
            "pid": 1,
            "started": now - 90,
        }
        path.write_text(json.dumps({**head, "updated": now, **facts}) + "\n")
        return path

    return write


def test_a_line_for_each_job(job, run_command):
    facts = {
        "done": 1200,
        "total": 4800,
        "unit": "steps",
        "note": "loss 1.183",
        "rate": 2.5,
        "left": 6960,
    }
    job(
        "model/de-0123456789/progress.json",
        **facts,
        peak_memory_mib=5222,
        gpu_memory_mib=2048,
        slurm="77",
    )
    job("embeddings/de-0123456789/shards/0-of-2.progress.json", updated=time.time() - 600)
    job("bm25/.hidden/progress.json")
    (job("bm25/b-0123456789/progress.json")).write_text("not JSON")
    status, lines = run_command("top")
    assert status == 0
    assert lines[0].split() == [
        "job",
        "done",
        "of",
        "loss",
        "and",
        "more",
        "rate",
        "left",
        "memory",
        "gpu",
        "where",
        "state",
    ]
    (training,) = (line for line in lines if "model de-0123456789" in line)
    for cell in (
        "1,200 steps",
        "4,800",
        "loss 1.183",
        "2.5/s",
        "1 h 56 min",
        "5.1 GiB",
        "2.0 GiB",
        "n1 slurm 77",
        "for 1 min 30 s",
    ):
        assert cell in training
    assert any("silent for 10 min 0 s" in line for line in lines)
    assert len(lines) == 3
    assert [
        json.loads(line)["unit"] for line in run_command("top", "--json")[1] if '"unit"' in line
    ] == ["steps"]


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"3",
        b'{"updated": "now"}',
        b"\xff\xfe",
        b'{"updated": 1e999, "started": 1}',
        b'{"updated": 1}',
        b"",
    ],
)
def test_a_file_that_is_none_of_ours_is_passed_over(job, run_command, content):
    job("model/de-0123456789/progress.json", note="loss 0.5")
    job("model/ce-0123456789/progress.json").write_bytes(content)
    job("model/x-0123456789/progress.json", done="many", rate="fast")
    status, lines = run_command("top")
    assert status == 0
    assert len(lines) == 2
    assert "loss 0.5" in lines[1]


def test_a_job_of_a_dataset_on_another_disk_is_shown(job, project, run_command, tmp_path_factory):
    job("model/de-0123456789/progress.json", done=1, total=2, unit="steps")
    moved = tmp_path_factory.mktemp("disk") / "toy"
    (project.root / "results/toy").rename(moved)
    (project.root / "results/toy").symlink_to(moved)
    assert "de-0123456789" in run_command("top")[1][1]


def test_nothing_runs_and_nowhere(project, run_command):
    assert run_command("top") == (0, ["no job is running"])
    with pytest.raises(UserError, match="nowhere: no such folder"):
        run(["top", "nowhere"])


def test_over_ssh_by_a_shell_that_quotes(job, project, run_command, monkeypatch, tmp_path):
    # an ssh that asks this machine: what would be typed there is run by a shell, as sshd does
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin/ssh"
    ssh.write_text(
        '#!/bin/sh\necho "$@" > "$SAID"\nwhile [ "$1" != "--" ]; do shift; done\nexec sh -c "$3"\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    job("model/de-0123456789/progress.json", note="loss 0.5")
    folder = tmp_path / "my $(touch bad); 'results"
    (project.root / "results").rename(folder)
    lines = run_command("top", f"me@node.cluster:{folder}")[1]
    assert "loss 0.5" in lines[1]
    assert "me@node.cluster" in lines[1]
    assert "-- me@node.cluster" in (tmp_path / "said").read_text()
    assert not (project.root / "bad").exists()
    with pytest.raises(UserError, match="node: find: .*No such file or directory"):
        run(["top", "node:nowhere"])
    for host in ("-oProxyCommand=touch bad:x", "a b:x", "$(x):y"):
        with pytest.raises(UserError, match="is not a host"):
            run(["top", "--", host])


def test_control_characters_of_a_file_do_not_reach_the_terminal(job, run_command):
    job("model/de-0123456789/progress.json", note="\x1b[2Jgone")
    assert "\x1b" not in "".join(run_command("top")[1])


def test_a_job_tells_its_progress_and_takes_the_file_away(project):
    out = project.root / "results/toy/model/de-0123456789/stage.json"
    with keep_progress_file(["model", "--out", str(out)]):
        path = out.with_name("progress.json")
        assert json.loads(path.read_text())["key"] == "de-0123456789"
        with Progress("train de", 10, "steps") as progress:
            progress.told -= 10
            progress.add(4, note="loss 0.25")
            facts = json.loads(path.read_text())
            assert (facts["done"], facts["total"], facts["note"], facts["pid"]) == (
                4,
                10,
                "loss 0.25",
                os.getpid(),
            )
            assert facts["peak_memory_mib"] > 0
            progress.add(1)  # within two seconds: not written again
            assert json.loads(path.read_text())["done"] == 4
            with Progress("rank 1", 10, "steps", quiet=True) as silent:
                silent.told -= 10
                silent.add(9)
            assert json.loads(path.read_text())["done"] == 4
    assert not path.exists()
    with pytest.raises(ValueError, match="ended"), keep_progress_file(["model", "--out", str(out)]):
        raise ValueError("ended")
    assert list(out.parent.iterdir()) == []


def test_a_disk_that_is_full_ends_no_job(project):
    (project.root / "file").touch()
    with (
        keep_progress_file(["model", "--out", str(project.root / "file/de-0123456789/stage.json")]),
        Progress("x", 1, "steps") as progress,
    ):
        progress.add(1)


def test_a_killed_job_is_silent_after_a_minute(project, run_command):
    out = project.root / "results/toy/bm25/b-0123456789/stage.json"
    words = ["bm25", "--out", str(out)]
    code = "import time, tandem.extras.running.progress_files as p\n"
    code += f"with p.keep_progress_file({words!r}):\n print(1, flush=True)\n"
    code += " time.sleep(60)"
    job = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    job.stdout.readline()
    job.send_signal(signal.SIGKILL)
    job.wait()
    job.stdout.close()
    path = out.with_name("progress.json")
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "updated": facts["updated"] - 61}))
    assert "silent for 1 min" in run_command("top")[1][1]
