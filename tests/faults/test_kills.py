"""SIGKILL at any moment: nothing half-written under a final name, and the next try ends with the same bytes."""

import os
import random
import signal
import subprocess
import time
from collections import Counter

from faults_kit import SEED, TORTURE, kill, until
from tiny_project import run_here

KINDS = ("dataset", "score")  # of the short round; the long one takes all
KILLS = 200 if TORTURE else 6


def moment(process, copied, stage, rng) -> None:
    """Wait: for some processor time of what has been started, or for the writing of the artifact and a little more."""
    if rng.random() < 0.5:
        share = rng.uniform(0, 4)
        until(lambda: processor_seconds(process.pid) >= share, process)
    else:
        until((copied.folder / stage.folder / ".partial").exists, process)
        time.sleep(rng.choice([0, 0, 0.001, 0.01, 0.1]))


def processor_seconds(pid: int) -> float:
    """User and system time of a process; infinite where it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return float("inf")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(kills, began) -> None:
    """Say how many kills there were of each kind of stage, for who waits for hours."""
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kills.items()) if count)
    print(
        f"seed {SEED}: {kills.total()} kills in {time.monotonic() - began:.0f} s: {counts}",
        flush=True,
    )


def test_killed_stages_leave_nothing_half_written_and_end_with_the_same_bytes(copied, undisturbed):
    rng, kills, began = random.Random(SEED), Counter(), time.monotonic()
    kinds = sorted({stage.kind for stage in copied.stages} if TORTURE else KINDS)
    while kills.total() < KILLS or len(+kills) < len(kinds):
        kind = rng.choice(kinds)
        stage = rng.choice([candidate for candidate in copied.stages if candidate.kind == kind])
        # the index of Lucene has other bytes each time; the runs it gives are compared
        expected = None if stage.kind == "lucene" else undisturbed.files(stage)
        copied.remove(stage)
        for _ in range(rng.randint(1, 4)):
            process = copied.start(stage)
            moment(process, copied, stage, rng)
            kills[kind] += process.poll() is None
            kill(process)
            there = copied.files(stage)
            if expected is not None:
                assert there.items() <= expected.items(), (
                    f"{stage.key}: partial files under final names"
                )
            if copied.whole(stage):
                break
        code, output = copied.run(stage)
        assert code == 0, output
        assert "Traceback" not in output
        assert copied.whole(stage)
        assert expected is None or copied.files(stage) == expected
        folder = copied.folder / stage.folder
        assert not [path for path in folder.rglob(".*") if path.name != ".verified.json"], (
            "what was killed is left"
        )
        report(kills, began)


def test_a_job_that_outlives_its_snakemake_is_waited_for(copied, undisturbed):
    stage = copied.named("score")
    expected = undisturbed.files(stage)
    copied.remove(stage)
    first, lock = copied.start(stage), copied.folder / stage.folder / ".stage.json.lock"
    until(lambda: lock.exists() and lock.stat().st_size, first)
    os.kill(first.pid, signal.SIGSTOP)  # it has the lock, and is slow
    second = copied.start(stage)
    message = second.stdout.readline()
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait() == 0
    assert second.wait() == 0
    assert f"score {stage.key} · process {first.pid} on " in message
    assert "is making this already: waits until it ends" in message
    assert copied.whole(stage)
    assert copied.files(stage) == expected
    assert not list((copied.folder / stage.folder).glob(".*"))


def elsewhere(project, copied, stage) -> list[str]:
    """Snakemake's command for a stage of the copy: the same configuration and data, so the same keys."""
    line = project.line(stage.manifest)
    line[line.index("--directory") + 1] = str(copied.folder)
    return line


def test_a_killed_snakemake_says_how_to_unlock_and_ends_with_the_same_bytes(
    tiny_dag, copied, undisturbed
):
    rng, kills = random.Random(SEED), 0
    while kills < (12 if TORTURE else 1):
        target = rng.choice(
            [stage for stage in copied.stages if stage.kind in ("dataset", "bm25", "score")]
        )
        run = elsewhere(tiny_dag, copied, target)
        copied.remove(target)
        process = subprocess.Popen(
            run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        until(lambda: any((copied.folder / ".snakemake/locks").glob("*.lock")), process)
        time.sleep(rng.choice([0, 0.1, 0.3]))
        if process.poll() is not None:
            assert process.returncode == 0
            continue  # it was faster
        kills += 1
        os.kill(process.pid, signal.SIGKILL)  # alone: its job lives on
        process.wait()
        status, output = run_here(run)
        if status == 0:  # the lock was freed already, and the job has finished since
            assert copied.files(target) == undisturbed.files(target)
            continue
        # The second where the lock was not yet taken or freed already: the job had begun, or was not written down.
        assert (
            "It can be removed with the --unlock argument" in output
            or "--rerun-incomplete" in output
        )
        status, output = run_here([*run, "--unlock"])
        assert status == 0, output
        status, output = run_here([*run, "--rerun-incomplete"])
        assert status == 0, output
        assert copied.files(target) == undisturbed.files(target)


def test_what_a_job_finished_after_its_snakemake_was_killed_is_not_made_again(tiny_dag, copied):
    target = copied.named("score", "bm25.test")
    run = elsewhere(tiny_dag, copied, target)
    copied.remove(target)
    made = copied.folder / target.folder / "stage.json"
    process = subprocess.Popen(
        run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    until(made.with_name(".stage.json.lock").exists, process)
    os.kill(process.pid, signal.SIGSTOP)  # it sees nothing of how its job ends
    until(made.exists, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    written = made.stat().st_mtime_ns
    status, output = run_here([*run, "--unlock"])
    assert status == 0, output
    assert "was finished after its Snakemake had ended: it stays" in output
    status, output = run_here([*run, "--rerun-incomplete"])
    assert status == 0, output
    assert made.stat().st_mtime_ns == written


def test_of_two_snakemakes_at_once_the_second_says_why_it_waits_for_nobody(tiny_dag, copied):
    stage = copied.named("score", "bm25.test")
    line = elsewhere(tiny_dag, copied, stage)
    copied.remove(stage)
    first = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # the locks of the inputs come first and stop nobody who writes the same outputs
    locks = (copied.folder / ".snakemake/locks").glob
    until(lambda: any(lock.stat().st_size for lock in locks("*.output.lock")), first)
    os.kill(first.pid, signal.SIGSTOP)
    status, output = run_here(line)
    os.kill(first.pid, signal.SIGCONT)
    assert status == 1
    assert "Directory cannot be locked" in output
    assert "Traceback" not in output
    assert first.wait() == 0
    assert copied.whole(stage)


def test_the_harness_sees_a_half_written_file(copied, undisturbed):
    stage = copied.named("score")
    (copied.folder / stage.folder / "scores.parquet").write_bytes(b"PAR1")
    assert not copied.files(stage).items() <= undisturbed.files(stage).items()
