"""`check`: same key, other code; tables of several generations."""

import os
import time

import pytest

from tandem.cli import run
from tandem.extras.sweep_results import SweepLine, SweepResult
from tandem.plan.graph import Stage
from tandem.stages import KINDS
from tandem.store.environment import hash_module

WELL = "no kind's code has moved under its artifacts, and no table mixes generations"


def test_code_that_moved_under_its_version(chain, project, run_command):
    assert run_command("check") == (0, [WELL])
    project.manifest(chain["bm25"], modules="0123456789")
    status, lines = run_command("check")
    (line,) = lines
    assert line.startswith("bm25: made by modules 0123456789, now ")
    assert line.endswith(
        f"raise it in stages/ if the result's meaning changed: {chain['bm25'].key}"
    )
    assert status == 0
    assert run_command("check", "--strict")[0] == 1
    # another version: another key, no warning
    project.manifest(chain["bm25"], version=KINDS["bm25"].version + 1)
    assert run_command("check", "--strict") == (0, [WELL])


def test_a_damaged_manifest_is_named(chain, project, run_command):
    path = f"{chain['bm25'].folder}/stage.json"
    with open(path, "w") as file:
        file.write("[]")
    assert run_command("check", "--strict") == (
        1,
        [f"{path}: is not a manifest; `tandem verify` says how to make it again"],
    )


def test_code_that_was_reached_by_a_name_of_the_configuration(chain, project, run_command):
    # `losses: {loss: ranknet}` has no import anywhere in the training's sources
    module = "tandem.contrib.losses.pairwise"
    project.manifest(chain["bm25"], looked_up={module: hash_module(module)})
    assert run_command("check") == (0, [WELL])
    project.manifest(chain["bm25"], looked_up={module: "0123456789"})
    (line,) = run_command("check")[1]
    assert line.startswith(f"bm25: made by {module} at 0123456789, now {hash_module(module)}")
    project.manifest(chain["bm25"], looked_up={"tandem.contrib.losses.deleted": "0123456789"})
    (line,) = run_command("check")[1]
    assert "tandem.contrib.losses.deleted at 0123456789, now gone" in line


@pytest.fixture
def two_rows(chain, project, write_table):
    """A table of BM25 and of a second run."""
    data = chain["dataset"]
    run = Stage("retrieve", "toy", "de.test", {"depth": 20}, {"dataset": data})
    score = Stage(
        "score",
        "toy",
        "de.test",
        {"measures": ["RR@10"], "split": "test"},
        {"dataset": data, "run": run},
    )
    project.make(run)
    project.make(score)
    return write_table("tiny", ("BM25", chain["score"]), ("DE", score)), run, score


def test_a_table_of_one_generation_is_well(two_rows, project, run_command, monkeypatch):
    assert run_command("check") == (0, [WELL])
    monkeypatch.chdir("/")
    assert run_command("check", project.root / "results") == (0, [WELL])


def test_tables_of_a_named_configuration_are_looked_at(two_rows, chain, project, run_command):
    (project.root / "results/mine").mkdir()
    (project.root / "results/tables").rename(project.root / "results/mine/tables")
    assert run_command("check") == (0, [WELL])
    project.manifest(two_rows[2], libraries={"numpy": "1.0"})
    project.manifest(chain["score"], libraries={"numpy": "2.0"})
    lines = run_command("check")[1]
    assert any(line.startswith("table mine/tiny mixes versions of numpy") for line in lines)


def test_rows_by_different_code_or_libraries(two_rows, chain, project, run_command):
    # PyTerrier: aggregated.csv kept rows of runs that had been made long before the others
    score = two_rows[2]
    project.manifest(score, modules="0123456789", libraries={"numpy": "1.0"})
    project.manifest(chain["score"], libraries={"numpy": "2.0"})
    lines = [line for line in run_command("check")[1] if line.startswith("table")]
    assert any(
        "table tiny mixes generations: score by modules" in line and "0123456789 (DE)" in line
        for line in lines
    )
    assert any(
        "table tiny mixes versions of numpy" in line and "1.0 (DE)" in line for line in lines
    )


def test_tables_older_than_what_they_show(two_rows, chain, project, run_command):
    path, run, score = two_rows
    os.utime(path, (time.time() - 100,) * 2)
    assert (
        f"table tiny: row DE is older than its score {score.key}; run Snakemake again"
        in run_command("check")[1]
    )
    os.utime(path)
    project.make(run, {"data.txt": "trained again"})
    (line,) = run_command("check")[1]
    assert line.startswith(
        f"table tiny: row DE: score {score.key} is of {run.key} before it was made again"
    )


def test_a_sweep_of_several_generations(chain, project, run_command, monkeypatch):
    other = Stage(
        "bm25", "toy", "bm25.test", {**chain["bm25"].params, "k1": 1.2}, chain["bm25"].upstream
    )
    project.make(other)
    points = zip((0.9, 1.2), (chain["bm25"], other), strict=True)
    lines = [
        SweepLine({"bm25.k1": k1}, "BM25", "RR@10", 1, 1, None, 1, 1, None, None, None, [run.key])
        for k1, run in points
    ]
    words = {
        "name": "saturation",
        "title": "k1",
        "paths": ["bm25.k1"],
        "x": "",
        "scale": "linear",
        "note": "",
    }
    place = {
        "baseline": {"bm25.k1": 0.9},
        "dataset": "toy",
        "split": "test",
        "stands_in_for": "",
        "queries": 20,
    }
    result = SweepResult(**words, **place, measures=["RR@10"], lines=lines, runs={})
    path = project.root / "results/sweeps/saturation.json"
    path.parent.mkdir()
    path.write_text(result.to_json())
    assert run_command("check") == (0, [WELL])
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir("/")
        assert run_command("check", project.root / "results") == (0, [WELL])
        mine = project.root / "results/mine"
        mine.mkdir()
        path.parent.rename(mine / "sweeps")
        for folder in (mine, mine.parent):
            assert run_command("check", folder) == (0, [WELL])
        (mine / "sweeps").rename(path.parent)
    project.manifest(other, libraries={"numpy": "9.0"})
    os.utime(path)
    assert any(
        line.startswith("sweep saturation mixes versions of numpy: ")
        for line in run_command("check")[1]
    )
    project.folder(other).rename(project.root / "away")
    gone = f"sweep saturation: row BM25 at bm25.k1 1.2 shows {other.key}, which is deleted: it cannot be traced"
    assert gone in run_command("check")[1]


def test_rows_whose_scores_are_gone(two_rows, project, run_command):
    _, _, score = two_rows
    project.folder(score).rename(project.root / "away")
    assert any(
        f"row DE shows {score.key}, which is deleted" in line for line in run_command("check")[1]
    )


def test_artifacts_of_a_plugin_that_is_not_loaded_are_said_to_be_passed_over(of_plugin, capsys):
    assert run(["check", "--strict"]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines() == [WELL]
    assert "1 artifacts of shortest_first, a kind of a plugin, are not compared" in output.err
