"""docs/systems.md: a row for everything that the papers name, and nothing in it that does not exist."""

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "systems.md"
ITEMS = ROOT.parent / "shared" / "facts" / "seed_items.csv"


def page_rows():
    """The cells of every row of the page's tables."""
    lines = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")
    ]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if row[0] != "item"]


def test_every_row_is_whole_and_stands_once():
    rows = page_rows()
    assert all(len(row) == 4 and all(row) for row in rows)
    assert [item for item, count in Counter(row[0] for row in rows).items() if count > 1] == []


def test_whatever_is_not_there_says_why():
    absent = [row for row in page_rows() if row[2] == "–"]
    assert absent
    assert [row[0] for row in absent if len(row[3].split()) < 2] == []


def test_recipes_and_files_that_are_named_exist():
    text = PAGE.read_text(encoding="utf-8")
    recipes = {
        name
        for names in re.findall(r"recipes? ((?:`\w+`(?:, )?)+)", text)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert len(recipes) > 20
    assert [
        name for name in recipes if not (ROOT / "config" / "recipes" / f"{name}.yaml").is_file()
    ] == []
    files = set(re.findall(r"`(config/[\w/.-]+\.(?:yaml|csv))`", text))
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_objectives_of_pre_training_that_are_named_exist():
    from tandem.config.encoders import ENCODER_SOURCES

    named = set(re.findall(r"`objective: (\w+)`", PAGE.read_text(encoding="utf-8")))
    assert (
        named - {value for source in ENCODER_SOURCES.values() for value in source.models} == set()
    )
    assert {"condenser", "tsdae", "ict", "cot_mae", "dup_mae", "lex_mae"} <= named


def test_everything_that_the_papers_name_has_a_row():
    if not ITEMS.is_file():
        pytest.skip(f"the list of what the papers name is not beside this checkout ({ITEMS.name})")
    with open(ITEMS, encoding="utf-8", newline="") as file:
        named = [row["item"] for row in csv.DictReader(file)]
    on_page = {row[0] for row in page_rows()}
    assert [item for item in named if item not in on_page] == []
