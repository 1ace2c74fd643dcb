"""Compute the loss of lists whose passages a teacher has scored."""

import torch
from torch import Tensor

from tandem.cluster.progress import say
from tandem.config.training import CrossTrain, DualTrain
from tandem.contrib.distillation.read_scores import find_what_is_read
from tandem.training.distributed import World
from tandem.training.lists import Batch
from tandem.training.losses import average_over_positives, find_distillation_loss
from tandem.training.objectives import ListLoss, make_mask


def tell_scales(student: Tensor, teacher: Tensor, scored: Tensor) -> None:
    """Report if the spread of a teacher's scores in a list differs from the model's by more than a factor of 3/2.

    With vectors of length 1, no score exceeds the inverse of the temperature: a model that has to learn wider margins
    learns their width before their order.

    Args:
        student, teacher: scores of the first lists of a training, shape (queries, list).
        scored: True where both count, same shape.
    """

    def spread(scores: Tensor) -> float:
        """Return the mean over the lists of the distance between the highest and the lowest score."""
        highest = scores.masked_fill(~scored, -torch.inf).amax(1)
        lowest = scores.masked_fill(~scored, torch.inf).amin(1)
        return float((highest - lowest).mean())

    ratio = spread(teacher) / max(spread(student), 1e-9)
    if not 2 / 3 <= ratio <= 3 / 2:
        say(
            f"the teacher's scores lie {ratio:.2g} times as far apart as the model's, which this loss teaches, too; "
            f"distil.teacher_temperature at {ratio:.2g} times its value would take that away"
        )


class DistilledListLoss(ListLoss):
    """weight · distillation(scores, teacher) + supervision · loss(scores), as `train.distil` says."""

    def __init__(self, train: DualTrain | CrossTrain) -> None:
        super().__init__(train)
        assert train.distil is not None
        self.distil = train.distil
        self.distillation = find_distillation_loss(self.distil.loss, self.distil)
        reads_scale = find_what_is_read(self.distil.loss) == "scale"
        self.tells_scales = reads_scale and World.current().first

    def __call__(
        self, scores: Tensor, mask: Tensor, own: Tensor, batch: Batch
    ) -> dict[str, Tensor]:
        """See `ListLoss`.

        A passage without a teacher's score is left out of the distillation, and so is a list with fewer than two
        scored ones.
        """
        terms = {}
        if batch.teacher is not None:
            teacher = torch.from_numpy(batch.teacher).to(own) / (
                self.distil.teacher_temperature or 1.0
            )
            scored = make_mask(batch, own) & teacher.isfinite()
            known = teacher.masked_fill(~scored, 0.0)
            lists = scored.sum(-1) > 1  # one score compares with nothing
            if self.tells_scales and lists.any():
                tell_scales(own[lists].detach(), teacher[lists], scored[lists])
                self.tells_scales = False
            distilled = self.distillation(own[lists], known[lists], scored[lists])
            terms["distil"] = distilled * self.distil.weight
        elif self.distil.in_batch is None:
            raise ValueError("train.distil needs lists with a teacher's scores")
        if self.distil.supervision:
            supervised = average_over_positives(self.supervision, scores, mask, batch.positives)
            terms["sup"] = supervised * self.distil.supervision
        return terms
