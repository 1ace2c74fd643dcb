"""Find what distillation losses read of a teacher's scores from their declarations, without importing torch."""

import re

from tandem.config.losses import READS, distillation
from tandem.errors import UserError, nearest

READING_ORDERS = ("order", "pairs")  # what a loss reads if an order is enough for it
_KNOWN = ("scores", "scale", "logits", *READING_ORDERS)


def find_what_is_read(loss: str) -> str:
    """Return what a loss reads of a teacher's scores, see `DistillationLosses`; empty if a plugin does not declare it.

    A loss of Tandem's own that does not declare it reads scores.

    >>> find_what_is_read("kl"), find_what_is_read("listmle"), find_what_is_read("margin_mse")
    ('scores', 'order', 'scale')
    """
    source = distillation.own_sources.get(loss)
    if source is not None:
        text = source.read_text(encoding="utf-8")
        declared = re.search(rf'^@distillation\("{loss}", reads="(\w+)"\)', text, re.MULTILINE)
        return declared[1] if declared else "scores"
    what = READS[loss]
    if what and what not in _KNOWN:
        raise UserError(f"distillation loss {loss} reads {what}{nearest(what, _KNOWN)}")
    return what


def list_losses(*reading: str) -> list[str]:
    """Return the names of the losses that read any of these of a teacher's scores.

    >>> list_losses("scale")
    ['mse', 'margin_mse']
    """
    return [loss for loss in distillation if find_what_is_read(loss) in reading]
