"""Parse names of measures, which are those of ir_measures. Planning imports this, so no numerical library is imported.

Packages add providers. The script gdeval is not used: queries whose ids end alike (`a-1`, `b-1`) are the same to it.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import ir_measures
from ir_measures import measures, providers

from tandem.errors import UserError, nearest
from tandem.stages.evaluation import MEASURE_PROVIDERS
from tandem.store.job import load

_COUNTS = ("NumQ", "NumRel", "NumRet")  # measures of ir_measures that are not shares


@cache
def collect_providers() -> providers.FallbackProvider:
    """Return the providers that compute measures: first those of packages, then ir_measures' own."""
    added = [load(entry)() for entry in MEASURE_PROVIDERS.values()]
    own = [
        provider for provider in ir_measures.DefaultPipeline.providers if provider.NAME != "gdeval"
    ]
    return providers.FallbackProvider([*added, *own])


def parse_measures(names: Sequence[str]) -> list[ir_measures.Measure]:
    """Return ir_measures' objects for names such as `RR@10`, `Success@1`, `nDCG@10`, `AP`, `P(rel=2)@5`.

    A `UserError` for an unknown measure, one without its cutoff, one that no installed provider computes, one that is
    listed twice, or one with a name that its results do not have (`MRR@10` or `RR(cutoff=10)` for `RR@10`).
    """
    parsed = [_parse(name) for name in names]
    if not parsed:
        raise UserError("measures: the list is empty; name at least one, such as RR@10")
    for at, measure in enumerate(parsed):
        if measure in parsed[:at]:
            raise UserError(
                f"measures: {names[at]} is {names[parsed.index(measure)]} again; each is listed once"
            )
    return parsed


@cache
def _list_computed() -> list[str]:
    """Return the names of the measures that an installed provider computes, whatever their parameters."""
    names: set[str] = set()
    for provider in collect_providers().providers:
        if provider.is_available():
            names |= {measure.NAME for measure in provider.SUPPORTED_MEASURES}
    return sorted(names - {"Accuracy"})


@cache
def _parse(name: str) -> ir_measures.Measure:
    provider = collect_providers()
    # MRR → RR, and RR → RR
    written = {alias: measure.NAME for alias, measure in measures.registry.items()}
    base, _, at = name.partition("@")
    base = base.split("(")[0]
    if base.lower() == "accuracy":  # that of ir_measures compares pairs of passages
        meant = f"Success@{at or 20}, the share of queries with a hit (top-k accuracy)"
        raise UserError(f"measures: {name}: did you mean {meant}?")
    own = written.get(base, base)
    if own != base:
        raise UserError(f"measures: {name} is written {name.replace(base, own, 1)} here")
    if base not in written:
        raise UserError(f"measures: {name} is not a measure{nearest(base, _list_computed())}")
    try:
        measure = ir_measures.parse_measure(name)
        supported = provider.supports(measure)
    except (AssertionError, ValueError, KeyError, TypeError):
        _require_provider(name, base)
        raise UserError(f"measures: {name} is malformed; write {_show_form(base)}") from None
    if not supported:
        _require_provider(name, base)
    cutoff = measure.params.get("cutoff", 1)
    lacks_cutoff = (
        not supported and "cutoff" in measure.SUPPORTED_PARAMS and "cutoff" not in measure.params
    )
    if lacks_cutoff or not isinstance(cutoff, int) or cutoff < 1:
        raise UserError(
            f"measures: {name} cannot be computed; give a cutoff of at least 1, as in {base}@10"
        )
    if not supported:
        problem = f"no installed provider of ir_measures computes {base} with these parameters"
        raise UserError(f"measures: {name} cannot be computed: {problem}; leave them out")
    if str(measure) != name:
        raise UserError(f"measures: {name} is written {measure} here")
    _require_grades(name, measure.params)
    return measure


def _require_grades(name: str, params: Mapping[str, Any]) -> None:
    """Refuse parameters that trec_eval misunderstands, or that make it fail."""
    if params.get("rel", 1) < 1:
        raise UserError(f"measures: {name}: rel is {params['rel']}; grades from 1 on are relevant")
    if not all(isinstance(gain, int) for gain in (params.get("gains") or {}).values()):
        raise UserError(f"measures: {name}: gains are whole numbers")
    recall = params.get("recall", 0.0)
    if recall != round(recall, 2) or not 0 <= recall <= 1:
        raise UserError(f"measures: {name}: give the recall from 0 to 1, with two decimals at most")


def _require_provider(name: str, base: str) -> None:
    """Refuse a measure that no installed provider computes, however it is written."""
    if base not in _list_computed():
        problem = f"no installed provider of ir_measures computes {base}"
        raise UserError(f"measures: {name} cannot be computed: {problem}; name another measure")


def _show_form(base: str) -> str:
    """Return how a measure is written: with a cutoff, without one, or either way."""
    if base == "IPrec":
        return "IPrec@0.5, with a recall"
    cutoff = measures.registry[base].SUPPORTED_PARAMS.get("cutoff")
    if cutoff is None:
        return f"{base}, which takes no cutoff"
    return f"{base}@10" if cutoff.required else f"{base}@10, or {base} without a cutoff"


@cache
def is_share(name: str) -> bool:
    """Return whether a measure is a share, which is shown in percent; gains and counts are shown as they are.

    A measure of a package states this by an attribute of this name.
    """
    collect_providers()  # the providers' modules register their measures
    try:
        measure = ir_measures.parse_measure(name)
    except (NameError, ValueError):  # one that only a paper prints
        return True
    return bool(getattr(measure, "is_share", measure.NAME not in _COUNTS))
