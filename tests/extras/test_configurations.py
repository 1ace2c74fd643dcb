"""Configurations as a command line names them."""

from pathlib import Path

from tandem.extras.targets import Configuration, split_files


def test_a_file_of_a_configuration_is_yaml_or_a_json_file_that_is_no_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for name in ("mine.json", "results/stage.json", "two words.yaml"):
        Path(name).touch()
    names = ["all", "results/stage.json", "package.json", "how is a.yaml read"]
    files = ["mine.json", "missing.yaml", "a.yml", "two words.yaml"]
    assert split_files([*names, *files]) == (names, list(map(Path, files)))


def test_a_command_that_is_shown_has_no_secret():
    configuration = Configuration(
        values=["execution={mirrors: [{from: 'https://a/', to: 'https://me:hunter2@b/'}]}"]
    )
    shown = f"{configuration.name} {configuration.snakemake(['all'])}"
    assert ("hunter2" in shown, shown.count("https://***@b/")) == (False, 2)
    assert "hunter2" in configuration.words[-1]  # what runs has it
