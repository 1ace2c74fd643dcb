"""Render templates, in one environment for all pages, numbers and `PageTable`, a table of texts.

Pages escape whatever they show and load nothing.
"""

import json
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from tandem.cluster.progress import format_duration

FOLDERS = [Path(__file__).parent / "assets"]  # of templates; extras append theirs
_NUMBER = re.compile(r"<?([-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)([KM]?)")
# What may follow a number in its cell: a deviation, a mark, an interval, a share, a unit.
_AFTER_NUMBER = re.compile(r"( ± \d[\d.]*)?( [▲▼])?( \[[^\]]*\])?( · [\d.]+)?( %)?")
UNIT_FACTORS = {"": 1.0, "K": 1e3, "M": 1e6}
_EMPTY_CELLS = ("", "–")  # cells without a value
# of p: significant below the first; below the second, not written out
LEVEL = 0.05
_LEAST_P = 0.001
_WIDEST_NOTES = 120
_LATEX_MATH = {
    "▲": r"\bigtriangleup", "▼": r"\bigtriangledown", "†": r"^{\dagger}", "‡": r"^{\ddagger}", "Δ": r"\Delta",
    "<": "<", ">": ">", "−": "-", "±": r"\pm", "×": r"\times", "≥": r"\geq", "≤": r"\leq", "→": r"\to", "·": r"\cdot",
    "‖": r"\Vert",
}  # fmt: skip
LATEX_ESCAPES = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: rf"\ensuremath{{{command}}}" for character, command in _LATEX_MATH.items()},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "—": "---",
    "…": r"\dots{}", "“": "``", "”": "''", "‘": "`", "’": "'", "\n": " ",
    # at the start of a row it would be an argument of the line break before
    "[": "{[}", "]": "{]}",
}  # fmt: skip


def read_asset(name: str) -> str:
    """Return a file of `assets/`, of the report or of an extra."""
    for folder in FOLDERS:
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise jinja2.TemplateNotFound(name)


@cache
def make_environment() -> jinja2.Environment:
    """Return the environment of the templates in `assets/`, HTML autoescaped.

    The module `formats` adds itself to it.
    """
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
        asset=lambda name: Markup(read_asset(name)), embedded=embed_json, duration=format_duration
    )
    return env


def mark_prose(text: str) -> Markup:
    """Escaped text with code between backticks: `rerank.depth`."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def render_template(template: str, **values: Any) -> str:
    """Return a page; text is escaped, only our own assets and figures go in as markup."""
    return make_environment().get_template(template).render(**values)


def render_markdown(template: Path, **values: Any) -> str:
    """Return a text of Markdown from a template, which is not a page: nothing is escaped."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(template.read_text(encoding="utf-8")).render(values)


def render_macro(template: str, macro: str, *values: Any) -> Markup:
    """Return a part of a page: the result of a template's macro."""
    module = make_environment().get_template(template).make_module()
    return Markup(getattr(module, macro)(*values))


def cut_text(text: str, most: int) -> str:
    """At most so many characters of a text, with a mark where it is cut."""
    return text if len(text) <= most else f"{text[:most].rstrip()}…"


def embed_json(value: Any) -> Markup:
    """JSON that may stand inside a `<script>` element, whatever its texts contain.

    `<`, `>`, `&` and the two line separators of JavaScript become escapes, so that `</script>` and `<!--` cannot occur.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def format_number(value: float | None, decimals: int = 2) -> str:
    """`53.96`; a dash without a value."""
    return "–" if value is None else f"{value:.{decimals}f}"


def format_difference(difference: float | None, decimals: int = 2) -> str:
    """`+1.25`; a dash without a value."""
    return "–" if difference is None else f"{difference:+.{decimals}f}".replace("-", "−")


def format_four_decimals(value: float | None) -> str:
    """Four decimals; nothing without a value."""
    return "" if value is None else f"{value:.4f}"


def format_p(p: float | None) -> str:
    """`0.012`, `<0.001`; a dash where nothing was tested."""
    return "–" if p is None else f"<{_LEAST_P}" if p < _LEAST_P else f"{p:.3f}"


def describe_p(p: float | None) -> str:
    """`p = 0.012`, `p < 0.001`."""
    return f"p < {_LEAST_P}" if p is not None and p < _LEAST_P else f"p = {format_p(p)}"


def mark(change: float | None, p: float | None) -> str:
    """▲ above and ▼ below the baseline, significantly; else nothing."""
    if change is None or p is None or p >= LEVEL:
        return ""
    return "▲" if change > 0 else "▼"


@dataclass(frozen=True)
class PageTable:
    """Hold a table of texts, which every rendering escapes."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    named_by: int = 0  # the column that names a row
    # the address that a cell leads to, by row and column
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    align: str = ""  # a letter a column, l for words and r for numbers; empty: words, then numbers
    caption: str = ""
    notes: Sequence[str] = ()
    best: Collection[tuple[int, int]] = ()  # cells in bold, by row and column

    @property
    def numbers(self) -> list[bool]:
        """For each column, whether it holds numbers alone."""
        values = [
            [row[at] for row in self.rows if row[at] not in _EMPTY_CELLS]
            for at in range(len(self.head))
        ]
        return [bool(cells) and all(map(_is_number, cells)) for cells in values]

    @property
    def alignment(self) -> str:
        """Return a letter a column: l for words, r for numbers."""
        return self.align or "l" + "r" * (len(self.head) - 1)

    @staticmethod
    def worth(cell: str) -> float | None:
        """Return the number by which a cell is sorted: 41.27 of `41.27 ± 0.30 ▲`, 0.001 of `<0.001`.

        None if it has none.
        """
        number = _NUMBER.match(cell)
        return (
            None
            if number is None
            else float(number[1].replace(",", "").replace("−", "-")) * UNIT_FACTORS[number[2]]
        )


def _is_number(cell: str) -> bool:
    number = _NUMBER.match(cell)
    return number is not None and _AFTER_NUMBER.fullmatch(cell, number.end()) is not None


def quote_markdown(text: str) -> str:
    """Text in which Markdown and HTML see no markup, in one line."""
    return re.sub(r"[\\`*_\[\]<>|]", r"\\\g<0>", text.replace("\n", " "))


def quote_latex(text: str) -> str:
    """Text as LaTeX sets it."""
    return "".join(LATEX_ESCAPES.get(character, character) for character in text)


def write_markdown(grid: PageTable) -> str:
    """Return a pipe table with its title above and its notes below."""
    return render_template("grid.md", grid=grid, escape=quote_markdown)


def write_latex(grid: PageTable) -> str:
    """Return a floating table over both columns, made narrower where it is too wide."""
    caption = (
        ". ".join(note.rstrip(".") for note in (grid.title, grid.caption, *grid.notes) if note)
        + "."
    )
    return render_template("grid.tex", grid=grid, escape=quote_latex, caption=caption)


def align_text(grid: PageTable) -> str:
    """Plain text for a terminal: columns padded to their widest cell."""
    lines = [grid.head, *grid.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        "  ".join(
            cell.ljust(width) if letter == "l" else cell.rjust(width)
            for cell, width, letter in zip(line, widths, grid.alignment, strict=True)
        )
        for line in lines
    ]
    rule = "─" * len(padded[0])
    width = max(60, min(len(rule), _WIDEST_NOTES))
    notes = [line for note in grid.notes for line in textwrap.wrap(note, width)]
    title = f"{grid.title} · {grid.caption}" if grid.caption else grid.title
    return "\n".join(
        line.rstrip() for line in [title, rule, padded[0], rule, *padded[1:], rule, *notes]
    )
