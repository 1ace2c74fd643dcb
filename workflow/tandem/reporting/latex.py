"""A table in LaTeX, for a paper: needs the packages booktabs and graphicx."""

from tandem.reporting import wording
from tandem.reporting.results import Row, Table

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "†": r"\ensuremath{^{\dagger}}",
    "‡": r"\ensuremath{^{\ddagger}}",
    "Δ": r"\ensuremath{\Delta}",
    "–": "--",
    "−": "--",
    "—": "---",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "≥": r"\ensuremath{\geq}",
    "≤": r"\ensuremath{\leq}",
    "→": r"\ensuremath{\to}",
    "…": r"\dots{}",
    "·": r"\ensuremath{\cdot}",
    "‖": r"\ensuremath{\Vert}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "[": "{[}",  # at the start of a row it would be an argument of the line break before
    "]": "{]}",
    "\n": " ",
}


def escape(text: str) -> str:
    """Text as LaTeX sets it."""
    return "".join(SPECIAL.get(character, character) for character in text)


def latex(table: Table) -> str:
    """A floating table over both columns, with a group of columns per measure under its printed name."""
    groups, rules, head, at = [], [], [], 3
    shown = list(zip(table.has_printed, table.has_verdict, strict=True))
    for name, (printed, judged) in zip(table.names, shown, strict=True):
        inner = ["printed", "ours", "Δ"] if printed else ["ours"]
        inner += [*(["verdict"] if judged else []), "p"]
        groups.append(rf"\multicolumn{{{len(inner)}}}{{c}}{{{escape(name)}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + len(inner) - 1}}}")
        head += [escape(word) for word in inner]
        at += len(inner)
    notes = [wording.heading(table), table.caption, wording.LEGEND, wording.BRACKETS, table.note.strip()]
    notes += [*wording.notes(table), *wording.bands(table)]
    caption = ". ".join(escape(note.rstrip(".")) for note in notes if note) + "."
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table*}",
        r"\centering\small",
        rf"\caption{{{caption}}}",
        r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{ll{'r' * len(head)}l}}",
        r"\toprule",
        rf" & & {' & '.join(groups)} & \\",
        " ".join(rules),
        rf"System & re-ranks & {' & '.join(head)} & p against \\",
        r"\midrule",
        *(_row(table, row) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _row(table: Table, row: Row) -> str:
    """One system."""
    words = [escape(row.system), escape(row.first_stage or "–")]
    for cell, printed, judged in zip(row.cells, table.has_printed, table.has_verdict, strict=True):
        value = escape(wording.ours(cell) + wording.mark(cell.p))
        words += [escape(wording.number(cell.printed, table.decimals))] if printed else []
        words += [f"{value} {{\\scriptsize {wording.interval(cell)}}}" if cell.value is not None else value]
        words += [_signed(wording.delta(cell))] if printed else []
        words += [escape(wording.verdict(cell))] if judged else []
        words += [escape(wording.probability(cell.p))]
    return " & ".join([*words, escape(wording.against(row))]) + r" \\"


def _signed(text: str) -> str:
    """A signed number with a true minus."""
    return escape(text) if text == "–" else f"${text}$"
