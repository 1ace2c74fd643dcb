"""`bundle`: the same results give the same bytes, and an unpacked one can be verified without the project."""

import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Literal

import pytest
import yaml

from tandem import ROOT
from tandem.cli import run
from tandem.config.datasets import Dataset
from tandem.contrib.operations.bundle import (
    describe_artifact_source,
    render_configuration,
    write_bundle,
)
from tandem.data.sources import dataset_format
from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.extras.targets import Configuration
from tandem.store.artifact import Manifest
from tandem.store.files import sha256


@pytest.fixture
def finished(configured_toy, project, write_table):
    """The toy's table, scores and run."""
    run, score = (
        next(stage for stage in configured_toy if stage.kind == kind) for kind in ("bm25", "score")
    )
    project.make(run, {"run.trec": "q Q0 d 1 2.0 t\n"})
    project.make(score)
    table = write_table("baseline", ("BM25", score), views="results/toy")
    table.with_suffix(".csv").write_text("system,value\nBM25,12.34\n")
    planned = Configuration([Path("toy.yaml")]).plan().tables.to_json("baseline")
    table.with_suffix(".plan").write_text(planned + "\n")
    (table.parent / "baseline.log").write_text("made in /home/me")
    (table.parent / "baseline.two.csv").write_text("another table, of a name that goes on\n")
    return configured_toy


def test_the_draft_that_a_killed_bundle_left_is_removed(finished, run_command):
    left = Path(f".baseline.tar.gz.{2**31}")
    left.write_text("half")
    assert run_command("bundle", "baseline", "toy.yaml")[0] == 0
    assert not left.exists()


def test_an_unpacked_bundle_holds_the_table_and_can_be_verified(
    finished, project, run_command, tmp_path_factory, monkeypatch
):
    assert run_command("bundle", "baseline", "toy.yaml")[1][0].startswith("baseline.tar.gz: ")
    away = tmp_path_factory.mktemp("reader")
    with tarfile.open("baseline.tar.gz") as archive:
        archive.extractall(away, filter="data")
        names = {entry.name: entry for entry in archive.getmembers()}
    stages = {stage.kind: stage for stage in finished}
    for stage in finished:
        assert f"baseline/{stage.manifest}" in names
    assert f"baseline/{stages['bm25'].folder}/run.trec" in names
    assert f"baseline/{stages['score'].folder}/data.txt" in names
    # the collection is its makers' to give
    assert f"baseline/{stages['dataset'].folder}/data.txt" not in names
    for name in (
        "results/tables/baseline.csv",
        "layout/baseline.yaml",
        "envs/requirements.lock",
        "lineage.json",
    ):
        assert f"baseline/{name}" in names
    assert (
        not {f"baseline/results/tables/baseline.{end}" for end in ("log", "two.csv")} & names.keys()
    )
    assert {(member.mtime, member.uid, member.uname, member.mode) for member in names.values()} == {
        (0, 0, "", 0o644)
    }
    monkeypatch.chdir(away)
    assert run_command("verify", "baseline") == (0, ["4 artifacts are what their manifests say"])
    # the configuration in it plans the same stages, anywhere
    config = yaml.safe_load(Path("baseline/config.yaml").read_text())
    assert [stage.key for _, stage in FullPlan(config, ROOT).tables["baseline"]] == [
        stages["score"].key
    ]
    assert f"score {stages['score'].key}" in Path("baseline/lineage.txt").read_text()
    table = Path("baseline/results/tables/baseline.csv")
    table.write_text(table.read_text().replace("12.34", "42.34"))
    Path("baseline", stages["bm25"].folder, "run.trec").unlink()
    status, lines = run_command("verify", "baseline", "--json")
    assert status == 1
    assert {(json.loads(line)["what"], Path(json.loads(line)["path"]).name) for line in lines} == {
        ("changed", "baseline.csv"), ("missing", "run.trec")
    }  # fmt: skip


def test_the_configuration_of_a_bundle_has_the_keys_of_the_one_it_was_made_with():
    # `instance: query` is a default that the recipe has overridden: left out, the recipe's value would return.
    configuration = Configuration([ROOT / "config/small/rocketqa.yaml"])
    plan = configuration.plan()
    again = FullPlan(
        yaml.safe_load(render_configuration(configuration, plan, "rocketqa/steps")), ROOT
    )
    before, after = (
        [stage.key for _, stage in it.tables["rocketqa/steps"]] for it in (plan, again)
    )
    assert before == after


