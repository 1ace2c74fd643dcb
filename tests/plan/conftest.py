"""What the tests of planning share."""

import pytest
from tiny_project import write_qrels_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BEIR folder with qrels of three splits."""
    return write_qrels_folder(tmp_path_factory.mktemp("beir"), "x", ("train", "dev", "test"))
