"""LexMAE (Shen et al. 2023)."""

import numpy as np
import torch
from torch import Tensor, nn

from tandem.contrib.pretraining.layers import Block, LanguageHead
from tandem.contrib.pretraining.masking import IGNORED, make_generator
from tandem.contrib.pretraining.objectives import Masked
from tandem.contrib.pretraining.options import LexMaeTrain
from tandem.models.ragged import Ids, Ragged
from tandem.training.forward import Seeds


def lexicon_bottleneck(highest: Tensor, embeddings: Tensor) -> Tensor:
    """b = a · W with a = softmax(max_i logits_i), the importance of every term of the vocabulary for a passage.

    No gradient reaches W, the embeddings.

    Args:
        highest: max_i logits_i over a passage's own tokens, shape (passages, vocabulary).
        embeddings: shape (vocabulary, dim).
    Returns:
        Shape (passages, dim).
    """
    weights = embeddings.detach()
    return highest.softmax(-1).to(weights.dtype) @ weights


class LexMae(Masked[LexMaeTrain]):
    """L = L_mlm + L_dec (Shen et al. 2023): a bottleneck of words instead of a vector.

    L_mlm: the encoder predicts its own hidden tokens (`mask_probability`). L_dec: `decoder_layers` transformer layers
    over [b; embeddings of the decoder's input] predict the tokens that are hidden from the decoder
    (`decoder_mask_probability`), where b is `lexicon_bottleneck` of the encoder's logits. Tokens that are hidden from
    the encoder are hidden from the decoder, too, and count in its share, as by default in the authors' code
    (`--dec_mlm_overlap inclusive`). The decoder has a head of its own, which shares only the embeddings. Each loss is
    averaged over a passage's hidden tokens. The encoder is saved with its head, from which sparse encoders start.
    """

    names = ("loss", "mlm", "decoder")

    def further(self) -> dict[str, nn.Module]:
        """Return the decoder and its head."""
        self.embeddings = self.embedder("lex_mae")
        self.decoder = nn.ModuleList(
            Block(self.encoder.config) for _ in range(self.train.decoder_layers)
        )
        self.decoder_head = LanguageHead(self.encoder)
        return {"decoder": self.decoder, "decoder_head": self.decoder_head}

    def draw(self, texts: Ragged, seeds: Seeds) -> tuple[Ragged, ...]:
        """Return the encoder's input and labels, and the decoder's input and labels."""
        seen, labels = super().draw(texts, seeds)
        share, draw = self.train.decoder_mask_probability, make_generator(seeds, 1)
        of_decoder = self.vocabulary.hide(texts, share, draw, always=labels.ids != IGNORED)
        return seen, labels, *of_decoder

    def terms(
        self, texts: Ragged, drawn: list[Ragged], places: Ids, seeds: Seeds
    ) -> dict[str, Tensor]:
        """See `Separable`."""
        seen, labels, decoder_seen, decoder_labels = drawn
        hidden = self.encoder(**self.inputs(seen)).last_hidden_state
        embeddings = self.encoder.get_input_embeddings().weight
        present = self.align(Ragged(texts.ids.astype(np.int64), texts.offsets), hidden) != IGNORED
        highest = self.head.find_highest(hidden, present, embeddings)
        bottleneck = lexicon_bottleneck(highest, embeddings)
        inputs = self.inputs(decoder_seen)
        tokens = self.embeddings(inputs["input_ids"])
        decoded = torch.cat([bottleneck[:, None].to(tokens.dtype), tokens[:, 1:]], 1)
        visible = inputs["attention_mask"][:, None].bool()
        for block in self.decoder:
            decoded = block(decoded, decoded, visible)
        restored = self.decoder_head(decoded, self.align(decoder_labels, decoded), embeddings)
        return {"mlm": self.predict(hidden, labels).sum(), "decoder": restored.sum()}
