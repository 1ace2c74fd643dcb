"""Pages generated from the models: JSON schemas for editors (config/schema/) and docs/configuration.md.

`make reference` writes them; a test compares them with the models.
"""

import json
from functools import cache, reduce
from inspect import getdoc
from operator import or_
from typing import Any, Literal, get_args, get_origin

from pydantic import Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo

from tandem.config.base import Choice, Section
from tandem.config.datasets import Dataset, sources
from tandem.config.encoders import ENCODER_SOURCES, PublishedEncoder, Reranker
from tandem.config.indexes import INDEXES, Index
from tandem.config.models import OBJECTIVES, TrainedModel
from tandem.config.parsing import NAMES, SIGNS, branches
from tandem.config.settings import Settings, added_blocks, catalogues, settings_model
from tandem.config.table_layouts import LAYOUT_FILES, Band
from tandem.config.training import Train
from tandem.plugins import load_contrib

Schema = dict[str, Any]  # a JSON schema that the program writes
# Base classes whose keys the reference lists once for all their subclasses, in addition to those of encoders' sources.
_COMMON: tuple[type[Section], ...] = (Dataset, TrainedModel, Train, Index)
_HEAD = """# All configuration keys

Generated from `workflow/tandem/config/` by `make reference`; do not edit.

With `# yaml-language-server: $schema=schema/configuration.json` as its first line (a path relative to the file) an
editor checks and completes a configuration.

An absent key has its default; *required* keys have none. `null` is allowed where a type says so.
"""


@cache
def list_entries() -> dict[str, tuple[type[Section], ...]]:
    """Return the blocks of the configuration whose entries are of several classes, with these classes."""
    load_contrib()
    made = [model for source in ENCODER_SOURCES.values() for model in source.models.values()]
    return {
        "models": tuple(OBJECTIVES.values()),
        "datasets": tuple(sources().values()),
        "encoders": (PublishedEncoder, *made),
        "indexes": tuple(INDEXES.values()),
        "rerankers": (Reranker,),
        **{
            name: tuple(dict.fromkeys(block.classes.values()))
            for name, block in added_blocks().items()
        },
    }


def list_files() -> dict[str, tuple[type[Section], str]]:
    """Return the files that a user may write on their own; see `LAYOUT_FILES`."""
    load_contrib()
    return dict(LAYOUT_FILES)


def list_common() -> tuple[type[Section], ...]:
    """Return the classes whose keys the reference lists once."""
    common = [*_COMMON]
    for source in ENCODER_SOURCES.values():
        common += source.common
    for block in added_blocks().values():
        common += block.common
    return tuple(common)


def schemas() -> dict[str, Schema]:
    """Name → JSON schema of each kind of file that users write."""
    kinds: dict[str, Any] = {"configuration": _configuration()}
    kinds |= {block: _by_name(list_entries()[block]) for block in catalogues()}
    kinds |= {name: section for name, (section, _) in list_files().items()} | {"bands": list[Band]}
    result = {
        name: _without(TypeAdapter(kind).json_schema(), "title", str)
        for name, kind in kinds.items()
    }
    result["configuration"] = partial = _without(result["configuration"], "required", list)
    like = {
        "type": "string",
        "description": "another model, whose keys are taken over where this has none",
    }
    for model in list_entries()["models"]:
        partial["$defs"][model.__name__]["properties"]["like"] = like
    version = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {name: {**version, **schema} for name, schema in result.items()}


def _configuration() -> type[Settings]:
    """Return the settings with the classes of each block's entries.

    A model may be null, which leaves out a recipe's model.
    """
    blocks: dict[str, Any] = {}
    for block, entries in list_entries().items():
        some = _by_name((*entries, None) if block == "models" else entries)
        blocks[block] = (
            some,
            Field({}, description=settings_model().model_fields[block].description),
        )
    return create_model("Settings", __base__=settings_model(), __doc__=Settings.__doc__, **blocks)


def _by_name(sections: tuple[type[Section] | None, ...]) -> Any:
    """Return the type of a mapping from names to any of some sections."""
    entry: Any = reduce(or_, sections)
    return dict[str, entry]


def _without(schema: Any, key: str, kind: type) -> Any:
    """Return a schema without a keyword; a property of that name stays: its value is a schema."""
    if isinstance(schema, dict):
        return {
            k: _without(v, key, kind)
            for k, v in schema.items()
            if not (k == key and isinstance(v, kind))
        }
    return [_without(item, key, kind) for item in schema] if isinstance(schema, list) else schema


def reference() -> str:
    """Return the page of all keys, in Markdown."""
    page = _Page()
    page.table("", settings_model())
    for section, heading in list_files().values():
        page.lines += ["", f"## {heading}", "", getdoc(section) or "", ""]
        page.table("", section, depth=3)
    return "\n".join([_HEAD, *page.lines, ""])


def row(name: str, field: FieldInfo) -> str:
    """Return a key's row of a table: name, type with bounds, default, description."""
    text = (field.description or "").replace("|", "\\|")
    return f"| `{field.alias or name}` | {_type(field)} | {_default(field)} | {text} |"


