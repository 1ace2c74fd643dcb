"""LaTeX: every special character escaped, groups and rules that fit, and a page that a TeX compiles where one is."""

import re
import shutil
import subprocess

import pytest

from tandem.config.table_layouts import Band, Paper, PrintedOn
from tandem.extras.report.page import LATEX_ESCAPES, quote_latex, write_latex
from tandem.report.formats import make_table_grid
from tandem.report.results import Cell, FilledColumn, FilledRow, Table

ODD = "100 % & $5_a #1 {b} ~^ \\x <y> ▲ ▼ † ‡ Δ – — ± ‖ … “q” ‘r’ [1] ≥ → ·"
ENGINES = ("pdflatex", "tectonic", "xelatex", "lualatex")


@pytest.fixture
def table():
    """Two rows, one of them quoted, two measures; odd characters wherever a text may stand."""
    band = Band(tolerance=0.5, near=1.0, source=ODD, deviations=(ODD,))
    ours = Cell(
        "RR@10",
        49.0,
        50.0,
        48.0,
        52.0,
        1.0,
        0.004,
        sd=0.5,
        seeds=[49.5, 50.5],
        verdict="near",
        band=band,
    )
    bare = Cell("Success@1", None, 40.0, 38.0, 42.0, None, None)
    wrong = Cell(
        "RR@10", 59.1, None, None, None, None, None, verdict=f"printed number is wrong ({ODD})"
    )
    none = Cell("Success@1", None, None, None, None, None, None)
    rows = [
        FilledRow(f"[{ODD}", "First & stage", "Base_line", "de-0123456789", "x", [ours, bare]),
        FilledRow("Theirs", "", "", "", "", [wrong, none], quoted=True),
    ]
    paper, on = Paper(citation=ODD, table="Table 1"), PrintedOn(dataset="a", name=ODD, split="test")
    columns = [
        FilledColumn(measure, name, label, "", "", "", ["a test, 4 queries"])
        for measure, name, label in (
            ("RR@10", "MRR@10", "MRR@10 (RR@10)"),
            ("Success@1", "R@1", "Success@1"),
        )
    ]
    return Table(ODD, paper, on, 1, ODD, columns, rows, [1, 2])


def test_every_special_character_is_escaped():
    assert (
        quote_latex(r"50 % of a_b & {c} \ #1 $")
        == r"50 \% of a\_b \& \{c\} \textbackslash{} \#1 \$"
    )
    assert quote_latex("p < 0.05 ± 1 [a]") == r"p \ensuremath{<} 0.05 \ensuremath{\pm} 1 {[}a{]}"
    assert quote_latex("*ours | A") == r"{*}ours \ensuremath{|} A"
    assert all(ord(character) < 128 for character in quote_latex("".join(LATEX_ESCAPES)))


def test_no_bare_special_character_is_left(table):
    text = write_latex(make_table_grid(table))
    assert text.isascii()
    for line in text.splitlines()[1:]:
        bare = re.sub(r"\\[&%$#_{}]", "", line)
        assert "%" not in bare, line
        assert "#" not in bare, line
        assert bare.count("{") == bare.count("}"), line


def test_as_many_cells_in_every_row_as_columns(table):
    lines = write_latex(make_table_grid(table)).splitlines()
    columns = re.search(r"\\begin\{tabular\}\{(l+r+l)\}", "\n".join(lines))[1]
    body = [
        line
        for line in lines[lines.index(r"\midrule") - 1 : lines.index(r"\bottomrule")]
        if "&" in line
    ]
    assert len(body) == 3
    for line in body:
        assert len(re.sub(r"\\&", "", line).split("&")) == len(columns) == 10


def test_a_page_compiles(table, tmp_path):
    engine = next((name for name in ENGINES if shutil.which(name)), None)
    if engine is None:
        pytest.skip(f"no TeX is installed: none of {', '.join(ENGINES)}")
    (tmp_path / "table.tex").write_text(write_latex(make_table_grid(table)))
    head = r"\documentclass{article}\usepackage{booktabs,adjustbox}\begin{document}\input{table.tex}\end{document}"
    (tmp_path / "page.tex").write_text(head)
    how = [] if engine == "tectonic" else ["-interaction=nonstopmode", "-halt-on-error"]
    done = subprocess.run(
        [engine, *how, "page.tex"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "page.pdf").stat().st_size > 1000
