"""A format from a user's own file: registered by its decorator, its keys validated by the model of its entries."""

from textwrap import dedent

import pytest

from tandem.config.datasets import sources
from tandem.data.collection import Collection
from tandem.data.sources import dataset_format
from tandem.errors import UserError
from tandem.plugins import load_plugins

PLUGIN = """
from typing import Literal

from pydantic import Field

from tandem.config.datasets import Dataset
from tandem.data.sources import DatasetJob, Source, dataset_format


class CountingEntry(Dataset):
    reads_files = False

    source: Literal["counting"]
    numbers: int = Field(ge=1, description="how many passages")


@dataset_format("counting")
class Counting(Source):
    def __init__(self, job: DatasetJob, entry: CountingEntry) -> None:
        super().__init__(job, entry)
        self.numbers = range(entry.numbers)
        self.places = {"corpus": "number", "queries": "question"}

    def read_corpus(self):
        return ((f"d{number}", "", f"the number {number}") for number in self.numbers)

    def read_queries(self):
        return ((f"q{number}", f"which number is {number}?", "test") for number in self.numbers)

    def read_qrels(self):
        return ((f"q{number}", f"d{number}", 1, "test") for number in self.numbers)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_format, "_entries", dict(dataset_format._entries))
    path = tmp_path / "counting.py"
    path.write_text(dedent(PLUGIN))
    [loaded] = load_plugins([str(path)])
    return loaded


def test_a_plugins_format_makes_a_dataset_and_checks_its_keys(plugin, make):
    dataset = make("d", {"source": "counting", "numbers": 3})
    assert Collection(dataset).queries("test")["q2"] == "which number is 2?"
    assert dataset_format.plugin("counting") == plugin
    assert sources()["counting"].model_fields["numbers"].description == "how many passages"
    with pytest.raises(UserError, match=r"^numbers is 0; allowed: ≥ 1$"):
        make("few", {"source": "counting", "numbers": 0})


@pytest.mark.parametrize("entry", ["entry", "entry: int", "keys: CountingEntry"])
def test_a_format_whose_keys_are_not_known_is_one_line(tmp_path, monkeypatch, entry):
    monkeypatch.setattr(dataset_format, "_entries", dict(dataset_format._entries))
    (tmp_path / "counting.py").write_text(PLUGIN.replace("entry: CountingEntry", entry))
    format_of_file = "plugins: .*/counting.py: dataset format Counting"
    with pytest.raises(UserError, match=f"^{format_of_file}: annotate `entry` of __init__"):
        load_plugins([str(tmp_path / "counting.py")])


def test_a_title_or_text_that_is_none_is_named(tmp_path, monkeypatch, make):
    """It would be written as null, which later stages do not expect."""
    monkeypatch.setattr(dataset_format, "_entries", dict(dataset_format._entries))
    (tmp_path / "counting.py").write_text(
        PLUGIN.replace('f"d{number}", "",', 'f"d{number}", None if number else "",')
    )
    load_plugins([str(tmp_path / "counting.py")])
    with pytest.raises(UserError, match="^number: document d1 has no title"):
        make("d", {"source": "counting", "numbers": 3})
