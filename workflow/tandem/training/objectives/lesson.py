"""What a list teaches its model: by its first passage (supervision), by a teacher's scores (distillation), or both."""

from typing import Any

import torch
from torch import Tensor

from tandem.training.lists import Batch
from tandem.training.losses import distillation, supervision


class Lesson:
    """weight · distillation(scores, teacher) + supervision · loss(scores), as `train.distil` says; else the loss alone.

    Args:
        train: the model's resolved `train` parameters.
    """

    def __init__(self, train: dict[str, Any]) -> None:
        self.supervise, self.distil = supervision(train), train.get("distil")
        self.distillation = distillation(self.distil) if self.distil else None

    def __call__(self, scores: Tensor, mask: Tensor, own: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The loss's terms, each summed over the lists.

        Args:
            scores: of each list, in batch followed by the other lists' passages, shape (queries, list + more).
            mask: True where a passage counts, same shape.
            own: scores of the lists alone, which a teacher has scored, shape (queries, list).
            batch: the lists. A passage without a teacher's score is left out of the distillation, and so is a list
                with fewer than two scored ones.
        """
        if self.distil is None or self.distillation is None:
            return {"sup": self.supervise(scores, mask)}
        if batch.teacher is None:
            raise ValueError("train.distil needs lists with a teacher's scores")
        teacher = torch.from_numpy(batch.teacher).to(own)
        scored = torch.from_numpy(batch.mask).to(own.device) & teacher.isfinite()
        told = scored.sum(-1) > 1  # one score compares with nothing
        seen = own[told], teacher.masked_fill(~scored, 0.0)[told], scored[told]
        distilled = self.distillation(*seen) * self.distil["weight"]
        if not self.distil["supervision"]:
            return {"distil": distilled}
        return {"distil": distilled, "sup": self.supervise(scores, mask) * self.distil["supervision"]}
