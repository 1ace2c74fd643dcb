import json
import os
import shutil
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file

from tandem.errors import UserError
from tandem.store import environment
from tandem.store.artifact import open_artifact
from tandem.store.files import partial_path, replacing
from tandem.store.job import writing


@pytest.fixture
def stage(make_job, tmp_path):
    job = make_job("score", tmp_path / "bm25-0123456789", {"measures": ["RR@10"], "split": "test"})
    with writing(job) as draft:
        draft.path("a.txt").write_text("hello")
        draft.path("deep/b.txt").write_text("there")
        draft.facts["queries"] = 3
    return job


def test_the_manifest_says_what_and_how(stage):
    manifest = json.loads((stage.out / "stage.json").read_text())
    assert manifest["files"].keys() == {"a.txt", "deep/b.txt"}
    assert manifest["files"]["a.txt"] == {
        "bytes": 5,
        "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    }
    assert (manifest["kind"], manifest["key"], manifest["facts"]["queries"]) == (
        "score",
        "bm25-0123456789",
        3,
    )
    for name in (
        "params",
        "upstream",
        "modules",
        "commit",
        "dirty",
        "seconds",
        "peak_memory_mib",
        "finished",
    ):
        assert name in manifest


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_files_may_be_read_by_whom_the_umask_lets(make_job, tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        with writing(
            make_job(
                "score", tmp_path / "bm25-0123456789", {"measures": ["RR@10"], "split": "test"}
            )
        ) as draft:
            save_file({"weight": np.ones(2)}, draft.path("deep/model.safetensors"))
            draft.path("a.txt").write_text("hello")
    finally:
        os.umask(before)
    written = [path for path in (tmp_path / "bm25-0123456789").rglob("*") if path.is_file()]
    assert {path.name: path.stat().st_mode & 0o777 for path in written} == dict.fromkeys(
        ("model.safetensors", "a.txt", "stage.json"), mode
    )


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_the_checkout_is_only_read(tmp_path, monkeypatch):
    """Its index least of all: a job that is killed while git renews it leaves the index locked."""
    who = ("-c", "user.name=me", "-c", "user.email=me@here")
    file, index = tmp_path / "a.txt", tmp_path / ".git/index"
    file.write_text("a")
    for words in (["init", "-q"], ["add", "a.txt"], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    os.utime(file, (1, 1))  # git has to look whether it has changed
    before = index.read_bytes()
    monkeypatch.setattr(environment, "PACKAGE_FOLDER", tmp_path)
    _, commit, changed = environment.provenance()
    assert len(commit) == 40
    assert changed is False
    assert index.read_bytes() == before


def test_a_failure_leaves_nothing_under_a_final_name(make_job, tmp_path):
    job = make_job("score", tmp_path / "bm25-0123456789", {"measures": ["RR@10"], "split": "test"})
    with pytest.raises(ValueError, match="half-way"), writing(job) as draft:
        draft.path("a.txt").write_text("half")
        raise ValueError("half-way")
    assert list(job.out.rglob("*")) == []


@pytest.mark.parametrize("text", ["hellO", "hello!", None])
def test_a_changed_or_missing_file_is_named(stage, text):
    (stage.out / "a.txt").unlink() if text is None else (stage.out / "a.txt").write_text(text)
    with pytest.raises(
        UserError, match=r"a\.txt: (changed since it was written|missing).*delete .*stage\.json"
    ):
        open_artifact(stage.out)


def test_an_unfinished_artifact_and_one_of_another_kind_are_refused(stage, tmp_path):
    (tmp_path / "a.yaml").write_text("")
    with pytest.raises(UserError, match="a.yaml: not a finished artifact"):
        open_artifact(tmp_path / "a.yaml")
    with pytest.raises(UserError, match="not a finished artifact"):
        open_artifact(tmp_path / "nothing-0123456789")
    with pytest.raises(UserError, match="is a score, expected a model"):
        open_artifact(stage.out, "model")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_a_damaged_manifest_is_one_line(stage, text):
    (stage.out / "stage.json").write_text(text)
    with pytest.raises(UserError, match=r"stage\.json: not valid JSON .*; delete it and run its"):
        open_artifact(stage.out)


def test_a_file_the_manifest_does_not_list_is_refused(stage):
    (stage.out / "c.txt").touch()
    with pytest.raises(UserError, match=r"holds no c\.txt; it holds a\.txt, deep/b\.txt"):
        open_artifact(stage.out).path("c.txt")


def test_what_a_killed_process_of_the_same_number_has_left_is_replaced(tmp_path):
    left = partial_path(tmp_path / "part")
    left.mkdir()
    (left / "old").touch()
    with replacing(tmp_path / "part") as partial:
        partial.mkdir()
        (partial / "new").touch()
    assert [path.name for path in (tmp_path / "part").iterdir()] == ["new"]
