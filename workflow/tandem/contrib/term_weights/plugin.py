"""Representations that weigh terms by layers of their own, and the loss that teaches a token's weight."""

from tandem.config.losses import OwnLoss, register_own_loss
from tandem.config.representations import register_representation
from tandem.contrib.term_weights.options import SpadeTerms, UniCoilTerms, WinnersTakeAll

for representation in (UniCoilTerms, WinnersTakeAll, SpadeTerms):
    register_representation(representation)

register_own_loss(
    "term_recall",
    OwnLoss(
        "contrib.term_weights.term_objectives:TermRecall",
        "weights of tokens",
        UniCoilTerms(queries="tokens"),
        "the weights of passages' tokens alone; set representation: {type: unicoil, queries: tokens}",
    ),
)
