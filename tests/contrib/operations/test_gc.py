"""`gc`: what no configuration needs, by class; deleted only when that is said, and never outside results/."""

import json
import os
from pathlib import Path

import pytest

from tandem.cli import run
from tandem.cluster.launch import lock_output
from tandem.contrib.operations import gc as gc_module
from tandem.contrib.operations.gc import find_spent_stages, find_unneeded, plan_everything
from tandem.errors import UserError
from tandem.extras import targets
from tandem.extras.targets import (
    Configuration,
    choose_configuration,
    iterate_artifact_folders,
    list_stages_of_all,
    read_configurations,
)
from tandem.plan.graph import Stage
from tandem.stages import KINDS, Kind

CONFIG = ("--configfile", "toy.yaml")


def folders(results="results"):
    return sorted(str(path.parent) for path in Path(results).glob("*/*/*/stage.json"))


def test_what_a_configuration_needs_stays(configured_toy, run_command):
    assert {stage.kind for stage in configured_toy} == {"dataset", "lucene", "bm25", "score"}
    before = folders()
    assert run_command("gc", *CONFIG, "--yes")[1] == [
        "everything in results/ is needed by toy.yaml",
        "deleted: 0 B freed",
    ]
    assert folders() == before


def test_what_a_plugin_made_stays_where_the_plugin_is_not_named(of_plugin):
    assert of_plugin not in [each.folder.absolute() for each in find_unneeded(Path("results"), ())]


def test_artifacts_of_a_dataset_that_is_named_like_a_kind_are_found(tmp_path):
    for dataset in ("topics", "index", "other"):
        for kind in ("dataset", "index"):
            Path(tmp_path, dataset, kind, f"{dataset}-0123456789").mkdir(parents=True)
    found = [str(path.relative_to(tmp_path)) for path in iterate_artifact_folders(tmp_path)]
    assert found == [
        f"{dataset}/{kind}/{dataset}-0123456789"
        for dataset in ("index", "other", "topics")
        for kind in ("dataset", "index")
    ]


def test_what_an_override_has_left_is_listed_with_size_and_time_and_goes(
    configured_toy, project, run_command
):
    before = folders()
    other = list_stages_of_all(
        plan_everything(Configuration([Path("toy.yaml")], ["bm25={k1: 1.5}"]))
    )
    new = [stage for stage in other if stage.folder not in before]
    assert [stage.kind for stage in new] == ["bm25", "score"]
    for stage in new:
        project.make(stage)
        project.manifest(stage, seconds=3720.0, finished=f"2026-01-01T00:00:0{new.index(stage)}Z")
    model = Stage("model", "toy", "de", {"objective": "dual"})
    project.make(model, {"weights": "x" * 2_000_000})
    lines = run_command("gc", *CONFIG)[1]
    assert folders() == sorted([*before, *(stage.folder for stage in new), model.folder])
    assert [line.split()[-1] for line in lines if "results/" in line] == [
        model.folder, new[1].folder, new[0].folder
    ]  # fmt: skip
    assert any(
        line.split()[:2] == ["2.0", "MB"] and line.endswith("models: 1 folders") for line in lines
    )
    assert any("took 2 h 4 min" in line and line.endswith("others: 2 folders") for line in lines)
    # both configurations given: nothing of either goes
    both = (*CONFIG, *CONFIG, "--config", "bm25={k1: 1.5}")
    assert [line.split()[-1] for line in run_command("gc", *both)[1] if "results/" in line] == [
        model.folder
    ]
    assert [
        line.split()[-1]
        for line in run_command("gc", *CONFIG, "--keep", new[1].key)[1]
        if "results/" in line
    ] == [model.folder]
    # of other classes there are unneeded ones
    (line,) = run_command("gc", *CONFIG, "--only", "checkpoints,pairs")[1]
    assert line == "every folder of checkpoints, pairs in results/ is needed by toy.yaml"
    run_command("gc", *CONFIG, "--only", "models", "--yes")
    assert not project.folder(model).exists()
    assert project.folder(new[0]).exists()
    assert run_command("gc", *CONFIG, "--yes")[1][-1].startswith("deleted: ")
    assert folders() == before


def test_results_of_a_dataset_whose_files_are_away_stay(configured_toy, project, run_command):
    away = "\n  away: {source: beir, path: away}\n"
    text = Path("toy.yaml").read_text()
    Path("toy.yaml").write_text(text.replace("datasets:\n", f"datasets:{away}", 1))
    assert "away" in Path("toy.yaml").read_text()
    models = [Stage("model", name, "de", {"objective": "dual"}) for name in ("away", "toy")]
    for model in models:
        project.make(model)
    lines = run_command("gc", *CONFIG)[1]
    listed = [line.split()[-1] for line in lines if "results/" in line]
    assert models[1].folder in listed
    assert models[0].folder not in listed


