"""`verify`: every way in which results/ may not be what its manifests say, and nothing else."""

import json
import os
import shutil
import time

import pytest

from tandem.cli import run
from tandem.errors import UserError
from tandem.extras.operations import verify as module
from tandem.extras.operations.scan import Inputs, examine
from tandem.extras.operations.verify import differing
from tandem.plan.graph import Stage
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256


def faults(said, *words):
    """(what, path) of each fault."""
    status, lines = said("verify", *words, "--json")
    told = [json.loads(line) for line in lines]
    assert status == (1 if told else 0)
    return [(one["what"], one["path"]) for one in told]


def test_what_is_whole_is_said_to_be(chain, said):
    assert faults(said) == []
    assert said("verify") == (0, ["4 artifacts are what their manifests say"])
    assert said("verify", "results/toy/bm25") == (0, ["1 artifacts are what their manifests say"])


def test_each_damage_is_named_with_the_command_that_mends_it(chain, made, said):
    lucene, run, score = (made.folder(chain[name]) for name in ("lucene", "bm25", "score"))
    (run / "run.trec").unlink()
    (score / "data.txt").write_text("score bm25.tesT")  # one bit
    (lucene / "data.txt").write_text("lucene")
    (lucene / "notes.txt").write_text("mine")
    (lucene / ".partial").mkdir()
    (lucene / ".stage.json.4711").write_text("{")
    (lucene / ".stage.json.lock").touch()
    (lucene / "log.txt").touch()
    at = {name: chain[name].folder for name in chain}
    assert faults(said) == [
        ("missing", f"{at['bm25']}/run.trec"),
        ("unknown", f"{at['lucene']}/notes.txt"),
        ("draft", f"{at['lucene']}/.partial"),
        ("draft", f"{at['lucene']}/.stage.json.4711"),
        ("truncated", f"{at['lucene']}/data.txt"),
        ("changed", f"{at['score']}/data.txt"),
    ]
    _, lines = said("verify", "mine.yaml")
    mends = next(line for line in lines if line.startswith("rm results"))
    for name in ("bm25", "lucene", "score"):
        assert mends.count(f"{at[name]}/stage.json") == 2  # removed, then built
    assert "&& snakemake --cores" in mends
    assert mends.endswith("--configfile mine.yaml")


def test_sizes_alone_are_quick_and_miss_a_flipped_bit(chain, made, said):
    (made.folder(chain["score"]) / "data.txt").write_text("score bm25.tesT")
    assert faults(said, "--quick") == []
    (made.folder(chain["score"]) / "data.txt").write_text("")
    assert faults(said, "--quick") == [("truncated", f"{chain['score'].folder}/data.txt")]


def test_what_was_purged_is_missing_and_never_done(chain, made, said):
    # experimaestro PR 248: after a purge of scratch, markers of completion stood without their outputs
    (made.folder(chain["bm25"]) / "run.trec").unlink()
    with pytest.raises(UserError, match=r"run\.trec: missing"):
        open_artifact(made.folder(chain["bm25"]))
    assert faults(said) == [("missing", f"{chain['bm25'].folder}/run.trec")]
    (made.folder(chain["lucene"]) / "stage.json").unlink()  # or the manifest was purged, and files were not
    assert ("unfinished", chain["lucene"].folder) in faults(said)


def test_an_input_that_was_made_again_with_other_bytes(chain, made, said):
    before = made.manifest(chain["score"])["inputs"]["run"]
    made.make(chain["bm25"], {"run.trec": "q Q0 d 1 2.0 t\n"})
    assert faults(said) == []  # the same bytes: nothing has changed
    made.make(chain["bm25"], {"run.trec": "q Q0 other 1 2.0 t\n"})
    assert faults(said) == [("input", f"{made.root}/{chain['bm25'].manifest}")]
    _, lines = said("verify")
    assert before in lines[0]
    assert f"rm {chain['score'].manifest}" in lines[-1]
    made.make(chain["score"])
    assert faults(said) == []


def test_an_input_that_was_made_again_at_another_pace_is_the_same(made, said):
    model = Stage("model", "toy", "de", {"objective": "dual"})
    run = Stage("retrieve", "toy", "de.test", {"depth": 7}, {"passages": model})
    files = {"dual/model.safetensors": "w", "dual/README.md": "commit 1", "log.parquet": "31 queries/s"}
    made.make(model, files)
    made.make(run)
    made.make(model, {**files, "dual/README.md": "commit 2", "log.parquet": "29 queries/s"})
    assert faults(said) == []
    made.make(model, {**files, "dual/model.safetensors": "W"})
    assert [what for what, _ in faults(said)] == ["input"]


