"""RetroMAE: a one-layer decoder reconstructs a passage from its vector and little else."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.errors import UserError
from tandem.models.pooling import pool
from tandem.models.ragged import Ids
from tandem.models.template import Template
from tandem.training.heads import Block
from tandem.training.masking import generator
from tandem.training.objectives.pretraining import Part, Separable


def views(lengths: Ids, width: int, template: Template, share: float, draws: list[np.random.Generator]) -> Ids:
    """What each position may look at: the position-specific mask of RetroMAE's enhanced decoding (Eq. 7).

    A token sees the passage's vector, which stands first, the special tokens, and a random `1 - share` of the other
    tokens, drawn for it alone; never itself.

    Args:
        lengths: tokens of each passage, shape (passages,).
        width: the inputs' length.
        template: where special tokens stand.
        share: of the other tokens, how many are hidden on average.
        draws: each passage's generator.
    Returns:
        Shape (passages, width, width): position, whether it sees another.
    """
    before, after = map(len, template.single)
    made = np.zeros((len(lengths), width, width), bool)
    for seen, length, draw in zip(made, lengths, draws, strict=True):
        end = before + length
        seen[:, :before] = seen[:, end : end + after] = True
        others = draw.random((length, length)) >= share
        np.fill_diagonal(others, False)
        seen[before:end, before:end] = others
    return made


class RetroMae(Separable):
    """L = L_mlm + L_dec (Xiao et al. 2022), with enhanced decoding.

    L_mlm: the encoder's own hidden tokens (`mask_probability`, 30 % in the paper's code). L_dec (Eq. 8): every token of
    the passage, predicted by one transformer layer A = softmax(Q Kᵀ / √d + M) V with queries from
    H1 = [h + p_0, …, h + p_N] and keys and values from H2 = [h, e_1 + p_1, …, e_N + p_N] (Eqs. 4 to 7), where h is the
    passage's vector, e are embeddings, p positions and M hides `decoder_mask_probability` of the tokens from each
    position. As in the paper's code, e + p is what the encoder's embedding layer gives and both losses use one head.
    Each is averaged over its tokens.
    """

    names = ("mlm", "decoder")

    def further(self) -> dict[str, nn.Module]:
        """The decoder."""
        self.embeddings: Any = getattr(self.encoder, "embeddings", None)
        if not hasattr(self.embeddings, "position_embeddings"):
            kind = self.encoder.config.model_type
            raise UserError(f"objective retromae needs an encoder with position embeddings; this one is a {kind}")
        self.decoder = Block(self.encoder.config)
        return {"decoder": self.decoder}

    def terms(self, part: Part) -> dict[str, Tensor]:
        """See `Separable`."""
        inputs = self.inputs(part.seen)
        hidden = self.encoder(**inputs).last_hidden_state
        vector = pool(hidden, inputs["attention_mask"], self.model.pooling)[:, None].to(hidden.dtype)
        width, lengths = hidden.shape[1], np.diff(part.texts.offsets)
        draws = [generator(part.seeds, 1, place) for place in part.places]
        share = self.train["decoder_mask_probability"]
        visible = torch.from_numpy(views(lengths, width, self.tokens.template, share, draws)).to(hidden.device)
        tokens = self.embeddings(self.inputs(part.texts)["input_ids"])
        decoded = self.decoder(vector + self.positions(width), torch.cat([vector, tokens[:, 1:]], 1), visible)
        mlm, decoder = self.predict(hidden, part.labels), self.predict(decoded, part.texts)
        return {"mlm": mlm.sum(), "decoder": decoder.sum()}

    def positions(self, width: int) -> Tensor:
        """p_0, …, p_N, shape (width, dim)."""
        table = self.embeddings.position_embeddings
        first = 0 if table.padding_idx is None else table.padding_idx + 1  # as the RoBERTa family counts
        made: Tensor = table.weight[first : first + width]
        return made