def test_a_locked_folder_and_a_wrong_configuration_delete_nothing(configured_toy, project):
    old = Stage("model", "toy", "de", {"objective": "dual"})
    project.make(old)
    locks = project.root / ".snakemake/locks"
    locks.mkdir(parents=True)
    (locks / "0.output.lock").touch()
    with pytest.raises(UserError, match="Snakemake is running here.*--unlock"):
        run(["gc", *CONFIG, "--yes"])
    (locks / "0.output.lock").unlink()
    (project.root / "results/toy/tables").mkdir(parents=True)
    with pytest.raises(
        UserError, match=r"toy\.yaml needs, which was not named; .* --configfile toy\.yaml"
    ):
        run(["gc", "--yes"])
    # a configuration may have sweeps and no tables
    (project.root / "results/toy/tables").rename(project.root / "results/toy/sweeps")
    (project.root / "results/toy/configuration.json").write_text("[]")
    with pytest.raises(UserError, match=r"toy\.yaml needs, which was not named"):
        run(["gc", "--yes"])
    with pytest.raises(UserError, match=r"modles"):
        run(["gc", *CONFIG, "--config", "modles={}", "--yes"])
    with pytest.raises(UserError, match="--only is everything; allowed: models, transient"):
        run(["gc", *CONFIG, "--only", "everything", "--yes"])
    with pytest.raises(
        UserError, match=r"toy\.yaml is not allowed here; say --configfile toy\.yaml"
    ):
        run(["gc", "toy.yaml", "--yes"])
    assert project.folder(old).exists()


def test_a_snakemake_that_begins_meanwhile_ends_the_deletion(project, monkeypatch):
    models = [Stage("model", "toy", "de", {"objective": "dual", "seed": seed}) for seed in (1, 2)]
    for model in models:
        project.make(model, {"weights": "x" * 1000})
    unused = list(find_unneeded(Path("results"), set()))
    real, locks = gc_module.delete, project.root / ".snakemake/locks"

    def delete(folder):
        """Delete a folder while Snakemake starts."""
        locks.mkdir(parents=True)
        (locks / "0.input.lock").touch()
        return real(folder)

    monkeypatch.setattr(gc_module, "delete", delete)
    with pytest.raises(
        UserError, match=r"Snakemake is running here.*; deleted before that: 1 folders, \d\.\d kB"
    ):
        gc_module.delete_all(unused)
    assert sum(project.folder(model).exists() for model in models) == 1


