"""Templates: one environment for every page and table. Pages escape whatever they show and load nothing."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from tandem.cluster.progress import duration

FOLDERS = [Path(__file__).parent / "assets"]  # of templates; extras append theirs


def asset(name: str) -> str:
    """A file of `assets/`, of the report or of an extra."""
    for folder in FOLDERS:
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise jinja2.TemplateNotFound(name)


@cache
def environment() -> jinja2.Environment:
    """Templates of `assets/`, those of HTML autoescaped; the functions of `formats` are at hand in each."""
    from tandem.report import formats  # whose tables are rendered here

    env = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=lambda name: name is None or name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    env.filters["prose"] = prose
    env.globals.update(asset=lambda name: Markup(asset(name)), embedded=embedded, duration=duration, formats=formats)
    return env


def prose(text: str) -> Markup:
    """Escaped text with code between backticks: `rerank.depth`."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def render(template: str, **values: Any) -> str:
    """A page; text is escaped, only our own assets and figures go in as markup."""
    return environment().get_template(template).render(**values)


def fragment(template: str, macro: str, *values: Any) -> Markup:
    """A part of a page: the result of a template's macro."""
    module = environment().get_template(template).make_module()
    return Markup(getattr(module, macro)(*values))


def embedded(value: Any) -> Markup:
    """JSON that may stand inside a `<script>` element, whatever its texts contain.

    `<`, `>`, `&` and the two line separators of JavaScript become escapes, so that `</script>` and `<!--` cannot occur.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
