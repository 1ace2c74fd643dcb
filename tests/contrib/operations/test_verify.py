"""`verify`: every way in which results/ may not be what its manifests say, and nothing else."""

import json
import os
import shutil
import time

import numpy as np
import pytest

from tandem import ROOT
from tandem.cli import run
from tandem.contrib.operations import verify as module
from tandem.contrib.operations.verify import Contents, examine, find_differing
from tandem.errors import UserError
from tandem.plan.graph import Stage
from tandem.retrieval.pair_store import PairStore, store_name
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256


def faults(run_command, *words):
    """(what, path) of each fault."""
    status, lines = run_command("verify", *words, "--json")
    entries = [json.loads(line) for line in lines]
    assert status == (1 if entries else 0)
    return [(entry["what"], entry["path"]) for entry in entries]


def test_what_is_whole_is_said_to_be(chain, run_command):
    assert faults(run_command) == []
    assert run_command("verify") == (0, ["4 artifacts are what their manifests say"])
    assert run_command("verify", "results/toy/bm25") == (
        0,
        ["1 artifacts are what their manifests say"],
    )


def test_each_damage_is_named_with_the_command_that_mends_it(chain, project, run_command):
    lucene, run, score = (project.folder(chain[name]) for name in ("lucene", "bm25", "score"))
    (run / "run.trec").unlink()
    (score / "data.txt").write_text("score bm25.tesT")  # one bit
    (lucene / "data.txt").write_text("lucene")
    (lucene / "notes.txt").write_text("mine")
    (lucene / ".partial").mkdir()
    (lucene / ".stage.json.4711").write_text("{")
    (lucene / ".stage.json.lock").touch()
    (lucene / "log.txt").touch()
    at = {name: chain[name].folder for name in chain}
    assert faults(run_command) == [
        ("missing", f"{at['bm25']}/run.trec"),
        ("unknown", f"{at['lucene']}/notes.txt"),
        ("draft", f"{at['lucene']}/.partial"),
        ("draft", f"{at['lucene']}/.stage.json.4711"),
        ("truncated", f"{at['lucene']}/data.txt"),
        ("changed", f"{at['score']}/data.txt"),
    ]
    _, lines = run_command("verify", "mine.yaml")
    mends = next(line for line in lines if line.startswith("rm results"))
    for name in ("bm25", "lucene", "score"):
        assert mends.count(f"{at[name]}/stage.json") == 2  # removed, then built
    assert f"&& snakemake -s {ROOT}/Snakefile --cores" in mends  # there is none in this folder
    assert mends.endswith("--configfile mine.yaml")


def test_a_dataset_on_another_disk_behind_a_link_is_read_too(
    chain, project, run_command, tmp_path_factory
):
    moved = tmp_path_factory.mktemp("disk") / "toy"
    (project.root / "results/toy").rename(moved)
    (project.root / "results/toy").symlink_to(moved)
    assert run_command("verify") == (0, ["4 artifacts are what their manifests say"])
    (project.folder(chain["score"]) / "data.txt").write_text("score bm25.tesT")
    assert faults(run_command) == [("changed", f"{chain['score'].folder}/data.txt")]


def test_sizes_alone_are_quick_and_miss_a_flipped_bit(chain, project, run_command):
    (project.folder(chain["score"]) / "data.txt").write_text("score bm25.tesT")
    assert faults(run_command, "--quick") == []
    (project.folder(chain["score"]) / "data.txt").write_text("")
    assert faults(run_command, "--quick") == [("truncated", f"{chain['score'].folder}/data.txt")]


def test_what_was_purged_is_missing_and_never_done(chain, project, run_command):
    # experimaestro PR 248: after a purge of scratch, markers of completion stood without their outputs
    (project.folder(chain["bm25"]) / "run.trec").unlink()
    with pytest.raises(UserError, match=r"run\.trec: missing"):
        open_artifact(project.folder(chain["bm25"]))
    assert faults(run_command) == [("missing", f"{chain['bm25'].folder}/run.trec")]
    # or the manifest was purged, and files were not
    (project.folder(chain["lucene"]) / "stage.json").unlink()
    assert ("unfinished", chain["lucene"].folder) in faults(run_command)


