"""Where the tables and the report of a configuration go: none overwrites another's."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tandem import ROOT
from tandem.errors import UserError
from tandem.extras.targets import Configuration
from tandem.plan.views import check_owner, record_owner, views_folder


@pytest.mark.parametrize(
    ("files", "folder"),
    [
        ([], "results"),
        (["config/config.yaml"], "results"),
        (["/data/mine.yaml"], "results/mine"),
        (["config.yaml", "config/long.yaml"], "results/long"),
        (["a.yaml", "b.yml"], "results/a+b"),
        (["实验一.yaml"], "results/实验一"),
        (["one day {x}.yaml"], "results/one~20day~20~7Bx~7D"),
        (["...yaml"], "results/~2E."),
        (["-n.yaml"], "results/~2Dn"),
        (["a+b.yaml"], "results/a~2Bb"),
    ],
)
def test_a_configuration_has_the_folder_of_its_name(files, folder):
    assert views_folder(map(Path, files)) == folder


CHARACTERS = st.characters(exclude_characters="/\0", codec="utf-8")
STEMS = st.text(CHARACTERS, min_size=1).filter(lambda stem: stem != "config")


@given(st.lists(STEMS, min_size=1, max_size=2), st.lists(STEMS, min_size=1, max_size=2))
@example(["实验一"], ["实验二"])
@example(["a b"], ["a_b"])
@example(["a+b"], ["a", "b"])
def test_names_that_differ_give_folders_that_differ(first, second):
    folders = [views_folder(Path(f"{stem}.yaml") for stem in stems) for stems in (first, second)]
    assert (folders[0] == folders[1]) == (first == second)
    for folder in folders:
        assert re.fullmatch(r"results/[\w~][\w.~+-]*", folder)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder: two configurations of one name, the first of which has made tables."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("a/mine.yaml", "b/mine.yaml")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f"seed: {seed}\n")
    record_owner("results/mine", [Path("a/mine.yaml")])
    (tmp_path / "results/mine/tables").mkdir()
    return tmp_path


def test_a_configuration_of_the_same_name_does_not_replace_the_views(folder):
    check_owner("results/mine", [folder / "a/mine.yaml"])
    with pytest.raises(
        UserError,
        match=r"^results/mine has the tables of a/mine\.yaml, which those of b/mine\.yaml ",
    ):
        check_owner("results/mine", [Path("b/mine.yaml")])
    with pytest.raises(UserError, match="those of config/config.yaml"):
        check_owner("results/mine", [ROOT / "config/config.yaml"])


@pytest.mark.parametrize("gone", ["a/mine.yaml", "results/mine/tables"])
def test_a_name_is_free_again_where_its_file_or_its_tables_are_gone(gone, folder):
    (folder / gone).rename(folder / "elsewhere")
    check_owner("results/mine", [Path("b/mine.yaml")])


def test_a_copy_of_the_file_is_the_same_configuration(folder):
    (folder / "b/mine.yaml").write_bytes((folder / "a/mine.yaml").read_bytes())
    check_owner("results/mine", [Path("b/mine.yaml")])


def test_a_project_can_be_moved(folder, monkeypatch):
    folder.rename(folder.with_name("moved"))
    monkeypatch.chdir(folder.with_name("moved"))
    check_owner("results/mine", [Path("a/mine.yaml")])


def test_two_configurations_share_stages_and_no_table():
    plain, long = Configuration().plan(), Configuration([ROOT / "config/long.yaml"]).plan()
    assert plain.tables.files()[0] == "results/tables/summary.csv"
    assert long.tables.files()[0] == "results/long/tables/summary.csv"
    assert long.view("sweeps").files_of(["rocketqav2_figure4_small"]) == [
        "results/long/sweeps/rocketqav2_figure4_small.json"
    ]
    assert (
        plain.planner.model("de_bm25neg", "here").folder
        == long.planner.model("de_bm25neg", "here").folder
    )


def test_what_the_default_measured_says_nothing_of_other_settings(tmp_path):
    def measured(text):
        (file := tmp_path / "own.yaml").write_text(text)
        bands = json.loads(Configuration([file]).plan().tables.to_json("summary"))["bands"]
        return [band for band in bands if "sd" in band and "table" not in band]

    assert measured("{}") == measured("seeds: [1, 2]\ntables: [summary]") != []
    assert measured("models: {de_bm25neg: {train: {steps: 41}}}") == []
