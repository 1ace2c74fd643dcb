"""What the scores of a cross-encoder that judges mean, by how it was trained."""

from tandem.stages.base import Json


def has_learned_probabilities(train: Json) -> bool:
    """Return whether a training teaches what probability is enough, and not only to order lists.

    The pointwise loss on labels does; a teacher's scores, which `distil` learns as well, may have no zero.

    Args:
        train: a cross-encoder's or a joint model's, as their stages have it.
    """
    loss = train["supervision"] if "supervision" in train else train["loss"]
    return bool(loss == "pointwise" and not train.get("distil"))