def test_an_input_that_was_made_again_with_other_bytes(chain, project, run_command):
    before = project.manifest(chain["score"])["inputs"]["run"]
    project.make(chain["bm25"], {"run.trec": "q Q0 d 1 2.0 t\n"})
    assert faults(run_command) == []  # the same bytes: nothing has changed
    project.make(chain["bm25"], {"run.trec": "q Q0 other 1 2.0 t\n"})
    assert faults(run_command) == [("input", f"{project.root}/{chain['bm25'].manifest}")]
    _, lines = run_command("verify")
    assert before in lines[0]
    assert f"rm {chain['score'].manifest}" in lines[-1]
    project.make(chain["score"])
    assert faults(run_command) == []


def test_an_input_that_was_made_again_at_another_pace_is_the_same(project, run_command):
    model = Stage("model", "toy", "de", {"objective": "dual"})
    run = Stage("retrieve", "toy", "de.test", {"depth": 7}, {"passages": model})
    files = {
        "dual/model.safetensors": "w",
        "dual/README.md": "commit 1",
        "log.parquet": "31 queries/s",
    }
    project.make(model, files)
    project.make(run)
    project.make(model, {**files, "dual/README.md": "commit 2", "log.parquet": "29 queries/s"})
    assert faults(run_command) == []
    project.make(model, {**files, "dual/model.safetensors": "W"})
    assert [what for what, _ in faults(run_command)] == ["input"]


def test_a_deleted_input_is_no_fault(chain, project, run_command):
    shutil.rmtree(project.folder(chain["lucene"]))
    assert faults(run_command) == []


def test_a_manifest_that_is_not_what_its_name_says(chain, project, run_command):
    # patapsco: a marker alone says that a task is done, whatever was edited since
    manifest = project.manifest(chain["bm25"])
    project.manifest(chain["bm25"], params={**manifest["params"], "k1": 1.2})
    assert faults(run_command) == [("name", chain["bm25"].manifest)]
    project.manifest(chain["bm25"], params=manifest["params"])
    assert faults(run_command) == []
    renamed = project.folder(chain["bm25"]).with_name("bm25.test-0000000000")
    os.rename(project.folder(chain["bm25"]), renamed)
    assert faults(run_command) == [
        ("name", f"{chain['bm25'].folder.rpartition('/')[0]}/bm25.test-0000000000/stage.json")
    ]


def test_a_running_job_is_left_in_peace(project, run_command):
    stage = Stage("model", "toy", "de", {"objective": "dual"})
    folder = project.folder(stage)
    (folder / "checkpoints/step-1").mkdir(parents=True)
    (folder / ".partial").mkdir()
    (folder / "checkpoints/step-1/state.json").write_text("{}")
    (folder / "progress.json").write_text("{}")
    assert faults(run_command) == []
    os.utime(folder / "progress.json", (time.time() - 3600,) * 2)
    assert faults(run_command) == [
        ("unfinished", stage.folder),
        ("draft", f"{stage.folder}/.partial"),
    ]


def test_damaged_manifests_stores_and_broken_deletions(chain, project, run_command):
    (project.folder(chain["bm25"]) / "stage.json").write_text("{")
    store = project.root / "results/toy/pairs/ce-0123456789-0123456789"
    store.mkdir(parents=True)
    (store / "store.json").write_text("{}")
    (store / "a.npy").write_bytes(b"\x93NUMPY")
    (project.root / "results/toy/model/.deleted-1-x").mkdir(parents=True)
    unpacked, unpacking = (
        project.root / f"results/toy/model/.de-0123456789.{process}" for process in (4711, 4712)
    )
    for folder in (unpacked, unpacking):
        folder.mkdir()
        (folder / "model.json").write_text("{}")
    for path in (unpacked / "model.json", unpacked):
        os.utime(path, (time.time() - 3600,) * 2)
    assert sorted(faults(run_command)) == [
        ("damaged", chain["bm25"].manifest),
        ("damaged", "results/toy/pairs/ce-0123456789-0123456789/a.npy"),
        ("damaged", "results/toy/pairs/ce-0123456789-0123456789/store.json"),
        ("draft", "results/toy/model/.de-0123456789.4711"),
        ("draft", "results/toy/model/.deleted-1-x"),
    ]


