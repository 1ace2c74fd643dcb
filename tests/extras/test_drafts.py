"""Drafts of files: whole under their name, removed when their process was killed, left alone while it lives."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tandem.extras.drafts import draft_file

WRITER = """
import sys, time
from pathlib import Path
from tandem.extras.drafts import draft_file
with draft_file(Path(sys.argv[1])) as draft:
    draft.write_text("half")
    time.sleep(600)
"""


@pytest.fixture
def writer(tmp_path):
    """A process that is in the middle of writing `run.trec`."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / "run.trec"])
    draft = tmp_path / f".run.trec.{process.pid}"
    while not (draft.exists() and draft.read_text() == "half"):
        assert process.poll() is None
        time.sleep(0.02)
    yield process
    process.kill()
    process.wait()


def test_a_file_gets_its_name_when_it_is_whole(tmp_path):
    with draft_file(tmp_path / "run.trec") as draft:
        draft.write_text("half")
        assert [path.name for path in tmp_path.iterdir()] == [f".run.trec.{os.getpid()}"]
    assert [path.name for path in tmp_path.iterdir()] == ["run.trec"]


def test_the_next_command_removes_the_draft_of_a_killed_one_and_nothing_else(tmp_path, writer):
    neighbours = {tmp_path / name for name in (".run.trec.bak", "run.trec.7", ".other.trec.7")}
    for path in neighbours:
        path.write_text("mine")
    draft = tmp_path / f".run.trec.{writer.pid}"
    with draft_file(tmp_path / "run.trec"):
        assert draft.exists()  # its process lives
    writer.kill()
    writer.wait()
    with draft_file(tmp_path / "run.trec") as own:
        assert {*tmp_path.iterdir()} == {*neighbours, tmp_path / "run.trec", own}


def test_the_draft_of_another_machine_stays_while_it_is_written(tmp_path, writer):
    """Its process is not to be seen here, but it holds the file."""
    elsewhere = Path(tmp_path, f".run.trec.{2**31}")
    Path(tmp_path, f".run.trec.{writer.pid}").rename(elsewhere)
    with draft_file(tmp_path / "run.trec"):
        assert elsewhere.exists()
    writer.kill()
    writer.wait()
    with draft_file(tmp_path / "run.trec"):
        assert not elsewhere.exists()
