"""Losses over tiny lists, and trainings over the tiny collection, as in the training's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

from training_jobs import (  # noqa: F401
    batch,
    gradients,
    lists,
    make_objective,
    model_job,
    quick_job,
    runs,
)
