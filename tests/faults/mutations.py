"""Configurations with something wrong in them: any place of the schema, any value that YAML can hold."""

import copy
import datetime
from pathlib import Path

import yaml
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tandem.planning.schema import resolve, typed
from tiny_project import put

from tandem.config.loading import load_settings, schemas

ROOT = Path(__file__).parents[2]
SCHEMA, _ = schemas(ROOT)
DEFAULT = yaml.safe_load((ROOT / "config/config.yaml").read_text())
FULL = load_settings(copy.deepcopy(DEFAULT), ROOT)
DEEP: list = []
for _ in range(400):
    DEEP = [DEEP]

# What YAML files hold by mistake or by malice; dates, bytes and sets are YAML's own types.
NASTY = [
    *(None, True, False, -1, 0, 1, 2**63, 10**400, 1e308, float("nan"), float("inf"), -0.0),
    *("", " ", "null", "1e999", "nan", "0x10", "../../etc/passwd", "/etc/passwd", "a\0b", "a\nb", "😀"),
    *("; touch x", "$(touch x)", "`touch x`", "' \" \\", "{output}", "{wildcards.key}", "--out"),
    *("é" * 300, "x" * 100_000, "a+b+c", "a@b@c", "+", "@", "-"),
    *([], [[]], [None], ["a", 1, {}], {}, {"": ""}, {"a": {"b": {"c": 1}}}, {"a\nb": 1}, DEEP),
    *(datetime.date(2026, 1, 1), b"bytes", {"set"}, {1: 2, None: 3}),
]  # fmt: skip


def places() -> list[tuple[str, ...]]:
    """Paths of everything that the schema names, with the models, datasets and encoders of the default."""
    found = []

    def walk(at: tuple[str, ...], schema: dict) -> None:
        """Note a place and those below it."""
        schema = resolve(schema, SCHEMA)
        if at:
            found.append(at)
        for name, inner in schema.get("properties", {}).items():
            walk((*at, name), inner)

    walk((), SCHEMA)
    for name, spec in FULL["models"].items():
        walk(("models", name), {"$ref": f"#/$defs/{spec['objective']}"})
    for entry in ("source", "path", "split", "language", "relevance", "score_split", "packages", "of"):
        found.append(("datasets", "pydocs", entry))
    found += [("encoders", "mine", name) for name in SCHEMA["$defs"]["encoder"]["properties"]]
    found += [("sparse", "mine", name) for name in ("engine", "k1", "rm3", "fields")]
    found += [("indexes", "mine", name) for name in ("type", "nlist", "m", "bits")]
    found += [("fusions", "mine", name) for name in ("of", "method", "k", "weights")]
    found += [("models", "mine", "like"), ("models", "../mine", "like"), ("datasets", "..", "source"), ("recipes",)]
    found += [("sweeps", "mine", name) for name in ("grid", "systems", "seeds", "x", "with", "seeds_at", "baseline")]
    return sorted(set(found))


def unfit(config: dict) -> bool:
    """Whether the schema of the configuration's upper part refuses it, so that the plan must."""
    return not Draft202012Validator(SCHEMA).is_valid(typed(config, SCHEMA, SCHEMA))


@st.composite
def broken(draw) -> dict:
    """The default configuration with one to three places changed, or a key that nobody knows."""
    config = copy.deepcopy(DEFAULT)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(PLACES))
        if draw(st.integers(0, 5)) == 0:
            at = (*at[:-1], draw(st.sampled_from(["lrr", "", "a.b", "Δ", "x" * 300, "depht", "a\nb"])))
        put(config, at, copy.deepcopy(draw(st.sampled_from(NASTY))))
    return config


PLACES = places()
