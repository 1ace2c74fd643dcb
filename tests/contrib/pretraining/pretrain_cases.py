"""Pre-training objectives over tiny texts; as a program, the losses and gradients of each of two processes.

`pretrain_cases.py <folder>` writes `<folder>/<rank>.safetensors` and `<rank>.json`.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ranks import together
from several_processes import compute_cases, compute_step
from tiny_training import WORDS, bert, texts

from tandem.contrib.pretraining.masking import Vocabulary
from tandem.contrib.pretraining.options import PRETRAININGS
from tandem.contrib.pretraining.pretrain import OBJECTIVES, passages_alone
from tandem.models.dual import DualEncoder
from tandem.models.learning import set_dropout
from tandem.models.saving import DualShape
from tandem.training.distributed import SINGLE_PROCESS
from tandem.training.forward import Budget
from tandem.training.lists import Batch

BIG = Budget(micro_tokens=1 << 20, graph_tokens=1 << 20)
SMALL = Budget(micro_tokens=30, graph_tokens=1)
VOCABULARY = Vocabulary(1, np.arange(4), np.arange(4, WORDS))
SPANS = {"crop_shortest": 0.3, "crop_longest": 0.7}
CASES = {
    "crop": SPANS,
    "moco": {**SPANS, "queue": 20, "momentum": 0.9},
    "mlm": {"mask_probability": 0.15},
    "retromae": {"mask_probability": 0.3, "decoder_mask_probability": 0.5},
    "cocondenser": {**SPANS, "mask_probability": 0.15, "head_layers": 2, "skip_from": None},
    "condenser": {"mask_probability": 0.15, "head_layers": 2, "skip_from": None},
    "tsdae": {"deletion_probability": 0.6},
    "ict": {**SPANS, "keep_probability": 0.3},
    "cot_mae": {
        **SPANS,
        "mask_probability": 0.3,
        "decoder_mask_probability": 0.45,
        "decoder_layers": 2,
    },
    "dup_mae": {"mask_probability": 0.3, "decoder_mask_probability": 0.5, "bag_weight": 0.5},
    "lex_mae": {"mask_probability": 0.3, "decoder_mask_probability": 0.5, "decoder_layers": 2},
}
ROWS = np.array([3, 40, 17, 3, 8, 59, 22])  # passage 3 stands twice
COUNTS = (7, 1)  # of two processes: uneven shares, and a share without a passage


def objective(
    name, budget=BIG, world=SINGLE_PROCESS, dropout=0.0, dtype=torch.float64, pooling="cls", **train
):
    """An objective with the same weights at each call, large enough for gradients to matter."""
    encoder, tokens = bert(), passages_alone(texts())[0]
    model = DualEncoder(encoder, encoder, DualShape(True, pooling, False, 2.0))
    params = PRETRAININGS[name].model_validate({"precision": "fp32", **CASES[name], **train})
    pretraining = OBJECTIVES[name](model, tokens, params, VOCABULARY, budget, world)
    rng = np.random.RandomState(2)
    for path, parameter in sorted(pretraining.models.named_parameters()):
        centre = 1.0 if parameter.dim() == 1 and path.endswith("weight") else 0.0
        parameter.data = torch.from_numpy(rng.normal(centre, 0.2, tuple(parameter.shape))).to(dtype)
    set_dropout(pretraining.models, dropout)
    pretraining.models.train()
    return pretraining


def results(name, budget=BIG, count=COUNTS[0], world=SINGLE_PROCESS, **more):
    """Reported values and the gradient of every parameter, of a step over the first passages."""
    pretraining = objective(name, budget, world, **more)
    if name == "moco":
        # about as long as the encoder's, so that there is something to learn
        pretraining.queue.vectors *= 10
    return compute_step(pretraining, Batch(ROWS[:count], ROWS[:count, None]))


if __name__ == "__main__":
    budgets = {"big": BIG, "small": SMALL}
    together(2, partial(compute_cases, Path(sys.argv[1]), results, CASES, COUNTS, budgets))
