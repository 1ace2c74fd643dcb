"""Teachers score lists of the tiny collection, and trainings learn from them, as in the training's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

from listed import train_run  # noqa: F401
from training_jobs import (  # noqa: F401
    batch,
    gradients,
    lists,
    make_objective,
    model_job,
    runs,
)
