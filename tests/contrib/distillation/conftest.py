"""Teachers score lists of the tiny collection, and trainings learn from them, as in the training's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

from listed import train_run  # noqa: F401
from training_jobs import gradients, lists, model_job, quick_job, runs  # noqa: F401
