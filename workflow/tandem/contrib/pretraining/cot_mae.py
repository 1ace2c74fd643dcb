"""CoT-MAE (Wu et al. 2023)."""

import torch
from torch import Tensor, nn

from tandem.contrib.pretraining.layers import Block
from tandem.contrib.pretraining.masking import crop, make_generator
from tandem.contrib.pretraining.objectives import Separable
from tandem.contrib.pretraining.options import CotMaeTrain
from tandem.models.ragged import Ids, Ragged
from tandem.training.forward import Seeds


class CotMae(Separable[CotMaeTrain]):
    """L = L_mlm + L_dec (Wu et al. 2023, ConTextual Masked Auto-Encoder), averaged over both spans of each passage.

    Two random spans are cut out of each passage. L_mlm: the encoder predicts a span's own hidden tokens
    (`mask_probability`). L_dec: `decoder_layers` transformer layers over [h; embeddings of the other span], with h the
    first span's vector, predict the hidden tokens (`decoder_mask_probability`) of the *other* span; this is done in
    both directions. Both losses use one head, and each is averaged over a span's hidden tokens. The paper also takes
    neighbouring and overlapping spans.
    """

    names = ("loss", "mlm", "decoder")

    def further(self) -> dict[str, nn.Module]:
        """Return the decoder."""
        self.embeddings = self.embedder("cot_mae")
        self.decoder = nn.ModuleList(
            Block(self.encoder.config) for _ in range(self.train.decoder_layers)
        )
        return {"decoder": self.decoder}

    def draw(self, texts: Ragged, seeds: Seeds) -> tuple[Ragged, ...]:
        """Return four parts for each of the two spans: the encoder's input and labels, then the decoder's."""
        drawn: list[Ragged] = []
        for side in (0, 1):
            span = crop(texts, self.train, make_generator(seeds, side))
            drawn += self.vocabulary.hide(
                span, self.train.mask_probability, make_generator(seeds, 2, side)
            )
            drawn += self.vocabulary.hide(
                span, self.train.decoder_mask_probability, make_generator(seeds, 3, side)
            )
        return tuple(drawn)

    def terms(
        self, texts: Ragged, drawn: list[Ragged], places: Ids, seeds: Seeds
    ) -> dict[str, Tensor]:
        """See `Separable`."""
        spans = drawn[:4], drawn[4:]
        mlm, decoder = [], []
        for (seen, labels, *_), (*_, context, context_labels) in (spans, spans[::-1]):
            inputs = self.inputs(seen)
            hidden = self.encoder(**inputs).last_hidden_state
            mlm.append(self.predict(hidden, labels).sum())
            decoded = self.decode(self.vector(hidden, inputs), context)
            decoder.append(self.predict(decoded, context_labels).sum())
        return {"mlm": (mlm[0] + mlm[1]) / 2, "decoder": (decoder[0] + decoder[1]) / 2}

    def decode(self, vector: Tensor, seen: Ragged) -> Tensor:
        """Return the decoder's states, shape (passages, length, dim); its input is `vector`, then the tokens `seen`."""
        inputs = self.inputs(seen)
        hidden = torch.cat([vector, self.embeddings(inputs["input_ids"])[:, 1:]], 1)
        visible = inputs["attention_mask"][:, None].bool()
        for block in self.decoder:
            hidden = block(hidden, hidden, visible)
        return hidden
