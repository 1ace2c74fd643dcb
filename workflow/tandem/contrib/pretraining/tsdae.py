"""TSDAE (Wang, Reimers & Gurevych 2021)."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from tandem.contrib.pretraining.layers import Block
from tandem.contrib.pretraining.masking import delete_tokens, make_generator
from tandem.contrib.pretraining.objectives import Separable
from tandem.contrib.pretraining.options import TsdaeTrain
from tandem.models.ragged import Ids, Ragged
from tandem.training.forward import Seeds


class Tsdae(Separable[TsdaeTrain]):
    """-log p(x_t | h(x̃), x_1 … x_{t-1}), averaged over the tokens of a passage x.

    The denoising auto-encoder of Wang, Reimers and Gurevych (2021, Eq. 1): x̃ is x without `deletion_probability` of
    its tokens, h its vector, and a decoder of `decoder_layers` restores x from left to right, by
    softmax(E · head(state)) with E the encoder's embeddings. Two things are not the paper's: its decoder has the
    encoder's layers and shares their weights; and there every layer attends to h by a part of its own, where here h
    stands before the tokens, so that every layer attends to it beside them.
    """

    names = ("loss",)
    hides_tokens: ClassVar[bool] = False

    def further(self) -> dict[str, nn.Module]:
        """Return the decoder."""
        self.embeddings = self.embedder("tsdae")
        self.decoder = nn.ModuleList(
            Block(self.encoder.config) for _ in range(self.train.decoder_layers)
        )
        return {"decoder": self.decoder}

    def draw(self, texts: Ragged, seeds: Seeds) -> tuple[Ragged, ...]:
        """Return the texts without what is deleted."""
        return (delete_tokens(texts, self.train.deletion_probability, make_generator(seeds)),)

    def terms(
        self, texts: Ragged, drawn: list[Ragged], places: Ids, seeds: Seeds
    ) -> dict[str, Tensor]:
        """See `Separable`."""
        [damaged] = drawn
        inputs = self.inputs(damaged)
        vector = self.vector(self.encoder(**inputs).last_hidden_state, inputs)
        tokens = self.embeddings(self.inputs(texts)["input_ids"])
        # The vector stands before the first token: position i sees it and the tokens before i, and predicts token i.
        hidden = torch.cat([vector, tokens], 1)
        width = hidden.shape[1]
        earlier = torch.ones(width, width, dtype=torch.bool, device=hidden.device).tril()[None]
        for block in self.decoder:
            hidden = block(hidden, hidden, earlier)
        return {"restored": self.predict(hidden[:, :-1], texts).sum()}
