"""Where the tables and the report of a configuration go: none overwrites another's."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tandem import ROOT
from tandem.extras.targets import Configuration
from tandem.plan.views import views_folder


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
