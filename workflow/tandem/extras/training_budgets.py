"""What a budget of minutes pays for: steps and validations. Estimates need it, without torch."""

from tandem.config.training import CrossTrain, JointTrain, Train

# The rate by which a training's budget in minutes is counted, on every machine, so that one budget always means the
# same steps: it is the rate of two cores with only AVX2, and half that of two cores with AVX-512 and bf16.
# `tandem estimate` shows this machine's rate.
OPERATIONS_PER_SECOND = 0.18e12
_MOST_EPOCHS = 20  # visits of a list, after which more of the same teach little
USUAL_VALIDATIONS = 10  # of a training, in addition to the one at its start, unless configured
_SHARE_FOR_VALIDATIONS = 1 / 3  # of a budget


def fit_steps(minutes: float, operations: float, instances: int, per_batch: int) -> int:
    """Return the steps, of `operations` each, that a budget pays for: at least one, and at most `_MOST_EPOCHS` epochs.

    Neither a clock nor the machine's speed counts, so that a training is the same wherever it runs.

    >>> fit_steps(minutes=1, operations=0.18e12, instances=3200, per_batch=32)
    60
    >>> fit_steps(minutes=1, operations=0.18e12, instances=64, per_batch=32)  # twenty epochs of two steps
    40
    """
    affordable = minutes * 60 * OPERATIONS_PER_SECOND / max(operations, 1)
    useful = _MOST_EPOCHS * instances / per_batch
    return max(1, int(min(affordable, useful)))


def fit_validations(minutes: float, operations: float) -> tuple[int, float]:
    """Return how often a training validates after its start, and the minutes of its budget that are left for steps.

    A third of the budget pays for validations of `operations` each: at least one, at the end, and at most
    `USUAL_VALIDATIONS`. Where the third is too small, they take up to half of the budget; the rest comes on top.
    """
    minutes_each = operations / 60 / OPERATIONS_PER_SECOND
    if not minutes_each:
        return USUAL_VALIDATIONS, minutes
    # the validation at the start is paid for as well
    affordable = minutes * _SHARE_FOR_VALIDATIONS / minutes_each - 1
    count = int(min(max(affordable, 1), USUAL_VALIDATIONS))
    return count, minutes - min((count + 1) * minutes_each, minutes / 2)


def count_added_passages(train: Train, lists: int) -> int:
    """Return how many passages `in_batch` adds to each list where pairs are read: a positive of each other list."""
    if not isinstance(train, CrossTrain | JointTrain) or not train.in_batch:
        return 0
    return min(train.queries_per_batch, lists) - 1