def test_scores_of_pairs_of_queries_are_read_too(project, run_command):
    name = store_name("ce-0123456789", "made from")
    store = project.root / "results/toy/pairs" / name
    for part in (PairStore(store), PairStore(store / "queries")):
        part.append(np.arange(3, dtype=np.uint64), np.ones(3, np.float32))
    (store / "store.json").write_text(
        json.dumps({"model": "ce-0123456789", "made_from": "made from"})
    )
    assert faults(run_command) == []
    (damaged,) = store.glob("queries/*.npy")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    (store / "queries/.draft").touch()
    os.utime(store / "queries/.draft", (1, 1))
    at = f"results/toy/pairs/{name}/queries"
    assert faults(run_command) == [("draft", f"{at}/.draft"), ("changed", f"{at}/{damaged.name}")]


def test_what_is_made_again_while_it_is_looked_at_is_no_fault(chain, project):
    folder = project.folder(chain["bm25"])
    (folder / "run.trec").write_text("q Q0 other 1 2.0 t\n")
    examined = examine(folder, Contents())
    assert [fault.what for fault in find_differing(examined, examined.files, quick=False)] == [
        "changed"
    ]
    os.utime(folder / "stage.json", ns=(1, 1))  # another manifest than the one that listed the file
    assert find_differing(examined, examined.files, quick=False) == []
    shutil.rmtree(folder)
    assert find_differing(examined, examined.files, quick=False) == []


@pytest.mark.parametrize(
    "old", ['"bytes"', '"bytes": 15', '"sha256"', '"upstream"', '"lucene"', '"files": {', '"k1"']
)
def test_a_manifest_with_a_flipped_bit_is_named(chain, project, run_command, old):
    path = project.root / chain["bm25"].manifest
    text = path.read_text()
    assert old in text
    last = old.rstrip('": {')[-1]
    # still JSON, of another form
    path.write_text(text.replace(old, old.replace(last, chr(ord(last) ^ 1), 1), 1))
    status, lines = run_command("verify")
    assert status == 1
    assert any(f"{chain['bm25'].folder}/" in line for line in lines)


def test_no_such_folder_is_one_line(project):
    with pytest.raises(UserError, match="nowhere: no such folder"):
        run(["verify", "nowhere"])


def test_a_folder_far_above_any_results_is_refused_not_whole(chain, project, tmp_path):
    deep = tmp_path / "a/b/c/project"
    shutil.copytree(project.root / "results", deep / "results")
    with pytest.raises(UserError, match="a: no artifact is there; give results/"):
        run(["verify", str(tmp_path / "a")])
    assert run(["verify", str(deep / "results")]) == 0


def test_each_file_is_read_once_and_the_first_faults_are_shown(project, run_command, monkeypatch):
    stage = Stage("score", "toy", "bm25.test", {"measures": ["RR@10"], "split": "test"})
    project.make(stage)
    text = (project.folder(stage) / "stage.json").read_text()
    for n in range(15):
        other = project.folder(stage).with_name(f"bm25.test-{n:010x}")
        other.mkdir()
        (other / "stage.json").write_text(text.replace(stage.key, other.name))
        (other / "data.txt").write_text("score bm25.test")
    read = []
    monkeypatch.setattr(module, "sha256", lambda path: read.append(path) or sha256(path))
    monkeypatch.setattr(module, "_REPORTED_LINES", 10)
    status, lines = run_command("verify")
    assert len(read) == len(set(read)) == 16
    # each is another stage's content under a made-up name
    assert (status, sum(line.startswith("name ") for line in lines)) == (1, 10)
    assert "… and 5 more: --json tells all" in lines


def test_an_artifact_of_a_plugin_that_is_not_loaded_is_read_too(of_plugin, project, run_command):
    assert run_command("verify") == (0, ["5 artifacts are what their manifests say"])
    assert run_command("verify", str(of_plugin))[1] == ["1 artifacts are what their manifests say"]
    (of_plugin / "run.trec").write_text("q Q0 d 1 3.0 t\n")
    path = of_plugin.relative_to(project.root)
    assert faults(run_command) == [("changed", f"{path}/run.trec")]
    assert f"rm {path}/stage.json && snakemake" in run_command("verify")[1][-1]
