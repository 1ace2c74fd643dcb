"""TSDAE (Wang, Reimers & Gurevych 2021)."""

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tandem.contrib.pretraining.masking import delete_tokens, make_generator
from tandem.contrib.pretraining.objectives import Separable
from tandem.contrib.pretraining.options import TsdaeTrain
from tandem.errors import UserError
from tandem.models.ragged import Ids, Ragged
from tandem.training.forward import Seeds


def make_decoder(encoder: Any) -> Any:
    """Return a decoder of an encoder's family that shares the encoder's weights and also attends to other states.

    The weights of this cross-attention are the decoder's own, and random.

    Raises:
        UserError: the family has no decoder.
    """
    from transformers import AutoModel

    config = copy.deepcopy(encoder.config)
    config.is_decoder = True
    config.add_cross_attention = True
    config.use_cache = False
    decoder = AutoModel.from_config(config)
    if not any("crossattention" in name for name, _ in decoder.named_modules()):
        raise UserError(
            f"objective tsdae needs an encoder that is a decoder, too, as BERT is; {config.model_type} is none"
        )
    if getattr(decoder, "pooler", None) is not None:
        decoder.pooler = None
    shared = dict(encoder.named_parameters())
    for path, _ in list(decoder.named_parameters()):
        if path in shared:
            module, _, name = path.rpartition(".")
            setattr(decoder.get_submodule(module), name, shared[path])
    return decoder


class Tsdae(Separable[TsdaeTrain]):
    """-log p(x_t | h(x̃), x_1 … x_{t-1}), averaged over the tokens of a passage x.

    The denoising auto-encoder of Wang, Reimers and Gurevych (2021, Eq. 1): x̃ is x without `deletion_probability` of
    its tokens, h is its vector, and a decoder restores x from left to right, by softmax(E · head(state)) with E the
    encoder's embeddings. The decoder has the encoder's layers and shares their weights; in addition, every layer has a
    cross-attention of its own, whose only key is h (§3.1). A first token with no token before it is predicted from h.
    """

    names = ("loss",)
    hides_tokens: ClassVar[bool] = False

    def further(self) -> dict[str, nn.Module]:
        """Return the decoder."""
        self.decoder = make_decoder(self.encoder)
        return {"decoder": self.decoder}

    def draw(self, texts: Ragged, seeds: Seeds) -> tuple[Ragged, ...]:
        """Return the texts without the deleted tokens."""
        return (delete_tokens(texts, self.train.deletion_probability, make_generator(seeds)),)

    def terms(
        self, texts: Ragged, drawn: list[Ragged], places: Ids, seeds: Seeds
    ) -> dict[str, Tensor]:
        """See `Separable`."""
        [damaged] = drawn
        inputs = self.inputs(damaged)
        vector = self.vector(self.encoder(**inputs).last_hidden_state, inputs)
        complete = self.inputs(texts)
        states = self.decoder(**complete, encoder_hidden_states=vector).last_hidden_state
        # a state predicts the next token
        before = torch.cat([vector.to(states.dtype), states[:, :-1]], 1)
        return {"restored": self.predict(before, texts).sum()}
