"""A finished copy of the tiny graph for each fault."""

from pathlib import Path

import pytest
from faults_kit import Copy, copy_to, ordered

from tandem.config.merging import gathered
from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def planned(tiny_dag):
    """The stages that the tiny project's default needs, in order."""
    plan = FullPlan(gathered([tiny_dag.folder / "config.yaml"], ROOT), ROOT)
    plan.tables.files()
    return ordered(stage for _, stage in plan.tables["tiny"])


@pytest.fixture
def copied(tiny_dag, planned, tmp_path):
    """The finished project once more, to be damaged."""
    return copy_to(tiny_dag, planned, tmp_path / "copy")


@pytest.fixture
def undisturbed(tiny_dag, planned):
    """The finished project itself, to compare with: read only."""
    return Copy(tiny_dag.folder, planned, tiny_dag.folder)