def test_links_are_left_alone(configured_toy, project, run_command, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "de-0123456789"
    outside.mkdir()
    (outside / "precious.txt").touch()
    (project.root / "results/toy/model").mkdir()
    (project.root / "results/toy/model/de-0123456789").symlink_to(outside)
    run_command("gc", *CONFIG, "--yes")
    assert (outside / "precious.txt").is_file()
    linked = Stage("model", "toy", "ce", {"objective": "cross"})
    project.make(linked)
    # below one that goes: the link goes, not what it names
    (project.folder(linked) / "elsewhere").symlink_to(outside)
    run_command("gc", *CONFIG, "--yes")
    assert not project.folder(linked).exists()
    assert (outside / "precious.txt").is_file()


def test_results_on_another_disk_behind_a_link_can_be_tidied(
    configured_toy, project, run_command, tmp_path_factory
):
    scratch = tmp_path_factory.mktemp("scratch") / "results"
    (project.root / "results").rename(scratch)
    (project.root / "results").symlink_to(scratch)
    old = Stage("model", "toy", "de", {"objective": "dual"})
    project.make(old)
    run_command("gc", *CONFIG, "--yes")
    assert not project.folder(old).exists()
    assert len(folders()) == 4


def test_stores_checkpoints_and_interrupted_deletions(configured_toy, project):
    data = next(stage for stage in configured_toy if stage.kind == "dataset")
    needed = {(stage.kind, stage.key) for stage in configured_toy} | {
        ("model", "ce-1111111111"),
        ("tokens", "t-1111111111"),
    }
    for key, model in (
        ("ce-1111111111-aaaaaaaaaa", "ce-1111111111"),
        ("ce-2222222222-aaaaaaaaaa", "ce-2222222222"),
    ):
        store = project.root / "results/toy/pairs" / key
        store.mkdir(parents=True)
        (store / "store.json").write_text(json.dumps({"model": model, "tokens": "t-1111111111"}))
    for key in (data.key, "toy-9999999999"):
        (project.root / "results/toy/order" / key).mkdir(parents=True)
    (project.folder(data) / "checkpoints").mkdir()
    (project.root / "results/toy/bm25/.deleted-7-x").mkdir()
    running = project.root / "results/toy/model/de-3333333333"
    running.mkdir(parents=True)
    (running / "progress.json").write_text("{}")
    unused = {(item.group, str(item.folder)) for item in find_unneeded(Path("results"), needed)}
    assert unused == {
        ("pairs", "results/toy/pairs/ce-2222222222-aaaaaaaaaa"),
        ("transient", "results/toy/order/toy-9999999999"),
        ("checkpoints", f"{data.folder}/checkpoints"),
        ("leftovers", "results/toy/bm25/.deleted-7-x"),
    }


@pytest.mark.parametrize("output", ["stage.json", "shards/1-of-2.json"])
def test_a_folder_whose_job_has_written_no_progress_for_long_stays_while_the_job_lives(
    project, output
):
    """As of one that waits for a device, or computes on another node whose clock is behind."""
    folder = project.root / "results/toy/model/de-3333333333"
    (folder / "shards").mkdir(parents=True)
    (folder / "progress.json").write_text("{}")
    os.utime(folder / "progress.json", (0, 0))
    words = ["model", "--out", str(folder / output)]
    with lock_output(words, {}):
        assert list(find_unneeded(Path("results"), set())) == []
    assert [item.folder.name for item in find_unneeded(Path("results"), set())] == [folder.name]


def test_configurations_on_a_command_line():
    words = [
        "--configfile",
        "a.yaml",
        "b.yaml",
        "--config",
        "seed=1",
        "x=2",
        "--yes",
        "--configfile",
        "c.yaml",
    ]
    parsed, rest = read_configurations(words)
    assert [(list(map(str, configuration.files)), configuration.values) for configuration in parsed] == [
        (["a.yaml", "b.yaml"], ["seed=1", "x=2"]), (["c.yaml"], [])
    ]  # fmt: skip
    assert rest == ["--yes"]
    assigned = [
        "--configfile=a.yaml",
        "b.yaml",
        "--config=seed=1",
        "x=2",
        "--yes",
        "--configfiles=c.yaml",
    ]
    assert read_configurations(assigned) == (parsed, rest)
    with pytest.raises(UserError, match="--config seed: allowed: key=value"):
        read_configurations(["--config=seed"])
    assert read_configurations([])[0] == [Configuration()]
    # a query that begins with `-`
    assert read_configurations(["--config", "seed=7", "--", "--config", "x"]) == (
        [Configuration(values=["seed=7"])],
        ["--", "--config", "x"],
    )
    assert Configuration(values=["seed=7"]).config()["seed"] == 7


def test_a_command_takes_one_configuration_with_its_files_before_those_of_the_flag():
    named = [Configuration([Path("b.yaml")], ["seed=7"])]
    expected = Configuration([Path("a.yaml"), Path("b.yaml")], ["seed=7"])
    assert choose_configuration(named, [Path("a.yaml")], "searched") == expected
    assert choose_configuration([], [Path("a.yaml")], "searched") == Configuration([Path("a.yaml")])
    with pytest.raises(UserError, match="one configuration is searched at a time"):
        choose_configuration([*named, Configuration()], [], "searched")


@pytest.mark.parametrize("name", ["toy", "2024", "no", "1e3", "2024-01-01", "a b: [", "-"])
def test_a_name_of_the_command_line_stays_a_text(name):
    assert Configuration().on_dataset(name).config()["dataset"] == name


def test_vectors_whose_runs_are_finished_are_spent(
    configured_toy, project, run_command, monkeypatch
):
    data = next(stage for stage in configured_toy if stage.kind == "dataset")
    vectors = [
        Stage("embeddings", "toy", name, {"side": "passages"}, {"dataset": data})
        for name in ("a", "b")
    ]
    runs = [
        Stage(
            "retrieve", "toy", f"{passages.name}.test", {}, {"dataset": data, "passages": passages}
        )
        for passages in vectors
    ]
    for stage in (*vectors, runs[0]):
        project.make(stage)
    monkeypatch.setattr(targets, "list_stages_of_all", lambda plan: [data, *vectors, *runs])
    # b's run is still to be made
    assert find_spent_stages([None]) == {("embeddings", vectors[0].key)}
    needed = {(stage.kind, stage.key) for stage in (*configured_toy, *vectors, *runs)}
    unused = list(find_unneeded(Path("results"), needed, find_spent_stages([None])))
    assert [(item.group, str(item.folder)) for item in unused] == [("spent", vectors[0].folder)]
    assert list(find_unneeded(Path("results"), needed)) == []


def test_an_index_of_a_plugin_is_one_that_can_be_made_again(tmp_path, monkeypatch):
    folder = tmp_path / "results/mine/half/mine-0123456789"
    folder.mkdir(parents=True)
    assert list(find_unneeded(tmp_path / "results", ())) == []
    monkeypatch.setitem(KINDS, "half", Kind("half", print, holds="index"))
    assert [(left.folder, left.group) for left in find_unneeded(tmp_path / "results", ())] == [
        (folder, "transient")
    ]