def test_paths_of_every_block_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = {
        "generators": {"mine": {"source": "folder", "path": "writer"}},
        "encoders": {"mine": {"source": "folder", "path": "reader"}},
        "audits": {"false_negatives": {"sheet": "filled.csv"}},
    }
    Path("own.yaml").write_text(yaml.safe_dump(own))
    configuration = Configuration([ROOT / "config/config.yaml", Path("own.yaml")])
    written = yaml.safe_load(render_configuration(configuration, configuration.plan(), "baseline"))
    paths = [written[block]["mine"]["path"] for block in ("generators", "encoders")]
    paths.append(written["audits"]["false_negatives"]["sheet"])
    assert paths == [str(tmp_path / name) for name in ("writer", "reader", "filled.csv")]


def test_an_encoder_that_is_named_by_its_folder_is_found_from_elsewhere(
    tmp_path, monkeypatch, encoder_folder
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(encoder_folder, "models/own")
    own = {
        "models": {"de_bm25neg": {"init": "models/own"}},
        "lengths": {"query": 16, "passage": 64},
    }
    Path("own.yaml").write_text(yaml.safe_dump(own))
    configuration = Configuration([ROOT / "config/config.yaml", Path("own.yaml")])
    plan = configuration.plan()
    written = yaml.safe_load(render_configuration(configuration, plan, "summary"))
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    again = FullPlan(written, ROOT)
    before, after = (
        [(row.system, stage.key) for row, stage in it.tables["summary"]] for it in (plan, again)
    )
    assert before == after


def test_plugins_of_one_file_name_are_all_in_it(finished, run_command):
    for folder in ("mine", "yours"):
        Path(folder).mkdir()
        Path(folder, "ideas.py").write_text(f"# {folder}\n")
    Path("mine/alone.py").write_text("# alone\n")
    plugins = "plugins=[mine/ideas.py, yours/ideas.py, mine/alone.py, ./mine/ideas.py]"
    words = ("--configfile", "toy.yaml", "--config", plugins, "--out", "b.zip")
    run_command("bundle", "baseline", *words)
    with zipfile.ZipFile("b.zip") as archive:
        packed = [name for name in archive.namelist() if name.startswith("b/plugins/")]
        texts = {name.removeprefix("b/"): archive.read(name).decode() for name in packed}
        config = yaml.safe_load(archive.read("b/config.yaml"))
    assert texts == {
        "plugins/1/ideas.py": "# mine\n",
        "plugins/2/ideas.py": "# yours\n",
        "plugins/alone.py": "# alone\n",
    }
    assert config["plugins"] == [
        "../plugins/1/ideas.py",
        "../plugins/2/ideas.py",
        "../plugins/alone.py",
        "../plugins/1/ideas.py",
    ]


def test_an_installed_plugin_is_named_with_its_version(
    finished, run_command, tmp_path, monkeypatch
):
    metadata = tmp_path / "bees_of_mine-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bees-of-mine\nVersion: 1.5\n")
    (metadata / "entry_points.txt").write_text("[tandem.plugins]\nbundled_bees = bundled_bees\n")
    (tmp_path / "bundled_bees.py").write_text("# nothing is registered\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = ("--configfile", "toy.yaml", "--config", "plugins=[bundled_bees]", "--out", "b.zip")
    run_command("bundle", "baseline", *words)
    with zipfile.ZipFile("b.zip") as archive:
        page = archive.read("b/README.md").decode()
    assert "installed, and beside it `bees-of-mine==1.5`:" in page
    assert "plugins/" not in page


class Questions(Dataset):
    """The keys of a format that names its file itself."""

    source: Literal["bundled_csv"]
    table: str


class QuestionsSource:
    """Such a format, as a plugin has it."""

    def __init__(self, job, entry: Questions) -> None:
        """Read nothing."""


@pytest.fixture
def own_format(monkeypatch):
    """The format is registered for a test alone: others ask all formats."""
    monkeypatch.setattr(dataset_format, "_entries", dict(dataset_format._entries))
    dataset_format("bundled_csv")(QuestionsSource)


@pytest.mark.parametrize(
    ("kind", "params", "upstream", "text"),
    [
        (
            "dataset",
            {"source": "bundled_csv", "table": "q.csv", "language": "en"},
            {},
            "table: q.csv",
        ),
        ("dataset", {"source": "ir_datasets", "id": "vaswani"}, {}, "vaswani"),
        ("dataset", {"source": "bundled_csv", "table": "q.csv"}, {"of": "results/a"}, "made here"),
        ("encoder", {"source": "bundled_csv", "table": "q.csv"}, {}, "made here"),
    ],
)
def test_where_it_came_from(own_format, kind, params, upstream, text):
    manifest = Manifest(
        kind=kind,
        key="k-0123456789",
        version=1,
        params=params,
        upstream=upstream,
        inputs={},
        files={},
    )
    assert describe_artifact_source(manifest) == text


def test_the_command_told_is_one_for_a_shell(finished, run_command):
    lines = run_command("bundle", "baseline", "toy.yaml", "--out", "b x.zip")[1]
    assert lines[0].endswith("unpack it, then: tandem verify 'b x'")


def test_the_same_results_give_the_same_bytes(finished, run_command):
    for suffix in ("tar.gz", "zip"):
        for name in ("one", "two"):
            run_command("bundle", "baseline", "toy.yaml", "--out", f"{name}/b.{suffix}")
        assert sha256(Path(f"one/b.{suffix}")) == sha256(Path(f"two/b.{suffix}"))
    with tarfile.open("one/b.tar.gz") as tar, zipfile.ZipFile("one/b.zip") as zipped:
        assert sorted(tar.getnames()) == tar.getnames() == zipped.namelist()
        for name in zipped.namelist():
            assert zipped.read(name) == (tar.extractfile(name) or io.BytesIO()).read()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["basline"], "^basline: is not a table; did you mean baseline"),
        (["baseline", "--out", "b.rar"], r"must end in \.tar\.gz or \.zip"),
        (["baseline", "--out", "x/.tar.gz"], r"^--out: is x/\.tar\.gz; a name must stand before"),
        (
            ["baseline", "summary"],
            "^takes one table of one configuration; 2 names are not YAML files",
        ),
        ([], "bundle.* parameter TABLE requires an argument"),
        (
            ["--configfile", "toy.yaml", "--config", "bm25={k1: 1.5}", "baseline"],
            r"^results/toy/score/bm25\.test-\w+ is not made; run: snakemake .* baseline --configfile toy\.yaml"
            r" --config 'bm25=\{k1: 1\.5\}'$",
        ),
    ],
)
def test_mistakes_are_one_line(finished, words, message):
    with pytest.raises(UserError, match=message):
        run(["bundle", *words, *(["--configfile", "toy.yaml"] if "--config" not in words else [])])
    assert not Path("baseline.tar.gz").exists()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("/dev/null/b.zip", "--out: /dev/null/b.zip cannot be written: "),
        ("/proc/b.zip", "--out: /proc/b.zip cannot be written: "),
        ("folder.zip", "--out: folder.zip is a folder; name a file"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch, out, message):
    monkeypatch.chdir(tmp_path)
    Path("folder.zip").mkdir()
    with pytest.raises(UserError, match=f"^{message}"):
        write_bundle("none", out=Path(out), configurations=(Configuration([]),))


