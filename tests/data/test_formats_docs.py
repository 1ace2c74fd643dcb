"""docs/formats.md is right: its table is what test_bad_input.py tests, its entries pass the schema."""

import re
from itertools import takewhile
from pathlib import Path

import pytest
import yaml
from file_formats import FORMATS
from test_bad_input import CASES

from tandem.config.loading import load_settings
from tandem.config.merging import merged, read_yaml
from tandem.data.sources import dataset_format

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
ENTRIES = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)]


def test_the_table_is_what_is_tested():
    lines = DOCS[DOCS.index("| fault | beir") :].split("\n")
    table = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in takewhile(bool, lines)
    ]
    (_, *names), _, *rows = table
    shown = {
        (name, fault): sign
        for fault, *signs in rows
        for name, sign in zip(names, signs, strict=True)
    }
    assert shown == {case: sign for case, (sign, _) in CASES.items()}


@pytest.mark.parametrize(
    "entry", ENTRIES, ids=lambda entry: entry["datasets"][entry["dataset"]]["source"]
)
def test_an_entry_passes_the_schema(entry):
    config = merged(read_yaml(ROOT / "config/config.yaml"), entry)
    entries = load_settings(config, ROOT).datasets
    assert entries[entry["dataset"]].source in dataset_format


def test_every_format_of_the_table_has_an_entry():
    shown = {dataset["source"] for entry in ENTRIES for dataset in entry["datasets"].values()}
    assert shown >= {form.params["source"] for form in FORMATS.values()}
