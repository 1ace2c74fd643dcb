"""Measures that a configuration names: each must be one that can be computed."""

from collections.abc import Iterator
from typing import Any

from tandem.errors import UserError


def check(config: dict[str, Any]) -> list[str]:
    """A line for every measure that is none, naming its key.

    Layouts and sweeps are not looked at: what they show must be among the measures that are scored.
    """
    # Imported here: a plan is asked for often, and this brings numerical libraries.
    from tandem.evaluation.measures import parse_measures

    wrong = []
    for path, names in _named(config):
        try:
            parse_measures(names)
        except UserError as error:
            wrong.append(f"{path}: {str(error).removeprefix('measures: ')}")
    return wrong


def _named(config: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The keys that name measures, and what they name."""
    score = config["score"]
    yield "score.usual", score["usual"]
    if score["measures"]:
        yield "score.measures", score["measures"]
    yield "bm25.tune.measure", [config["bm25"]["tune"]["measure"]]
    yield "validation.measure", [config["validation"]["measure"]]
    for name, spec in config["fusions"].items():
        yield f"fusions.{name}.tune.measure", [spec["tune"]["measure"]]
    for name, spec in config["datasets"].items():
        if spec.get("measures"):
            yield f"datasets.{name}.measures", spec["measures"]
    for name, spec in config["models"].items():
        if measure := (spec.get("validation") or {}).get("measure"):
            yield f"models.{name}.validation.measure", [measure]
