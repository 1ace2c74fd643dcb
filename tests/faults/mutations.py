"""Configurations with something wrong in them: any place of the schema, any value that YAML can hold."""

import copy
import datetime
import json
from pathlib import Path

import yaml
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tiny_project import put

from tandem.config.base import Section
from tandem.config.encoders import PublishedEncoder
from tandem.config.loading import load_settings
from tandem.config.parsing import branches
from tandem.config.settings import Settings

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "config/schema/configuration.json").read_text())
DEFAULT = yaml.safe_load((ROOT / "config/config.yaml").read_text())
FULL = load_settings(DEFAULT, ROOT)
DEEP: list = []
for _ in range(400):
    DEEP = [DEEP]

# What YAML files hold by mistake or by malice; dates, bytes and sets are YAML's own types.
NASTY = [
    None, True, False, -1, 0, 1, 2**63, 10**400, 1e308, float("nan"), float("inf"), -0.0,
    "", " ", "null", "1e999", "nan", "0x10", "../../etc/passwd", "/etc/passwd", "a\0b", "a\nb", "😀",
    "; touch x", "$(touch x)", "`touch x`", "' \" \\", "{output}", "{wildcards.key}", "--out",
    "é" * 300, "x" * 100_000, "a+b+c", "a@b@c", "+", "@", "-",
    [], [[]], [None], ["a", 1, {}], {}, {"": ""}, {"a": {"b": {"c": 1}}}, {"a\nb": 1}, DEEP,
    datetime.date(2026, 1, 1), b"bytes", {"set"}, {1: 2, None: 3},
]  # fmt: skip


def places() -> list[tuple[str, ...]]:
    """Paths of all keys, with the models, datasets and encoders of the default."""
    paths = []

    def walk(at: tuple[str, ...], section: type[Section]) -> None:
        """Note the keys of a section and of those in it."""
        for name, field in section.model_fields.items():
            paths.append(place := (*at, field.alias or name))
            for branch in branches(field.annotation):
                if isinstance(branch, type) and issubclass(branch, Section):
                    walk(place, branch)

    walk((), Settings)
    for name, model in FULL.models.items():
        paths.append(("models", name))
        walk(("models", name), type(model))
    for entry in (
        "source",
        "path",
        "split",
        "language",
        "relevance",
        "score_split",
        "packages",
        "of",
    ):
        paths.append(("datasets", "pydocs", entry))
    paths += [("encoders", "mine", name) for name in PublishedEncoder.model_fields]
    paths += [("sparse", "mine", name) for name in ("engine", "k1", "rm3", "fields")]
    paths += [("indexes", "mine", name) for name in ("type", "nlist", "m", "bits")]
    paths += [("fusions", "mine", name) for name in ("of", "method", "k", "weights")]
    paths += [
        ("models", "mine", "like"),
        ("models", "../mine", "like"),
        ("datasets", "..", "source"),
        ("recipes",),
    ]
    paths += [
        ("sweeps", "mine", name)
        for name in ("grid", "systems", "seeds", "x", "with", "seeds_at", "baseline")
    ]
    return sorted(set(paths))


def unfit(config: dict) -> bool:
    """Whether the schema for editors refuses a value that is not a text, so that the plan must refuse it too.

    Text may become what the schema needs.
    """
    errors = Draft202012Validator(SCHEMA).iter_errors(config)
    return any(
        not (
            has_text(error.instance)
            if error.validator == "anyOf"
            else isinstance(error.instance, str)
        )
        for error in errors
    )


def has_text(value: object) -> bool:
    """Whether a value is text or holds some."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            return True
        waiting += (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
    return False


@st.composite
def broken(draw) -> dict:
    """The default configuration with one to three places changed, or a key that nobody knows."""
    config = copy.deepcopy(DEFAULT)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(PLACES))
        if draw(st.integers(0, 5)) == 0:
            at = (
                *at[:-1],
                draw(st.sampled_from(["lrr", "", "a.b", "Δ", "x" * 300, "depht", "a\nb"])),
            )
        put(config, at, copy.deepcopy(draw(st.sampled_from(NASTY))))
    return config


PLACES = places()
