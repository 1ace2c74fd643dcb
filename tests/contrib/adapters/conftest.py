"""Trainings over the tiny collection."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

from training_jobs import lists, model_job, quick_job, runs  # noqa: F401
