"""What the scores of a cross-encoder used as a judge mean; its training decides."""

from tandem.stages.base import Json


def has_learned_probabilities(train: Json) -> bool:
    """Return whether a training teaches absolute probabilities, and not only the order of lists.

    The pointwise loss on labels does; a teacher's scores, from which `distil` learns as well, may have no zero.

    Args:
        train: parameters `train` of a cross-encoder's or a joint model's stage.
    """
    loss = train["supervision"] if "supervision" in train else train["loss"]
    return bool(loss == "pointwise" and not train.get("distil"))
