"""What must give the same loss and gradients however it is computed; as a program, the results of several processes.

`exact_cases.py <folder>` writes `<folder>/<processes>/<rank>.safetensors` and `<rank>.json`, for 2 and 3 processes.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ranks import together
from several_processes import write_results
from tiny_training import BATCH, objective

from tandem.extras.validation.validation_sets import ValidationSet, validate
from tandem.training.distributed import SINGLE_PROCESS, World
from tandem.training.forward import Budget, Seeds

BIG = Budget(micro_tokens=1 << 20, graph_tokens=1 << 20)
SMALL = Budget(micro_tokens=60, graph_tokens=60)  # less than the tokens of most lists' pairs
TAUGHT = replace(
    BATCH, teacher=np.random.RandomState(4).normal(0, 1, BATCH.passages.shape).astype(np.float32)
)
DISTIL = {"loss": "margin_mse", "weight": 0.5, "supervision": 1.0}
IN_BATCH = {"loss": "margin_mse", "weight": 0.75, "own_negatives": False}
REGULARISE = {"query": {"flops": 0.1, "l1": 0.0}, "passage": {"flops": 0.2, "l1": 0.1}, "ramp": 0}
CASES = {
    "dual": ("dual", {}),
    "dual in-batch": ("dual", {"in_batch": True}),
    "dual in-batch, one tower": ("dual", {"in_batch": True, "shared": True}),
    "dual distilled": ("dual", {"in_batch": True, "distil": DISTIL}),
    "dual taught in batch": ("dual", {"distil": DISTIL | {"in_batch": IN_BATCH}}),
    "multi taught in batch": (
        "multi",
        {"in_batch": True, "distil": DISTIL | {"in_batch": {"loss": "kl"}}},
    ),
    # passages stand in two lists each, which only rounding could tell apart
    "multi taught an order in batch": (
        "multi",
        {"distil": {"supervision": 0, "in_batch": {"loss": "lambda_mrr"}}},
    ),
    "dual passage-centric": ("dual", {"in_batch": True, "passage_centric": 0.3}),
    "dual self-taught in-batch": ("dual", {"in_batch": True, "self_teaching": {"weight": 2.0}}),
    "multi self-taught": ("multi", {"self_teaching": {"temperature": 0.5}}),
    "dual regularised": ("dual", {"regularise": REGULARISE}),
    "dual, a frozen layer": ("dual", {"in_batch": True, "freeze_layers": 1}),
    "multi": ("multi", {}),
    "multi in-batch": ("multi", {"in_batch": True, "shared": True}),
    "multi distilled": ("multi", {"in_batch": True, "passage_centric": 0.3, "distil": DISTIL}),
    "me_bert": ("me_bert", {"in_batch": True}),
    "coil": ("coil", {"in_batch": True}),
    "coil distilled": ("coil", {"distil": DISTIL}),
    "sparse regularised": ("sparse", {"in_batch": True, "regularise": REGULARISE}),
    "sparse distilled": ("sparse", {"distil": DISTIL}),
    "sparterm": ("sparterm", {"in_batch": True}),
    "sparterm, a learned gate": ("gated", {"in_batch": True}),
    "sparterm expansion terms": ("gated", {"loss": "expansion_terms"}),
    "unicoil": ("unicoil", {"in_batch": True}),
    "unicoil term recall": ("unicoil", {"loss": "term_recall"}),
    "uhd": ("uhd", {"in_batch": True}),
    "spade": ("spade", {"in_batch": True}),
    "spade co-training": ("spade", {"in_batch": True, "co_training": 0.5}),
    "poly": ("poly", {"in_batch": True, "passage_centric": 0.3}),
    "poly distilled": ("poly", {"distil": DISTIL}),
    "cross listwise": ("cross", {}),
    "cross pointwise": ("cross", {"loss": "pointwise"}),
    "cross in-batch": ("cross", {"in_batch": True}),
    "cross distilled": ("cross", {"in_batch": True, "distil": DISTIL}),
    "mono_t5 pointwise": ("mono_t5", {"loss": "pointwise"}),
    "rank_t5 listwise": ("rank_t5", {}),
    "rank_t5 encoder distilled": ("rank_t5_encoder", {"distil": DISTIL}),
    "duo_bert": ("duo_bert", {"loss": "pointwise"}),
    "duo_t5": ("duo_t5", {"loss": "pointwise"}),
    "joint paper": ("joint", {}),
    "joint reference": ("joint", {"semantics": "reference"}),
    "joint pointwise in-batch": ("joint", {"supervision": "pointwise", "in_batch": True}),
    "joint static": ("joint", {"teacher": "static"}),
    "joint, a frozen layer": ("joint", {"freeze_layers": 1}),
}
DTYPES = {"fp64": (torch.float64, 1e-10), "fp32": (torch.float32, 1e-5)}
# For 2 and 3 processes: even and uneven shares, and shares without a query.
RUNS = [("fp64", 4, SMALL), ("fp64", 3, BIG), ("fp64", 1, SMALL), ("fp32", 3, SMALL)]


def results(case, budget, dtype, queries=4, world=SINGLE_PROCESS, **more):
    """Values, and the gradient of every parameter that has one, of a case over the first `queries` lists."""
    name, train = CASES[case]
    learner = objective(name, budget, dtype, world=world, **train, **more)
    batch = TAUGHT if "distil" in train else BATCH
    values = world.sum_values(learner.backward(batch.select(slice(queries)), Seeds((1, 2))))
    world.sum_gradients(learner.models)
    return values, {
        path: p.grad.cpu() for path, p in learner.models.named_parameters() if p.grad is not None
    }


def dev_values(world=SINGLE_PROCESS, lists=4):
    """nDCG@10 of both parts of a joint model on dev lists."""
    grades = [{8: 1}, {2: 1, 17: 2}, {20: 1}, {26: 1}]
    return validate(
        objective("joint", world=world),
        ValidationSet(BATCH.select(slice(lists)), grades[:lists], "a test"),
        world,
    )


def compute(folder):
    """Compute every case in this process of several."""
    torch.set_num_threads(1)
    folder.mkdir(exist_ok=True)
    computed = {}
    with World.current().joined() as world:
        for case in CASES:
            for number, (dtype, queries, budget) in enumerate(RUNS):
                computed[f"{case}|{number}"] = results(
                    case, budget, DTYPES[dtype][0], queries, world
                )
        computed["dev"] = [dev_values(world), dev_values(world, 1)], {}
        write_results(folder, world.rank, computed)


if __name__ == "__main__":
    for size in (2, 3):
        together(size, partial(compute, Path(sys.argv[1]) / str(size)))
