"""Mistakes in a plugin's file that its import names: the file, what is wrong, and what is allowed."""

import os
import subprocess
import sys

import pytest

LOAD = """
import sys
from tandem.errors import UserError
from tandem.plugins import load_plugins

try:
    load_plugins(sys.argv[1:])
except UserError as error:
    print(error)
"""


@pytest.fixture
def load(tmp_path):
    """`load(source, *others)`: what loading mine.py of this source says, after others; empty if it loads."""

    def load(source, *others):
        (tmp_path / "mine.py").write_text(source)
        os.utime(tmp_path / "mine.py", (0, 0))  # of one time, as an archive may unpack them
        words = [sys.executable, "-c", LOAD, *others, "mine.py"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return load


LOSS = """
from pathlib import Path
from typing import Annotated, Any, Literal
import torch
from pydantic import Field
from tandem.config.losses import supervision

@supervision("focal")
def focal(scores, mask, *, gamma{annotation} = None):
    return scores.sum()
"""


@pytest.mark.parametrize("annotation", ["list[float]", "Path", "dict[str, int] | None"])
def test_an_option_that_no_value_fits_is_refused(load, annotation):
    shown = annotation.replace("Path", "pathlib.Path")
    assert load(LOSS.format(annotation=f": {annotation}")) == (
        f"plugins: mine.py: focal: option gamma is annotated with {shown}; allowed: bool, int, float, str, a Literal "
        "of these, and None beside them"
    )


@pytest.mark.parametrize(
    ("kind", "signature", "called"),
    [
        ("supervision", "scores, *, gamma: float = 2.0", "scores, mask"),
        ("supervision", "scores, mask, gamma", "scores, mask"),
        ("distillation", "scores, teacher", "scores, teacher, mask"),
        ("pair_scorer", "query, passages, weight", "query, passages"),
    ],
)
def test_a_function_that_its_stage_could_not_call_is_refused(load, kind, signature, called):
    module = "stages.retrieval" if kind == "pair_scorer" else "config.losses"
    source = f"from tandem.{module} import {kind}\n\n"
    source += f'@{kind}("mine")\ndef mine({signature}):\n    return scores.sum()\n'
    said = load(source)
    assert said.startswith("plugins: mine.py: mine: ")
    assert said.endswith(f"; it is called with {called} by position; options stand behind *")


@pytest.mark.parametrize("annotation", ["torch.dtype", '"Undefined"'])
def test_an_option_whose_type_cannot_be_read_is_refused(load, annotation):
    shown = annotation.strip('"')
    assert load(LOSS.format(annotation=f": {annotation}")) == (
        f"plugins: mine.py: focal: option gamma is annotated with {shown}, which no value of a configuration is; "
        "annotate it with a type such as float or str"
    )


def test_options_of_single_values_are_taken(load):
    types = [
        "float | None",
        'Literal["sum", "mean"]',
        "Annotated[float, Field(gt=0)]",
        '"int"',
        "Any",
    ]
    options = "".join(f", option_{i}: {kind} = 1" for i, kind in enumerate(types))
    assert load(LOSS.replace(", gamma{annotation} = None", f"{options}, last = 1")) == ""


FORMAT = """
from typing import Literal
from tandem.config.datasets import Dataset
from tandem.data.sources import Source, dataset_format

class FaqEntry(Dataset):
    source: Literal["faqs"]

@dataset_format("{name}")
class Faq(Source):
    def __init__(self, job, entry: {entry}) -> None:
        super().__init__(job, entry)
"""


def test_a_format_under_another_name_than_its_entries_source_is_refused(load):
    assert load(FORMAT.format(name="faq", entry="FaqEntry")) == (
        "plugins: mine.py: dataset format faq: `source` of FaqEntry is Literal['faqs']; "
        'write Literal["faq"], or register the format under that name'
    )
    assert load(FORMAT.format(name="faqs", entry="FaqEntry")) == ""


def test_a_format_whose_entry_is_not_annotated_is_named_with_its_file(load):
    assert load(FORMAT.format(name="faqs", entry="object")) == (
        "plugins: mine.py: dataset format Faq: annotate `entry` of __init__ with a subclass of Dataset"
    )


def test_a_file_of_the_same_size_and_time_as_before_is_read_again(load, monkeypatch):
    """Python would run what it has compiled for the earlier one, under the key of the later one."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    for value in ("0.1", "0.2"):
        assert load(f"print({value})") == value


INDEX = """
from typing import ClassVar, Literal
from tandem.config.indexes import AnyIndex, Index, register_index
from tandem.plan.context import plans_index

class Cut({base}):
    built_by: ClassVar[str] = "cut_index"
    type: {type}

register_index(Cut)

@plans_index("cut_index")
def plan_cut({arguments}):
    pass
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"type": "str"},
            'index Cut: its type is str; annotate it with a Literal of its name, such as Literal["cut"]',
        ),
        (
            {},
            "index Cut: has no searched_by; add searched_by: ClassVar[str], the name of a kind of stage",
        ),
        (
            {"base": "AnyIndex"},
            "index Cut: has no searches; add searches: ClassVar[str], what it searches",
        ),
        ({"base": ""}, "index Cut: it is not a subclass of Index"),
    ],
)
def test_a_type_of_indexes_that_finds_no_stage_is_refused(load, change, message):
    words = {"base": "Index", "type": 'Literal["cut"]', "arguments": "*values"}
    assert load(INDEX.format(**words | change)) == f"plugins: mine.py: {message}"


