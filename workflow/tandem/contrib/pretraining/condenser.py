"""Condenser (Gao & Callan 2021)."""

from torch import Tensor, nn

from tandem.contrib.pretraining.objectives import CondenserHead, Masked
from tandem.contrib.pretraining.options import CondenserTrain
from tandem.models.encoding import pool_states
from tandem.models.ragged import Ids, Ragged
from tandem.training.forward import Seeds


class Condenser(Masked[CondenserTrain]):
    """L = L_head + L_mlm (Gao & Callan 2021, Eqs. 6 to 8, and §3.3).

    L_head: the hidden tokens of the passage, predicted by `head_layers` transformer layers over [h_late; early tokens]:
    the passage's vector and the token states after layer `skip_from` (None: half of the layers). L_mlm: the same
    tokens, predicted from the late token states. Both losses use one head, and each is averaged over a passage's hidden
    tokens. coCondenser (`cocondenser`) applies both to two spans of each passage, and draws the spans' vectors
    together.
    """

    names = ("loss", "mlm", "head")

    def further(self) -> dict[str, nn.Module]:
        """Return Condenser's head."""
        self.condenser = CondenserHead(self.encoder, self.train)
        return {"condenser": self.condenser}

    def terms(
        self, texts: Ragged, drawn: list[Ragged], places: Ids, seeds: Seeds
    ) -> dict[str, Tensor]:
        """See `Separable`."""
        seen, labels = drawn
        inputs = self.inputs(seen)
        states = self.encoder(**inputs, output_hidden_states=True)
        vectors = pool_states(
            states.last_hidden_state, inputs["attention_mask"], self.model.pooling
        )
        condensed = self.condenser(
            vectors, states.hidden_states, inputs["attention_mask"][:, None].bool()
        )
        return {
            "mlm": self.predict(states.last_hidden_state, labels).sum(),
            "head": self.predict(condensed, labels).sum(),
        }
