"""Choose how many queries of each split a first experiment takes: all, unless they cost too much.

Searching for a query costs little. But re-ranking by cross-encoders may cost more than all trainings. So may the search
for negatives of training queries, most of which a training of some minutes never visits. The estimate decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from tandem import ROOT
from tandem.cluster.progress import format_duration
from tandem.config.merging import Raw, gathered, merged
from tandem.contrib.init.configuration import Choices, compose_configuration
from tandem.errors import UserError
from tandem.extras.estimate.estimate import Cost, estimate_stages, new_setting
from tandem.extras.estimate.resources import Hardware
from tandem.extras.plan import FullPlan
from tandem.plan.graph import Stage, upstream_first
from tandem.stages import KINDS

# The time that a split's queries beyond the fewest may take, as a share of the time of everything with the fewest
# queries. Scored queries may take more: with more of them, smaller differences are significant.
SCORED_SHARE, OTHER_SHARE = 0.5, 0.1
ALLOWED_SECONDS = 300.0  # this long is always allowed
SAID_SECONDS = 60.0  # less time is not worth a line


@dataclass(frozen=True)
class Limit:
    """How many queries of a split are taken.

    Attributes:
        count: how many the collection has.
        fewest: how many are taken in any case.
        most: how many are taken; None: all.
        seconds: how much longer everything takes with all queries than with the fewest; None if unknown.
        cause: the work that takes longer with all queries.
    """

    split: str
    count: int
    fewest: int
    most: int | None
    seconds: float | None
    cause: str

    @property
    def reason(self) -> str:
        """Return the reason for the number."""
        if self.seconds is None:
            return "what all would cost is not known"
        return f"{self.cause} takes {format_duration(self.seconds)} longer for all than for {self.fewest:,}"

    def __str__(self) -> str:
        """Return the number of queries and the reason for it."""
        taken = (
            f"all {self.count:,}" if self.most is None else f"{self.most:,} of the {self.count:,}"
        )
        return f"{taken} of {self.split}; {self.reason}"


def choose_limits(choices: Choices) -> dict[str, Limit]:
    """Choose how many queries are taken of each split that has more than the fewest and takes noticeable time."""
    counts, fewest = choices.collection.queries, dict(choices.fitting.queries)
    if not choices.experiment.trains:
        del fewest["train"]
    smallest = {split: most for split, most in fewest.items() if counts.get(split, 0) > most}
    if not smallest:
        return {}
    scored = "test" if "test" in counts else "dev"
    causes = {"train": "the search for negatives", "dev": "choosing checkpoints"}
    causes[scored] = "re-ranking" if choices.experiment.trains else "searching"
    try:
        costs = _estimate(choices, smallest)
        everything = sum(cost.wall for cost in costs.values())
        limits = {}
        for split, few in smallest.items():
            others = {other: most for other, most in smallest.items() if other != split}
            longer = _sum_without_trainings(_estimate(choices, others)) - _sum_without_trainings(
                costs
            )
            share = SCORED_SHARE if split == scored else OTHER_SHARE
            allowed = max(ALLOWED_SECONDS, share * everything)
            most = None
            if longer > allowed:
                most = few + round_down((counts[split] - few) * allowed / longer)
            if longer > SAID_SECONDS:
                limits[split] = Limit(split, counts[split], few, most, longer, causes[split])
        return limits
    except UserError:  # the sizes of an encoder that the first run fetches
        return {
            split: Limit(split, counts[split], few, few, None, causes[split])
            for split, few in smallest.items()
        }


def round_down(number: float) -> int:
    """Return a number with its first two digits, followed by zeros."""
    digits = str(int(number))
    return int(digits[:2].ljust(len(digits), "0"))


def estimate_tables(config: Raw, choices: Choices, *tables: str) -> list[dict[Stage, Cost]]:
    """Return the costs of the stages behind each table; lower bounds if the corpus was not read to its end.

    Raises:
        UserError: the sizes of the encoder are not known.
    """
    if not choices.collection.whole:
        counts = {"passages": choices.collection.passages}
        config = merged(config, {"datasets": {choices.name: {"counts": counts}}})
    plan = FullPlan(config, ROOT)
    machine = Hardware.load_scaled(ROOT / "config/hardware", plan.settings.execution.hardware)
    setting = new_setting(plan.settings, machine)
    stages = (upstream_first([stage for _, stage in plan.tables[table]]) for table in tables)
    return [estimate_stages(of_table, setting, machine) for of_table in stages]


def _estimate(choices: Choices, queries: Mapping[str, int]) -> dict[Stage, Cost]:
    """Return the costs of everything with at most `queries` of some splits."""
    config = merged(gathered([], ROOT), yaml.safe_load(compose_configuration(choices, queries)))
    return estimate_tables(config, choices, choices.experiment.table)[0]


def _sum_without_trainings(costs: Mapping[Stage, Cost]) -> float:
    """Return the seconds of all stages except the trainings, whose minutes are fixed."""
    return sum(cost.wall for stage, cost in costs.items() if not KINDS[stage.kind].ranks)
