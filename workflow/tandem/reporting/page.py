"""HTML: one environment for every page, which escapes whatever it is given, and pages that load nothing."""

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from tandem.reporting import grid, wording


def asset(name: str) -> str:
    """A file of `assets/`."""
    return (files("tandem.reporting") / "assets" / name).read_text(encoding="utf-8")


@cache
def environment() -> jinja2.Environment:
    """Templates of `assets/`, autoescaped; the number wording is at hand in each."""
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["prose"] = prose
    made.globals.update(wording=wording, worth=grid.worth, asset=lambda name: Markup(asset(name)), embedded=embedded)
    return made


def prose(text: str) -> Markup:
    """Escaped text, what stands between backticks as code: `rerank.depth`."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def render(template: str, **values: Any) -> str:
    """A page; text is escaped, only our own assets and figures go in as markup."""
    return environment().get_template(template).render(**values)


def embedded(value: Any) -> Markup:
    """JSON that may stand inside a `<script>` element, whatever its texts say.

    `<`, `>`, `&` and the two line separators of JavaScript become escapes, so that `</script>` and `<!--` cannot occur.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
