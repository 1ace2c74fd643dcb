"""Small datasets made by the real stage, and trainings over the tiny collection."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "data"))
sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

from making_datasets import make  # noqa: F401
from training_jobs import batch, gradients, lists, make_objective, model_job, runs  # noqa: F401
