"""Small datasets made by the real stage, and the tiny texts and models of the training's tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))
sys.path.insert(0, str(Path(__file__).parents[2] / "data"))

from making_datasets import make, make_beir  # noqa: F401
from tiny_project import write_qrels_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BEIR folder with qrels of three splits."""
    return write_qrels_folder(tmp_path_factory.mktemp("beir"), "x", ("train", "dev", "test"))
