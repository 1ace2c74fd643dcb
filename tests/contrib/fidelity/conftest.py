"""An empty place for artifacts."""

import pytest
from toy_world import World


@pytest.fixture
def empty_world(tmp_path) -> World:
    return World(tmp_path)
