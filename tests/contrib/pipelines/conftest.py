"""Choosing a system shares a collection with the tests of retrieval."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "retrieval"))

from excluding import excluding_dataset, job_on_excluded  # noqa: F401
