"""Objectives of weights of terms share the tiny texts and models of the training's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))
