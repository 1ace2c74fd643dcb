"""Configurations as a command line names them."""

from pathlib import Path

import pytest
from snakemake.cli import parse_config

from tandem.extras.targets import Configuration, format_dataset_override, split_files


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


@pytest.mark.parametrize(
    "word",
    [
        *("seed=7", "seed=010", "seed=0x10", "seed=1_000", "seed=1e3", "seed=1:30", "seed= 7"),
        *("shared=no", "shared=True", "shared=true", "entry=~", "entry=null", "entry=", "name='7'"),
        *("seeds=[1, 010]", "bm25={k1: 1e0, b: .5}", "entry={no: {path: 2024-01-01}}"),
        *("entry={a: {shared: off, train: null}}", "day=2024-01-01", "day=2024-13-01"),
    ],
)
def test_a_word_of_config_is_read_as_snakemake_reads_it(word):
    """A seed of 010 was 8 to `tandem` and 10 to the run that it planned."""
    key = word.partition("=")[0]
    assert Configuration(values=[word]).config()[key] == parse_config([word])[key]


@pytest.mark.parametrize(
    "name", ["pydocs", "2024", "1e3", "no", "True", "nan", "a b", "día", "null"]
)
def test_a_dataset_of_any_name_reaches_snakemake_as_text(name):
    assert parse_config([format_dataset_override(name)]) == {"dataset": name}
