"""Lists over the tiny collection, and objectives with fresh tiny models."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def batch():
    """Four lists: one of a query that has another list's passage as a known positive, one that is short."""
    from tandem.training.lists import Batch

    passages = np.array([[2, 5, 8, 11], [5, 2, 14, 17], [8, 20, -1, -1], [11, 23, 26, 2]])
    return Batch(np.array([0, 1, 2, 3]), passages)


@pytest.fixture
def make_objective(encoder, tokens):
    """`make_objective(name, budget, dtype, **train)`: the same weights at each call."""
    import torch

    from tandem.models.cross import CrossEncoder
    from tandem.models.dual import DualEncoder
    from tandem.models.tokens import Tokens
    from tandem.training.forward import Budget
    from tandem.training.objectives.cross import Cross
    from tandem.training.objectives.dual import Dual
    from tandem.training.objectives.joint import Joint
    from tandem.training.positives import Positives
    from tandem.training.stage import set_dropout

    def make(name, budget=None, dtype=torch.float32, dropout=0.0, shared=False, **train):
        torch.manual_seed(3)
        folder, opened = encoder.folder / "hf", Tokens.open(tokens)
        told = {"precision": "fp32", "in_batch": False, "loss": "listwise", "supervision": "listwise"}
        told |= {"semantics": "paper", "teacher": "dynamic"} | train
        towers = {"shared": shared, "pooling": "mean", "normalize": False, "temperature": 1.0}
        budget = budget or Budget()
        positives = Positives(np.array([0, 1, 2, 3, 3]), np.array([2, 5, 8, 11, 5]))
        dual, cross = DualEncoder.start(folder, towers), CrossEncoder.start(folder, "mean")
        if name == "dual":
            made = Dual(dual, opened, told, positives, budget)
        elif name == "cross":
            made = Cross(cross, opened, told, budget)
        else:
            made = Joint(dual, cross, opened, opened, told, positives, budget)
        set_dropout(made.models, dropout)
        made.models.to(dtype)
        made.models.train()
        return made

    return make


@pytest.fixture
def gradients():
    """`gradients(objective, batch)`: loss and gradient of every parameter."""
    from tandem.training.forward import Seeds

    def make(objective, batch):
        told = objective.backward(batch, Seeds((1, 2)))
        return told, {name: p.grad for name, p in objective.models.named_parameters() if p.grad is not None}

    return make
