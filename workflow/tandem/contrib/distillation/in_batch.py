"""Teach in batch by a frozen dual encoder."""

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.losses import InBatchTeaching
from tandem.config.training import DualTrain
from tandem.models.acceleration import accelerate
from tandem.models.device import device
from tandem.models.dual import DualEncoder, load_dual
from tandem.models.tokens import Tokens
from tandem.stages.training import ModelParams
from tandem.store.job import Job
from tandem.training.distributed import World
from tandem.training.forward import Budget, TextVectors
from tandem.training.lists import Batch
from tandem.training.losses import find_distillation_loss
from tandem.training.objectives.dual import Taught, list_batch_rows
from tandem.training.stage import check_input_lengths


class Teacher:
    """Distil from a frozen dual encoder, which scores each batch when the training visits it.

    The student learns from every query's positive, and either from all other passages of the batch (TCT-ColBERT: Lin et
    al. 2021, KL) or from those of the other lists (TAS-B: Hofstätter et al. 2021 §3.3, Margin-MSE, in which a better
    teacher scores the query's own negative). No passage is left out as a known positive, because the teacher scores it,
    too. `model` is of any representation and reads `tokens`, of the same dataset.
    """

    def __init__(
        self,
        model: DualEncoder,
        tokens: Tokens,
        params: InBatchTeaching,
        precision: str,
        budget: Budget,
    ) -> None:
        self.vectors = TextVectors(model.requires_grad_(False).eval(), tokens, precision, budget)
        self.params = params
        self.distillation = find_distillation_loss(params.loss, params)

    @torch.no_grad()
    def loss(self, batch: Batch, world: World) -> Taught:
        """Return a function that computes the weighted distillation; each process encodes a share of the passages.

        The function returns a sum over this process' queries, from the student's scores of these queries with the whole
        batch's passages, shape (queries, all passages).
        """
        mine, lists = list_batch_rows(batch, world)
        # A passage in two lists is scored once: else rounding could make it a pair for losses that learn an order.
        passages, place_of = np.unique(batch.passages[batch.mask], return_inverse=True)
        scores = self.vectors.score_pool(world.share(batch).queries, passages, world)
        scores = scores[:, torch.from_numpy(place_of).to(scores.device)]

        # A list for each query: its positive, the first passage of its own list, then all passages of the batch.
        positives = np.searchsorted(lists, mine)[:, None]
        every = np.broadcast_to(np.arange(len(lists)), (len(mine), len(lists)))
        is_taught = every != positives if self.params.own_negatives else lists != mine[:, None]
        columns = torch.from_numpy(np.concatenate([positives, every], 1)).to(scores.device)
        is_taught = np.concatenate([np.ones_like(positives, bool), is_taught], 1)
        mask = torch.from_numpy(is_taught).to(scores.device)
        teacher = scores.gather(1, columns) / self.params.teacher_temperature

        def compute(student: Tensor) -> Tensor:
            return self.params.weight * self.distillation(student.gather(1, columns), teacher, mask)

        return compute


def start_teacher(job: Job[ModelParams], train: DualTrain) -> Teacher:
    """Load the frozen dual encoder that teaches in batch, on the device."""
    assert train.distil is not None
    assert train.distil.in_batch is not None
    tokens = job.inputs["in_batch_tokens"]
    tokens_per_batch = job.execution.micro_tokens
    model = load_dual(job.inputs["in_batch_teacher"].folder / "dual").to(device())
    check_input_lengths(nn.ModuleDict({"dual": model}), {"tokens": tokens})
    accelerate(model, job.execution, tokens_per_batch, train.precision, training=False)
    budget = Budget(tokens_per_batch, job.execution.graph_tokens)
    return Teacher(model, Tokens.open(tokens), train.distil.in_batch, train.precision, budget)
