"""Trainings over the tiny collection by topics, as in the training's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

from training_jobs import lists, model_job, runs  # noqa: F401
