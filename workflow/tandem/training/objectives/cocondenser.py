"""coCondenser: hidden tokens are predicted from a passage's late vector, whose spans are told apart from others'."""

import numpy as np
import torch
from torch import Tensor, nn

from tandem.errors import UserError
from tandem.models.device import precision
from tandem.models.dual import dot_scores
from tandem.models.pooling import pool
from tandem.models.ragged import Ids, Ragged
from tandem.training.forward import Replayed, Seeds
from tandem.training.heads import Block
from tandem.training.lists import Batch
from tandem.training.losses.spans import span_contrast
from tandem.training.masking import crop, generator
from tandem.training.objectives import backward
from tandem.training.objectives.pretraining import Pretraining


class CoCondenser(Pretraining):
    """L = L_mlm + L_head + L_co (Gao & Callan 2022), averaged over both spans of each passage.

    Each passage gives two random spans, a share of `mask_probability` of their tokens hidden. L_head is Condenser's
    (Gao & Callan 2021): the hidden tokens, predicted by `head_layers` transformer layers over [h_late; early tokens],
    the span's late vector and the token states after layer `skip_from` (None: half of the layers). L_mlm predicts them
    from the late token states. L_co is `span_contrast` of the late vectors among all spans of the batch. Each of the
    first two is averaged over a span's hidden tokens.
    """

    def further(self) -> dict[str, nn.Module]:
        """Condenser's head."""
        layers = self.encoder.config.num_hidden_layers
        self.early = layers // 2 if self.train["skip_from"] is None else self.train["skip_from"]
        if self.early >= layers:
            raise UserError(
                f"train.skip_from is {self.early}, but the encoder has {layers} layers; name an earlier one"
            )
        blocks = [Block(self.encoder.config) for _ in range(self.train["head_layers"])]
        self.condenser = nn.ModuleList(blocks)
        return {"condenser": self.condenser}

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. The contrast binds the spans together: their vectors meet in one loss, as in `Replayed`."""
        passages = np.repeat(batch.queries, 2)
        shares = self.train["crop_shortest"], self.train["crop_longest"]
        spans = crop(self.tokens.passages.take(passages), *shares, generator(seeds, 0))
        seen, labels = self.vocabulary.hide(spans, self.train["mask_probability"], generator(seeds, 1))
        mine = self.world.slice(len(batch.queries))
        own = np.arange(2 * mine.start, 2 * mine.stop)

        def compute(rows: Ids) -> Tensor:
            """Vector and losses of some spans, side by side."""
            return self.encoded(seen.take(own[rows]), labels.take(own[rows]))

        empty = self.head.bias.new_zeros(0, self.model.dimension + 2)
        lengths = spans.lengths(own) + self.tokens.template.extra[0]
        computed = Replayed(compute, lengths, empty, self.budget, seeds)
        vectors, mlm, head = computed.values().split([self.model.dimension, 1, 1], 1)
        scores = dot_scores(vectors, self.world.gather(vectors), self.model.temperature)
        places, cut = (torch.from_numpy(array).to(scores.device) for array in (own, passages))
        contrast = span_contrast(scores, places, cut)
        terms = {"mlm": mlm.sum(), "head": head.sum(), "contrast": contrast.sum()}
        told = backward(terms, len(passages))
        computed.backward()
        return told

    def encoded(self, seen: Ragged, labels: Ragged) -> Tensor:
        """Each span's vector, its L_mlm and its L_head, shape (spans, dim + 2)."""
        inputs = self.inputs(seen)
        visible = inputs["attention_mask"][:, None].bool()
        with precision(self.train["precision"]):
            made = self.encoder(**inputs, output_hidden_states=True)
            late, early = made.last_hidden_state, made.hidden_states[self.early]
            vectors = pool(late, inputs["attention_mask"], self.model.pooling)
            hidden = torch.cat([vectors[:, None].to(early.dtype), early[:, 1:]], 1)
            for block in self.condenser:
                hidden = block(hidden, hidden, visible)
            losses = [self.predict(late, labels), self.predict(hidden, labels)]
        if self.model.normalize:
            vectors = nn.functional.normalize(vectors, dim=-1)
        return torch.cat([vectors, torch.stack(losses, 1)], 1)