def test_a_deleted_input_is_no_fault(chain, made, said):
    shutil.rmtree(made.folder(chain["lucene"]))
    assert faults(said) == []


def test_a_manifest_that_is_not_what_its_name_says(chain, made, said):
    # patapsco: a marker alone says that a task is done, whatever was edited since
    told = made.manifest(chain["bm25"])
    made.manifest(chain["bm25"], params={**told["params"], "k1": 1.2})
    assert faults(said) == [("name", chain["bm25"].manifest)]
    made.manifest(chain["bm25"], params=told["params"])
    assert faults(said) == []
    renamed = made.folder(chain["bm25"]).with_name("bm25.test-0000000000")
    os.rename(made.folder(chain["bm25"]), renamed)
    assert faults(said) == [("name", f"{chain['bm25'].folder.rpartition('/')[0]}/bm25.test-0000000000/stage.json")]


def test_a_running_job_is_left_in_peace(made, said):
    stage = Stage("model", "toy", "de", {"objective": "dual"})
    folder = made.folder(stage)
    (folder / "checkpoints/step-1").mkdir(parents=True)
    (folder / ".partial").mkdir()
    (folder / "checkpoints/step-1/state.json").write_text("{}")
    (folder / "progress.json").write_text("{}")
    assert faults(said) == []
    os.utime(folder / "progress.json", (time.time() - 3600,) * 2)
    assert faults(said) == [("unfinished", stage.folder), ("draft", f"{stage.folder}/.partial")]


def test_damaged_manifests_stores_and_broken_deletions(chain, made, said):
    (made.folder(chain["bm25"]) / "stage.json").write_text("{")
    store = made.root / "results/toy/pairs/ce-0123456789-0123456789"
    store.mkdir(parents=True)
    (store / "store.json").write_text("{}")
    (store / "a.npy").write_bytes(b"\x93NUMPY")
    (made.root / "results/toy/model/.deleted-1-x").mkdir(parents=True)
    assert sorted(faults(said)) == [
        ("damaged", chain["bm25"].manifest),
        ("damaged", "results/toy/pairs/ce-0123456789-0123456789/a.npy"),
        ("damaged", "results/toy/pairs/ce-0123456789-0123456789/store.json"),
        ("draft", "results/toy/model/.deleted-1-x"),
    ]


def test_what_is_made_again_while_it_is_looked_at_is_no_fault(chain, made):
    folder = made.folder(chain["bm25"])
    (folder / "run.trec").write_text("q Q0 other 1 2.0 t\n")
    examined = examine(folder, Inputs())
    assert [fault.what for fault in differing(examined, examined.files, quick=False)] == ["changed"]
    os.utime(folder / "stage.json", ns=(1, 1))  # another manifest than the one that listed the file
    assert differing(examined, examined.files, quick=False) == []
    shutil.rmtree(folder)
    assert differing(examined, examined.files, quick=False) == []


@pytest.mark.parametrize("old", ['"bytes"', '"bytes": 15', '"sha256"', '"upstream"', '"lucene"', '"files": {', '"k1"'])
def test_a_manifest_with_a_flipped_bit_is_named(chain, made, said, old):
    path = made.root / chain["bm25"].manifest
    text = path.read_text()
    assert old in text
    last = old.rstrip('": {')[-1]
    path.write_text(text.replace(old, old.replace(last, chr(ord(last) ^ 1), 1), 1))  # still JSON, of another form
    status, lines = said("verify")
    assert status == 1
    assert any(f"{chain['bm25'].folder}/" in line for line in lines)


def test_no_such_folder_is_one_line(made):
    with pytest.raises(UserError, match="nowhere: no such folder"):
        run(["verify", "nowhere"])


def test_each_file_is_read_once_and_the_first_faults_are_shown(made, said, monkeypatch):
    stage = Stage("score", "toy", "bm25.test", {"measures": ["RR@10"], "split": "test"})
    made.make(stage)
    text = (made.folder(stage) / "stage.json").read_text()
    for n in range(15):
        other = made.folder(stage).with_name(f"bm25.test-{n:010x}")
        other.mkdir()
        (other / "stage.json").write_text(text.replace(stage.key, other.name))
        (other / "data.txt").write_text("score bm25.test")
    read = []
    monkeypatch.setattr(module, "sha256", lambda path: read.append(path) or sha256(path))
    monkeypatch.setattr(module, "LINES", 10)
    status, lines = said("verify")
    assert len(read) == len(set(read)) == 16
    # each is another stage's content under a made-up name
    assert (status, sum(line.startswith("name ") for line in lines)) == (1, 10)
    assert "… and 5 more: --json tells all" in lines
