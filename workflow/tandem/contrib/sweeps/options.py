"""Sweeps: the keys of an entry of `sweeps`, and of a file of config/sweeps/."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from tandem.config.base import Distinct, Items, Section, Seed, not_empty, problem


class PrintedPoint(Section):
    """The value that a paper prints at a point of a sweep."""

    point: dict[str, object] = Field(description="dotted path → value")
    system: str = Field(description="one of the sweep's systems")
    measure: str = Field(description="as ir-measures names it")
    value: float = Field(description="in percent; gains and counts (DCG@k, NumRet) as they are")
    source: str = Field(description="table or figure of the paper")


def _grid(grid: dict[str, list[object]]) -> dict[str, list[object]]:
    if not grid:
        raise problem(" is empty; name a path and its values")
    for path, values in grid.items():
        if not values:
            raise problem(f".{path} is []; name at least one value")
    return grid


def _named_runs(value: Any) -> Any:
    is_list = isinstance(value, list | tuple) and all(isinstance(run, str) for run in value)
    return {run: run for run in value} if is_list else value


Grid = Annotated[dict[str, list[object]], AfterValidator(_grid)]
_runs = BeforeValidator(_named_runs, json_schema_input_type=list[str] | dict[str, str])
Systems = Annotated[dict[str, str], AfterValidator(not_empty), _runs]


class Sweep(Section):
    """The same systems at every point of a grid over the configuration's values; an entry of `sweeps`."""

    title: str | None = Field(None, description="null: the sweep's name")
    grid: Grid = Field(
        description="dotted path of this configuration → values; every combination is a point"
    )
    with_: dict[str, object] = Field(
        {}, alias="with", description="dotted path → value, the same at every point"
    )
    seeds: Distinct[Seed] | None = Field(
        None, description="each point once per seed; null: the configuration's"
    )
    seeds_at: str = Field(
        "seed", description="path of the seeds; models.<name>.train.seed keeps the model's start"
    )
    systems: Systems = Field(description="runs, or name → run")
    measures: Items[str] | None = Field(None, min_length=1, description="null: all that are scored")
    baseline: dict[str, object] | None = Field(
        None, description="path → value of the reference point; null: the first"
    )
    x: str | None = Field(
        None, description="path of the plot's axis; null: the first of the grid with several values"
    )
    scale: Literal["linear", "log"] = Field("linear", description="of the plot's axis")
    dataset: str | None = Field(None, description="null: the configuration's")
    split: str | None = Field(None, description="null: the split whose scores are reported")
    note: str = Field("", description="text below the plot")
    printed: Items[PrintedPoint] = Field((), description="what a paper prints at some points")
    belongs_to: Items[str] = Field(
        (), description="of config/sweeps/: shipped configurations for which it is made"
    )
