"""A folder's views belong to one configuration, which another of the same name does not replace."""

from pathlib import Path

import pytest

from tandem.errors import UserError
from tandem.extras.view_owners import check_owner, record_owner

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("content", ["", "x", "5", '{"a": 1}', "[5]"])
def test_a_damaged_record_is_one_line(content, folder):
    (folder / "results/mine/configuration.json").write_text(content)
    with pytest.raises(
        UserError, match=r"^results/mine/configuration\.json: is not a list .*delete"
    ):
        check_owner("results/mine", [Path("b/mine.yaml")])


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