class _Page:
    """Lines of Markdown; the keys of a class are listed where it is first used."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: dict[type[Section], str] = {}

    def table(
        self, path: str, section: type[Section], depth: int = 2, base: type[Section] = Section
    ) -> None:
        """List a section's keys, then those of the sections in it.

        Keys of `base` are listed elsewhere; here only those with another default.
        """
        listed = {name: _default(field) for name, field in base.model_fields.items()}
        fields = {
            name: field
            for name, field in section.model_fields.items()
            if _default(field) != listed.get(name)
        }
        if fields:
            self.lines += ["| key | type | default | |", "|---|---|---|---|"]
        inner: list[tuple[str, type[Section]]] = []
        for name, field in fields.items():
            key = field.alias or name
            place = f"{path}.{key}".removeprefix(".")
            self.lines.append(row(name, field))
            if not path and key in list_entries():
                inner += [(f"{place}.<name>", entry) for entry in list_entries()[key]]
            else:
                inner += [
                    (place + suffix, nested) for suffix, nested in _sections(field.annotation)
                ]
        for place, nested in inner:
            self.part(place, nested, depth)

    def part(self, place: str, section: type[Section], depth: int) -> None:
        """Return a heading and a section's keys, unless they are listed already.

        The keys that it shares with others come first.
        """
        if section in self.places:
            heading = f"{'#' * depth} `{place}`"
            if self.places[section] != place and heading not in self.lines:
                self.lines += ["", heading, "", f"As `{self.places[section]}`."]
            return
        base = next((parent for parent in section.__mro__[1:] if parent in list_common()), Section)
        if base is not Section and base not in self.places:
            self.part(place, base, depth)
        self.places[section] = place
        chosen = [
            f"`{key}: {value}`"
            for key in ("source", "objective", "type", "method")
            if key in section.model_fields
            for value in get_args(section.model_fields[key].annotation)
        ]
        title = ", ".join(
            [f"`{place}`", *chosen, *(["common keys"] if section in list_common() else [])]
        )
        self.lines += ["", f"{'#' * depth} {title}", "", getdoc(section) or ""]
        self.lines += (
            [f"It also has the common keys of `{self.places[base]}`."]
            if base is not Section
            else []
        )
        self.lines.append("")
        self.table(place, section, depth, base)


def _sections(annotation: Any) -> list[tuple[str, type[Section]]]:
    """Return the sections within a type, with the placeholders of their names or numbers in a path."""
    sections: list[tuple[str, type[Section]]] = []
    for branch in branches(annotation):
        if isinstance(branch, type) and issubclass(branch, Section):
            sections.append(("", branch))
        elif get_origin(branch) in (tuple, list):
            sections += [
                (f"[]{suffix}", section) for suffix, section in _sections(get_args(branch)[0])
            ]
        elif get_origin(branch) is dict:
            sections += [
                (f".<name>{suffix}", section) for suffix, section in _sections(get_args(branch)[1])
            ]
    return sections


def _type(field: FieldInfo) -> str:
    """Return a field's type with its bounds."""
    for limit in field.metadata:
        if isinstance(limit, Choice):
            return ", ".join(limit.values)
    for branch in get_args(field.annotation):  # of a union
        for limit in getattr(branch, "__metadata__", ()):
            if isinstance(limit, Choice):
                return f"{', '.join(limit.values)} or null"
    bounds = [
        f"{sign} {getattr(limit, key):g}"
        for limit in field.metadata
        for key, sign in SIGNS.values()
        if hasattr(limit, key)
    ]
    return f"{_kind(field.annotation)} {', '.join(bounds)}".rstrip()


def _kind(annotation: Any) -> str:
    names = []
    for branch in branches(annotation):
        if get_origin(branch) is Literal:
            names += [", ".join(map(str, get_args(branch)))]
        elif get_origin(branch) in (tuple, list):
            names.append(f"list of {_kind(get_args(branch)[0])}")
        elif get_origin(branch) is dict:
            names.append(f"mapping to {_kind(get_args(branch)[1])}")
        else:
            names.append(NAMES.get(branch, "any value" if branch is object else "section"))
    return " or ".join(dict.fromkeys(names))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    return (
        ""
        if isinstance(field.default, Section)
        else f"`{json.dumps(field.default, ensure_ascii=False)}`"
    )


def _broken(value: object, depth: int, indent: str = "") -> str:
    """Return JSON with objects broken into lines down to a depth, so that it and its diffs are readable."""
    if not isinstance(value, dict) or depth == 0 or len(json.dumps(value)) <= 100:
        return json.dumps(value, ensure_ascii=False)
    lines = [
        f"{indent} {json.dumps(key)}: {_broken(item, depth - 1, indent + ' ')}"
        for key, item in value.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def generated() -> dict[str, str]:
    """Return path in the checkout → content of every generated file."""
    files = {
        f"config/schema/{name}.json": _broken(schema, depth=5) + "\n"
        for name, schema in schemas().items()
    }
    return {**files, "docs/configuration.md": reference()}
