"""A machine that fails: full and read-only disks, no memory, no cache, a clock put back. One line, and resumable."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress

import pytest
from faults_kit import Copy, chosen, one_line
from tiny_project import write_beir


@contextmanager
def mounted(folder, *options):
    """A file system in memory over a folder; the test is skipped where one cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    line = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(line, capture_output=True).returncode != 0:
        pytest.skip("a file system in memory cannot be mounted here; it needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_a_line_and_nothing_is_lost(copied, undisturbed):
    for stage in chosen(copied.stages, "dataset", "score"):
        expected, folder = undisturbed.files(stage), copied.folder / stage.folder
        size = sum(
            path.stat().st_size
            for path in (undisturbed.folder / stage.folder).rglob("*")
            if path.is_file()
        )
        copied.remove(stage)
        with mounted(folder, f"size={max(4096, size // 3)}"):
            code, output = copied.run(stage)
            assert code == 1, f"{stage.kind} of {size} bytes: {output}"
            one_line(output, "no space left on device")
            assert not (copied.folder / stage.manifest).exists()
            assert stage.kind == "lucene" or copied.files(stage).items() <= expected.items()
            subprocess.run(["mount", "-o", "remount,size=256m", str(folder)], check=True)
            code, output = copied.run(stage)
            assert code == 0, output
            assert stage.kind == "lucene" or copied.files(stage) == expected
            shutil.copytree(folder, folder.with_name("kept"))
        folder.rmdir()
        folder.with_name("kept").rename(folder)


def test_a_disk_that_is_full_while_lucene_indexes_is_a_line(copied):
    stage = copied.named("lucene")
    copied.remove(stage)
    # the texts fit, the index' files, a page each, do not
    with mounted(copied.folder / stage.folder, "size=32k"):
        code, output = copied.run(stage)
    assert code == 1
    one_line(output, "/index: no space left on device; free space, then run the same command again")


def test_a_read_only_folder_is_a_line(copied):
    for stage in chosen(copied.stages, "score"):
        folder = copied.folder / stage.folder
        copied.remove(stage)
        with mounted(folder, "size=1m", "ro"):
            code, output = copied.run(stage)
        assert code == 1
        one_line(output, "read-only file system; make it writable")
        assert copied.run(stage)[0] == 0


def test_snakemake_on_a_read_only_results_folder_is_a_line(tiny_dag, tmp_path):
    line = tiny_dag.line()
    line[line.index("--directory") + 1] = str(tmp_path)
    with mounted(tmp_path / "results", "size=1m", "ro"):
        done = subprocess.run(line, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert done.returncode == 1
    assert "Traceback" not in output
    assert "Read-only file system: 'results/" in output  # whichever job is first


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["run", "--", "--cores", "1"], "logs/run-"),
        (["init", "mine", "--data", "../data"], "mine.yaml"),
    ],
    ids=["run", "init"],
)
def test_a_command_on_a_full_disk_is_a_line(words, name, documents, tmp_path):
    write_beir(tmp_path / "data", documents)
    with mounted(tmp_path / "full", "size=16k") as folder:
        with suppress(OSError):
            (folder / "pad").write_bytes(bytes(1 << 20))
        done = subprocess.run(
            [sys.executable, "-m", "tandem", *words], cwd=folder, capture_output=True, text=True
        )
        left = {path.name for path in folder.iterdir()}
    assert done.returncode != 0
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"tandem {words[0]}: {name}")
    assert "No space left on device; free space, then run the same command again" in line
    assert left <= {"pad", "logs"}


def test_no_cache_and_no_home_are_no_fault(copied, undisturbed):
    nowhere = dict.fromkeys(
        ("HOME", "XDG_CACHE_HOME", "HF_HOME", "IR_DATASETS_HOME", "TANDEM_DATA"), "/proc/nowhere"
    )
    for stage in chosen(copied.stages, "dataset", "score"):
        expected = undisturbed.files(stage)
        copied.remove(stage)
        code, output = copied.run(stage, env=nowhere)
        assert code == 0, (stage.kind, output)
        assert stage.kind == "lucene" or copied.files(stage) == expected


def test_a_clock_that_went_back_reruns_nothing(tiny_dag, tmp_path, planned):
    shutil.copytree(tiny_dag.folder, tmp_path / "copy")
    copied = Copy(tmp_path / "copy", planned, tiny_dag.folder)
    stage = copied.named("bm25", "bm25.test")
    stat = (copied.folder / stage.manifest).stat()
    hour = 3600_000_000_000
    # what was made before the clock was put back is newer than what was made from it
    os.utime(copied.folder / stage.manifest, ns=(stat.st_atime_ns + hour, stat.st_mtime_ns + hour))
    line = tiny_dag.line("-n", copied.named("score", "bm25.test").manifest)
    line[line.index("--directory") + 1] = str(copied.folder)
    done = subprocess.run(line, capture_output=True, text=True)
    assert "Nothing to be done" in done.stdout + done.stderr


BACK = """
import itertools, runpy, sys, time
clock, hours = time.time, itertools.count()
time.time = lambda: clock() - 3600 * next(hours)
runpy.run_module("tandem", run_name="__main__", alter_sys=True)
"""


def test_a_clock_that_goes_back_an_hour_whenever_it_is_asked_changes_no_byte(copied, undisturbed):
    for stage in chosen(copied.stages, "dataset", "score"):
        copied.remove(stage)
        line = [sys.executable, "-c", BACK, *copied.line(stage)[3:]]
        done = subprocess.run(line, cwd=copied.folder, capture_output=True, text=True)
        assert done.returncode == 0, (stage.kind, done.stdout, done.stderr)
        assert stage.kind == "lucene" or copied.files(stage) == undisturbed.files(stage)
        assert 0 <= json.loads((copied.folder / stage.manifest).read_text())["seconds"] < 600
