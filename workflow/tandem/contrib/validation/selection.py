"""Read the values of checkpoints' validations, and find the best. Pages use this module, so it imports no torch."""

import json
from collections.abc import Sequence

from tandem.errors import UserError
from tandem.stages import declaration
from tandem.stages.base import Json
from tandem.store.artifact import Artifact


def read_validation_value(validation: Artifact) -> tuple[str, float]:
    """Return the measure of a validation and its mean over queries; a `UserError` if it has several measures."""
    means = read_statistics(validation)["mean"]
    if len(means) != 1:
        raise UserError(
            f"{validation.folder}: has the measures {', '.join(means)}; a validation of a checkpoint has one"
        )
    ((measure, value),) = means.items()
    return str(measure), float(value)


def read_statistics(validation: Artifact) -> Json:
    """Return the statistics of a validation, with its mean and its number of queries."""
    statistics: Json = json.loads(validation.path("statistics.json").read_text(encoding="utf-8"))
    return statistics


def read_worth(validation: Artifact) -> float:
    """Return a validation's value, turned so that higher is better."""
    value = read_validation_value(validation)[1]
    return -value if declaration(validation.kind).lower_is_better else value


def find_best(worths: Sequence[float]) -> int:
    """Return the index of the highest value, the first of equal ones."""
    return max(range(len(worths)), key=worths.__getitem__)
