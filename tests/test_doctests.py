"""The examples in docstrings, as a reader would try them."""

import doctest
import importlib
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[1] / "workflow"


def modules_with_examples():
    for path in sorted(LIBRARY.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            yield ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(
                ".__init__"
            )


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_give_what_they_show(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
