"""Large files are hashed once; whatever changes about them is noticed."""

import json
import os
import shutil

import pytest

from tandem.errors import UserError
from tandem.store import artifact
from tandem.store.artifact import open_artifact
from tandem.store.job import writing

TEXT = "passages " * 50


@pytest.fixture
def folder(make_job, tmp_path, monkeypatch):
    """The folder of an artifact that counts as large and whose files count as written long ago."""
    monkeypatch.setattr(artifact, "LARGE_ARTIFACT_BYTES", 100)
    monkeypatch.setattr(artifact, "SETTLED", 0)
    job = make_job("score", tmp_path / "bm25-0123456789", {"measures": ["RR@10"], "split": "test"})
    with writing(job) as draft:
        for name in ("a.bin", "deep/b.bin"):
            draft.path(name).write_text(TEXT)
    return job.out


@pytest.fixture
def hashed(folder, monkeypatch):
    """`hashed()`: names of the files that opening the artifact reads."""
    real, read = artifact.sha256, []

    def spy(path):
        read.append(path.name)
        return real(path)

    monkeypatch.setattr(artifact, "sha256", spy)

    def opened():
        read.clear()
        open_artifact(folder)
        return sorted(read)

    return opened


def test_files_are_read_once(hashed, folder):
    assert hashed() == ["a.bin", "b.bin"]
    assert hashed() == []
    (folder / artifact.RECORD).unlink()
    assert hashed() == ["a.bin", "b.bin"]


def test_small_artifacts_and_files_just_written_are_not_remembered(hashed, folder, monkeypatch):
    monkeypatch.setattr(artifact, "SETTLED", 60_000_000_000)
    assert [hashed(), hashed()] == [["a.bin", "b.bin"]] * 2
    monkeypatch.setattr(artifact, "SETTLED", 0)
    monkeypatch.setattr(artifact, "LARGE_ARTIFACT_BYTES", 10_000)
    assert [hashed(), hashed()] == [["a.bin", "b.bin"]] * 2
    assert not (folder / artifact.RECORD).exists()


def flip(path):
    """Change a byte in place."""
    with open(path, "r+b") as file:
        file.write(b"P")


def flip_and_turn_back(path):
    """The same, with the old time of change."""
    status = path.stat()
    flip(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(path):
    """Another file of the same size and time takes its place."""
    other = path.with_name("other")
    shutil.copy2(path, other)
    flip_and_turn_back(other)
    os.replace(other, path)


@pytest.mark.parametrize(
    "change", [lambda path: os.truncate(path, 5), flip, flip_and_turn_back, replace, os.unlink]
)
def test_a_changed_file_is_noticed(hashed, folder, change):
    hashed()
    change(folder / "a.bin")
    with pytest.raises(UserError, match=r"a\.bin: (changed since it was written|missing)"):
        open_artifact(folder)
    with pytest.raises(UserError, match=r"a\.bin"):  # and again: what is wrong is not remembered
        open_artifact(folder)


def test_a_touched_file_is_read_again_and_nothing_else(hashed, folder):
    hashed()
    os.utime(folder / "deep/b.bin")
    assert hashed() == ["b.bin"]
    assert hashed() == []


def test_a_manifest_that_tells_another_hash_is_believed(hashed, folder):
    hashed()
    manifest = json.loads((folder / "stage.json").read_text())
    manifest["files"]["a.bin"]["sha256"] = "0" * 64
    (folder / "stage.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"a\.bin: changed since it was written"):
        open_artifact(folder)


def test_a_copied_artifact_is_read_again(hashed, folder, tmp_path):
    hashed()
    shutil.move(folder, tmp_path / "there")
    shutil.copytree(tmp_path / "there", folder)
    assert hashed() == ["a.bin", "b.bin"]


@pytest.mark.parametrize("text", ["", "[1]", '{"a.bin": 3, "deep/b.bin": [null]}', "\x00"])
def test_a_damaged_record_is_no_record(hashed, folder, text):
    hashed()
    (folder / artifact.RECORD).write_text(text)
    assert hashed() == ["a.bin", "b.bin"]


def test_a_folder_that_cannot_be_written_to_is_read_each_time(hashed, folder, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "replace", refuse)  # root may write anywhere
    assert [hashed(), hashed()] == [["a.bin", "b.bin"]] * 2