def test_a_plan_that_cannot_be_called_is_refused(load):
    source = INDEX.format(base="Index", type='Literal["cut"]', arguments="ctx, passages")
    assert load(source.replace("register_index(Cut)", "")) == (
        "plugins: mine.py: plan_cut: takes (ctx, passages), but functions under @plans_index are called with "
        "(ctx, passages, name, data, params)"
    )


REPRESENTATION = """
from typing import ClassVar, Literal
from tandem.config.base import Section
from tandem.config.representations import Representation, register_representation

class Squashed({base}):
    usual: ClassVar[dict[str, object]] = {usual}
    type: Literal["squashed"]

register_representation(Squashed)
"""


@pytest.mark.parametrize(
    ("base", "usual", "message"),
    [
        ("Section", "{}", "it is not a subclass of Representation"),
        (
            "Representation",
            "{'normalise': False}",
            "usual has normalise, which is not a key of a dual encoder; did you mean normalize?",
        ),
        (
            "Representation",
            "{'temperature': 'low'}",
            "usual.temperature is 'low': Input should be a valid number, unable to parse string as a number",
        ),
    ],
)
def test_options_of_a_representation_that_no_model_has_are_refused(load, base, usual, message):
    assert load(REPRESENTATION.format(base=base, usual=usual)) == (
        f"plugins: mine.py: representation Squashed: {message}"
    )


def test_a_search_engine_whose_name_is_a_choice_is_refused(load):
    source = """
from tandem.config.retrieval import search_engine

@search_engine("auto")
def start():
    pass
"""
    assert load(source) == (
        "plugins: mine.py: engine auto: the word leaves the choice to the machine; rename it"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'training.BATCH_TERMS["mine"] = print',
            "mine is not a key with code of its own; allowed: passage_centric, regularise",
        ),
        (
            'training.register_own_objective("live_negative", training.OwnObjective(print, print))',
            "live_negative is not a key with code of its own; did you mean live_negatives?",
        ),
    ],
)
def test_what_learns_by_a_key_that_does_not_exist_is_refused(load, line, message):
    """Nothing would ever look it up."""
    assert load(f"from tandem.config import training\n\n{line}\n") == (
        f"plugins: mine.py: {message}"
    )


OPTIMIZER = """
from tandem.config.training import OPTIMIZERS

OPTIMIZERS["sgd"] = print
"""


def test_a_name_that_two_plugins_register_is_refused(load, tmp_path):
    """The one that was loaded last was taken without a word."""
    (tmp_path / "yours.py").write_text(OPTIMIZER)
    assert load(OPTIMIZER, "yours.py") == (
        "plugins: mine.py: sgd is registered twice; rename one of them"
    )
    assert load(OPTIMIZER, "mine.py") == ""


def test_a_file_that_is_no_text_is_named_alone(load):
    assert load("a = 1\0") == (
        "plugins: mine.py: SyntaxError: source code string cannot contain null bytes"
    )
