"""PARADE over tiny texts; as a program, the losses and gradients of each of two processes.

`parade_cases.py <folder>` writes `<folder>/<rank>.safetensors` and `<rank>.json`.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ranks import together
from several_processes import compute_cases, compute_step
from tiny_training import BATCH, POSITIVES, bert, texts, train_params, weigh

from tandem.contrib.long_documents.document_tokens import Documents
from tandem.contrib.long_documents.parade import Options, Parade
from tandem.models.device import device
from tandem.models.learning import set_dropout
from tandem.training.distributed import SINGLE_PROCESS
from tandem.training.forward import Budget
from tandem.training.objectives import Cross

BIG = Budget(micro_tokens=1 << 20, graph_tokens=1 << 20)
SMALL = Budget(micro_tokens=60, graph_tokens=60)  # less than the tokens of most lists' pairs
CASES = {
    "transformer": ("transformer", {}),
    "attention in-batch": ("attention", {"in_batch": True}),
    "max": ("max", {"loss": "pointwise"}),
}
COUNTS = (4, 3, 1)  # of two processes: even and uneven shares, and a share without a query


def documents():
    """The tiny texts as 30 documents of one, two and three windows in turn."""
    opened = texts()
    bounds = np.r_[0, np.tile([1, 2, 3], 10)].cumsum()
    return replace(opened, passages=Documents.join(opened.passages, bounds))


def results(name, budget=BIG, count=COUNTS[0], world=SINGLE_PROCESS, dtype=torch.float64):
    """Reported values and the gradient of every parameter, of a step over the first lists."""
    aggregate, train = CASES[name]
    with torch.random.fork_rng():
        model = Parade(bert(), "cls", Options(aggregate=aggregate))
    params = train_params("cross", **train)
    learner = Cross(model, documents(), params, POSITIVES, budget, world)
    weigh(learner.models, 2, dtype)
    learner.models.to(device())
    set_dropout(learner.models, 0.0)
    learner.models.train()
    values, gradients = compute_step(learner, BATCH.select(slice(count)))
    return values, {path: gradient.cpu() for path, gradient in gradients.items()}


if __name__ == "__main__":
    budgets = {"big": BIG, "small": SMALL}
    together(2, partial(compute_cases, Path(sys.argv[1]), results, CASES, COUNTS, budgets))
