"""Where the tables and the report of a configuration go: none overwrites another's."""

import json
from pathlib import Path

import pytest

from tandem import ROOT
from tandem.extras.operations.targets import Configuration
from tandem.plan.plan import views_folder


@pytest.mark.parametrize(
    ("files", "folder"),
    [
        ([], "results"),
        (["config/config.yaml"], "results"),
        (["/data/mine.yaml"], "results/mine"),
        (["config.yaml", "config/long.yaml"], "results/long"),
        (["a.yaml", "b.yml"], "results/a+b"),
        (["one day {x}.yaml"], "results/one_day__x_"),
        (["...yaml"], "results/_"),
    ],
)
def test_a_configuration_has_the_folder_of_its_name(files, folder):
    assert views_folder(map(Path, files)) == folder


def test_two_configurations_share_stages_and_no_table():
    plain, long = Configuration().plan(), Configuration([ROOT / "config/long.yaml"]).plan()
    assert plain.tables.files()[0] == "results/tables/summary.csv"
    assert long.tables.files()[0] == "results/long/tables/summary.csv"
    assert long.sweep_files("rocketqav2_figure4_small") == ["results/long/sweeps/rocketqav2_figure4_small.json"]
    assert plain.planner.model("de_bm25neg", "here").folder == long.planner.model("de_bm25neg", "here").folder


def test_what_the_default_measured_says_nothing_of_other_settings(tmp_path):
    def measured(text):
        (file := tmp_path / "own.yaml").write_text(text)
        bands = json.loads(Configuration([file]).plan().tables.to_json("summary"))["bands"]
        return [band for band in bands if "sd" in band and "table" not in band]

    assert measured("{}") == measured("seeds: [1, 2]\ntables: [summary]") != []
    assert measured("models: {de_bm25neg: {train: {steps: 41}}}") == []
