"""Random crops: two spans of a passage are each other's positive."""

from typing import Any

import numpy as np
from torch import Tensor, nn

from tandem.models.dual import DualEncoder
from tandem.models.tokens import Tokens
from tandem.training.distributed import ALONE, World
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch
from tandem.training.masking import crop, generator
from tandem.training.objectives.dual import Dual
from tandem.training.positives import Positives


class Crop:
    """-log( e^{s(a_i, b_i)} / Σ_j e^{s(a_i, b_j)} ), a_i and b_i being two random spans of passage i.

    Contriever's contrastive loss (Izacard et al. 2022 Eq. 1) with its independent cropping, the negatives being the
    batch's other passages instead of a queue of earlier ones. It is the dual encoder's loss with the one span as query
    and the other as passage; so in-batch negatives come from all processes.

    Args:
        model: the encoder, in both towers.
        tokens: passages; there are no queries.
        train: the resolved `train` parameters.
        budget: how much is computed at once.
        world: the processes that train together.
    """

    def __init__(
        self, model: DualEncoder, tokens: Tokens, train: dict[str, Any], budget: Budget, world: World = ALONE
    ) -> None:
        self.models = nn.ModuleDict({"dual": model})
        self.model, self.tokens, self.budget, self.world = model, tokens, budget, world
        self.train = {**train, "loss": "listwise", "in_batch": True}

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. A passage that stands in the batch twice is no negative of itself."""
        texts, places = self.tokens.passages.take(batch.queries), np.arange(len(batch.queries))
        shares = self.train["crop_shortest"], self.train["crop_longest"]
        one, other = (crop(texts, *shares, generator(seeds, side)) for side in (0, 1))
        same = Positives(*np.nonzero(batch.queries[:, None] == batch.queries[None, :]))
        spans = Tokens(other, one, self.tokens.template)
        objective = Dual(self.model, spans, self.train, same, self.budget, self.world)
        return objective.backward(Batch(places, places[:, None]), seeds)

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """See `Objective`: no lists are ranked."""
        return {}
