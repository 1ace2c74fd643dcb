"""Weights of terms share the tiny texts, models and jobs of the training's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

from training_jobs import lists, model_job, quick_job, runs  # noqa: F401
