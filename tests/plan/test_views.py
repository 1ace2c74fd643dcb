"""Where the tables and the report of a configuration go: none overwrites another's."""

from pathlib import Path

import pytest

from tandem import ROOT
from tandem.extras.operations.configurations import Configuration
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
    assert long.sweeps("rocketqav2_figure4_small") == ["results/long/sweeps/rocketqav2_figure4_small.json"]
    assert plain.planner.model("de_bm25neg", "here").folder == long.planner.model("de_bm25neg", "here").folder
