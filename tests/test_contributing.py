"""CONTRIBUTING names files and calls that exist."""

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_every_path_that_it_names_exists():
    paths = re.findall(r"`((?:workflow|tests|config|benchmarks|examples)/[\w/.<>]+)`", TEXT)
    assert len(paths) > 15
    for path in paths:
        known = path.split("<")[0].rpartition("/")[0] if "<" in path else path
        assert (ROOT / known).exists(), path


def test_every_call_that_it_names_can_be_imported():
    for call, module in re.findall(r"`@?(\w+)\([^`]*\)` \(`(tandem[\w.]*)`\)", TEXT):
        assert hasattr(importlib.import_module(module), call), call
