"""Render templates, in one environment for all pages, and tables in LaTeX.

Pages escape everything they show and load nothing.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from tandem.cluster.progress import format_duration
from tandem.report import formats
from tandem.report.grids import PageTable
from tandem.report.results import Cell, FilledRow, Table

FOLDERS = [Path(__file__).parent / "assets"]  # of templates; packages append theirs
_NUMBER = re.compile(r"<?([-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)([KM]?)")
# What may follow a number in its cell: a deviation, a mark, an interval, a share, a unit.
_AFTER_NUMBER = re.compile(r"( ± \d[\d.]*)?( [▲▼])?( \[[^\]]*\])?( · [\d.]+)?( %)?")
UNIT_FACTORS = {"": 1.0, "K": 1e3, "M": 1e6}
_EMPTY_CELLS = ("", "–")  # cells without a value
_LATEX_MATH = {
    "▲": r"\bigtriangleup", "▼": r"\bigtriangledown", "†": r"^{\dagger}", "‡": r"^{\ddagger}", "Δ": r"\Delta",
    "<": "<", ">": ">", "−": "-", "±": r"\pm", "×": r"\times", "≥": r"\geq", "≤": r"\leq", "→": r"\to", "·": r"\cdot",
    "|": "|", "‖": r"\Vert",
}  # fmt: skip
LATEX_ESCAPES = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: rf"\ensuremath{{{command}}}" for character, command in _LATEX_MATH.items()},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "—": "---",
    "…": r"\dots{}", "“": "``", "”": "''", "‘": "`", "’": "'", "\n": " ",
    # at the start of a row, the preceding line break would take them for its argument or its star
    "[": "{[}", "]": "{]}", "*": "{*}",
}  # fmt: skip


def read_asset(name: str) -> str:
    """Return a file of `assets/`, of the report or of a package."""
    for folder in FOLDERS:
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise jinja2.TemplateNotFound(name)


@cache
def make_environment() -> jinja2.Environment:
    """Return the environment of the templates in `assets/`, HTML autoescaped."""
    env = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_asset),
        autoescape=lambda name: name is None or name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    env.filters["prose"] = mark_prose
    env.globals.update(
        asset=lambda name: Markup(read_asset(name)),
        embedded=embed_json,
        duration=format_duration,
        formats=formats,
        make_anchor=make_anchor,
        draw_bar=draw_bar,
        list_numeric=list_numeric,
        find_worth=find_worth,
    )
    return env


def mark_prose(text: str) -> Markup:
    """Return escaped text with code between backticks: `rerank.depth`."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def render_template(template: str, **values: Any) -> str:
    """Return a page; text is escaped, and only Tandem's own assets and figures are inserted as markup."""
    return make_environment().get_template(template).render(**values)


def render_markdown(template: Path, **values: Any) -> str:
    """Return a Markdown text from a template; it is not a page, so nothing is escaped."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(template.read_text(encoding="utf-8")).render(values)


def render_macro(template: str, macro: str, *values: Any) -> Markup:
    """Return a part of a page: the output of a template's macro."""
    module = make_environment().get_template(template).make_module()
    return Markup(getattr(module, macro)(*values))


def cut_text(text: str, most: int) -> str:
    """Return a text of limited length, with a mark at the end if it was cut."""
    return text if len(text) <= most else f"{text[:most].rstrip()}…"


def embed_json(value: Any) -> Markup:
    """Return JSON that is safe inside a `<script>` element, whatever its texts contain.

    `<`, `>`, `&` and the two line separators of JavaScript become escapes, so that `</script>` and `<!--` cannot occur.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def list_numeric(grid: PageTable) -> list[bool]:
    """Return for each column whether it holds only numbers."""
    values = [
        [row[at] for row in grid.rows if row[at] not in _EMPTY_CELLS]
        for at in range(len(grid.head))
    ]
    return [bool(cells) and all(map(_is_number, cells)) for cells in values]


def _is_number(cell: str) -> bool:
    number = _NUMBER.match(cell)
    return number is not None and _AFTER_NUMBER.fullmatch(cell, number.end()) is not None


def find_worth(cell: str) -> float | None:
    """Return the number by which a cell is sorted: 41.27 of `41.27 ± 0.30 ▲`, 0.001 of `<0.001`.

    None if it has none.
    """
    number = _NUMBER.match(cell)
    return (
        None
        if number is None
        else float(number[1].replace(",", "").replace("−", "-")) * UNIT_FACTORS[number[2]]
    )


def make_anchor(table: Table, row: FilledRow) -> str:
    """Return the id of the details of a row; two rows may show one run."""
    return f"row-{table.rows.index(row) + 1}"


def draw_bar(cell: Cell, column: list[Cell]) -> str:
    """Return the style of an interval's bar: its ends and its value, in percent of the range of a whole column."""
    lowest = min(other.low for other in column if other.low is not None)
    highest = max(other.high for other in column if other.high is not None)
    width = highest - lowest or 1.0
    ends = {"low": cell.low, "at": cell.value, "high": cell.high}
    return "; ".join(
        f"--{name}: {100 * (end - lowest) / width:.1f}%"
        for name, end in ends.items()
        if end is not None
    )


def quote_latex(text: str) -> str:
    """Return a text escaped for LaTeX."""
    return "".join(LATEX_ESCAPES.get(character, character) for character in text)


def write_latex(grid: PageTable) -> str:
    """Return a floating table across both columns, narrowed if it is too wide."""
    caption = (
        ". ".join(note.rstrip(".") for note in (grid.title, grid.caption, *grid.notes) if note)
        + "."
    )
    return render_template("grid.tex", grid=grid, escape=quote_latex, caption=caption)
