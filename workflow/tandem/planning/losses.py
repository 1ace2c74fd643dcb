"""Whether a loss takes the options that a configuration sets: one set and not used would be a silent mistake."""

from typing import Any

from tandem.config.losses import options
from tandem.errors import UserError

# Option → the losses that take it. 1.0 is every option's default.
OPTIONS = {option: tuple(losses) for option, losses in options().items()}


def check(at: str, train: dict[str, Any]) -> None:
    """A `UserError` if `train` or `train.distil` sets an option that none of its losses takes.

    Args:
        at: the model's dotted path.
        train: its typed `train` entry.
    """
    scopes = [(f"{at}.train", train), (f"{at}.train.distil", train.get("distil") or {})]
    for where, told in scopes:
        losses = [told[key] for key in ("loss", "supervision", "semantics") if isinstance(told.get(key), str)]
        for option, takers in OPTIONS.items():
            if told.get(option, 1.0) != 1.0 and not set(losses) & set(takers):
                raise UserError(
                    f"{where}.{option} is {told[option]}, but {' or '.join(losses)} takes none; "
                    f"used by {', '.join(takers)}"
                )
