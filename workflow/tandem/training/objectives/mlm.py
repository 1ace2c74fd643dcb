"""Masked language modelling."""

from torch import Tensor

from tandem.training.objectives.pretraining import Part, Separable


class Mlm(Separable):
    """-log p(x_i | the passage with `mask_probability` of its tokens hidden), averaged over the hidden tokens.

    BERT's objective (Devlin et al. 2019 §3.1) without next-sentence prediction.
    """

    names = ("mlm",)

    def terms(self, part: Part) -> dict[str, Tensor]:
        """See `Separable`."""
        hidden = self.encoder(**self.inputs(part.seen)).last_hidden_state
        return {"mlm": self.predict(hidden, part.labels).sum()}
