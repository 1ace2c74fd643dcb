"""Loss curves of every objective, kept: a change that should not change numerics must not.

The curves were computed in float64 without dropout, so that another CPU's or library's order of summation shows in
digits far behind the tolerance, even after 50 steps of Adam. Weights and texts come from NumPy's frozen generator, not
from libraries that may draw otherwise tomorrow. Where a curve should change, write it anew and say why in the commit:
`TANDEM_WRITE_CURVES=1 python -m pytest tests/training/test_golden.py`.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tandem.training.forward import Budget
from tandem.training.lists import Lists
from tandem.training.loop import TrainingLoop

KEPT = Path(__file__).with_name("golden_curves.json")
STEPS, RELATIVE = 50, 1e-6
TRAIN = {
    "queries_per_batch": 4,
    "list_size": 4,
    "epochs": 1.0,
    "steps": STEPS,
    "lr": 1e-3,
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "warmup": 0.1,
    "schedule": "linear",
    "clip": 1.0,
    "seed": 5,
    "choose": "last",
    "validate_every": None,
}
CURVES = {
    "DE": ("dual", {}),
    "DE in-batch": ("dual", {"in_batch": True}),
    "CE listwise": ("cross", {}),
    "CE pointwise": ("cross", {"loss": "pointwise"}),
    "CE in-batch": ("cross", {"in_batch": True}),
    "monoT5": ("mono_t5", {"loss": "pointwise"}),
    "RankT5": ("rank_t5", {}),
    "duoBERT": ("duo_bert", {"loss": "pointwise"}),
    "joint paper": ("joint", {}),
    "joint reference": ("joint", {"semantics": "reference"}),
    "joint static": ("joint", {"teacher": "static"}),
    "joint pointwise": ("joint", {"supervision": "pointwise"}),
    "joint in-batch": ("joint", {"in_batch": True}),
    "joint Eq. 4 without 1/N": ("joint", {"weight": 4.0}),
    "joint, a rate for each part": ("joint", {"reranker": {"lr": 1e-4}}),
    "DE by positive": ("dual", {"instance": "positive", "resample": False}),
    "CE by row": ("cross", {"loss": "pointwise", "instance": "row"}),
    "DE as released": ("dual", {"instance": "row", "schedule": "linear_from_start"}),
    "DE with LAMB": ("dual", {"optimizer": "lamb"}),
}


@pytest.fixture(scope="module")
def lists():
    """One list a query: its subject's third passage, and seven negatives from the subjects after it."""
    rows = [[3 * i + 2, *((3 * i + 3 + 2 * j) % 60 for j in range(7))] for i in range(20)]
    return Lists(
        np.arange(20), np.arange(21) * 8, np.ones(20, np.int64), np.array(rows).reshape(-1)
    )


@pytest.fixture
def curve(make_objective, make_job, lists, tmp_path):
    """`curve(name)`: the loss of each step."""

    def make(name):
        (objective, own), budget = CURVES[name], Budget(200, 400)
        learned = objective if objective in ("dual", "joint") else "cross"
        job = make_job(
            "model", tmp_path / "golden-0000000000", {"objective": learned, "train": TRAIN | own}
        )
        learner = make_objective(objective, budget, torch.float64, **TRAIN | own)
        state = TrainingLoop(job, job.params.train, learner, lists, None).run()
        return [value for _, what, value in state.log if what == "loss"]

    return make


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_is_as_it_was(name, curve):
    losses = curve(name)
    curves = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if os.environ.get("TANDEM_WRITE_CURVES"):
        curves[name] = [float(f"{value:.10g}") for value in losses]
        KEPT.write_text(
            json.dumps({name: curves[name] for name in CURVES if name in curves}, indent=1) + "\n"
        )
    assert len(losses) == STEPS
    np.testing.assert_allclose(losses, curves[name], rtol=RELATIVE)