def test_a_table_of_another_configuration_is_not_packed(finished):
    made_by = Path("results/toy/tables/baseline.plan")
    (score,) = [stage.key for stage in finished if stage.kind == "score"]
    made_by.write_text(made_by.read_text().replace(score, "bm25.test-0123456789"))
    message = (
        r"^results/toy/tables/baseline\.json was made by another configuration than toy\.yaml;"
        r" run: snakemake .* baseline --configfile toy\.yaml$"
    )
    with pytest.raises(UserError, match=message):
        run(["bundle", "baseline", "toy.yaml"])
    assert not Path("baseline.tar.gz").exists()


def test_a_damaged_table_is_not_packed(finished):
    table = Path("results/toy/tables/baseline.json")
    whole = table.read_text()
    table.write_text("{}")
    with pytest.raises(UserError, match=r"baseline.json: not a table"):
        run(["bundle", "baseline", "toy.yaml"])
    table.write_text(whole)
    assert not Path("baseline.tar.gz").exists()


def test_secrets_of_the_command_line_are_hidden(finished, run_command):
    mirror = "execution={mirrors: [{from: 'https://a/', to: 'https://me:word@host/?token=abc'}]}"
    run_command(
        "bundle", "baseline", "--configfile", "toy.yaml", "--config", mirror, "--out", "b.zip"
    )
    with zipfile.ZipFile("b.zip") as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    assert b"https://***@host/?token=***" in texts["b/README.md"]
    assert [
        name for name, text in texts.items() if b"me:word" in text or b"token=abc" in text
    ] == []


def test_a_damaged_run_is_not_packed(finished, project):
    stage = next(candidate for candidate in finished if candidate.kind == "bm25")
    (project.folder(stage) / "run.trec").write_text("q Q0 x 1 2.0 t\n")
    with pytest.raises(UserError, match=r"run\.trec: changed since it was written"):
        run(["bundle", "baseline", "toy.yaml"])
    assert not list(Path().glob("*.tar.gz*"))
