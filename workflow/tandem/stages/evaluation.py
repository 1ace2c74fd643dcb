"""Scores of runs."""

from pydantic import Field

from tandem.plugins import Declarations
from tandem.stages.base import Entry, Kind, Params

# Measures whose values follow from the top k only; the others also need the number of all relevant passages.
OF_THE_TOP = ("Success", "RR", "P")
# Providers of ir_measures, by name, that are tried before its own; packages register them.
MEASURE_PROVIDERS: Declarations[Entry] = Declarations()


class ScoreParams(Params):
    """What is measured; the scores of a group of datasets have `members` instead of a run."""

    measures: tuple[str, ...] = Field(
        min_length=1, description="names of ir_measures, such as RR@10"
    )
    split: str = Field("", description="whose queries are scored; a group's members have their own")
    ignore_identical_ids: bool = Field(
        False, description="drop the result whose document id is the query's (BEIR)"
    )
    members: tuple[str, ...] | None = Field(
        None, description="datasets of a group, whose means are averaged"
    )


KINDS = (
    Kind("score", "evaluation.scores:run", ScoreParams, box="Scores", holds="scores", is_packed=True, verb="scoring"),
)  # fmt: skip
