"""The report for everyone: what axe finds, labels that can be read on a phone, and whole tables on paper."""

import base64
import importlib.util
import io
import unicodedata
from pathlib import Path

import pytest
from browser import CHROMIUM, browser

AXE = importlib.util.find_spec("axe_core_python")
PYPDF = importlib.util.find_spec("pypdf")
PAPER = 1032  # width of A4 across without its margins, in pixels
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as new_tab:
        yield new_tab


def seen_on(tab, page, width, height, **media):
    """The page at a size, every plot drawn for it."""
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )
    tab.media(**media)
    tab.open(page)
    tab.until("document.querySelector('#differences .vega-embed svg') !== null")
    for at in range(tab("document.querySelectorAll('figure.chart').length")):
        figure = f"document.querySelectorAll('figure.chart')[{at}]"
        tab(f"{figure}.scrollIntoView({{behavior: 'instant'}})")
        tab.until(
            f"!{figure}.checkVisibility() || {figure}.querySelector('.vega-embed svg') !== null"
        )


@pytest.fixture(scope="module", params=[(1400, 900), (390, 844)], ids=["screen", "phone"])
def drawn(request, tab, report):
    """The whole report at a size, every plot drawn and every part open, with axe."""
    seen_on(tab, report, *request.param)
    tab("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    tab(Path(AXE.origin).with_name("axe.min.js").read_text(encoding="utf-8"))
    return tab


@pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed")
@pytest.mark.parametrize("media", ["light", "dark", "print"])
def test_axe_finds_nothing(drawn, media):
    drawn.media(**{"media": "print"} if media == "print" else {"prefers_color_scheme": media})
    violations = drawn("axe.run({resultTypes: ['violations']}).then((result) => result.violations)")
    assert [
        (rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in violations
    ] == []


def test_labels_can_be_read_on_a_phone(tab, report):
    seen_on(tab, report, 390, 844)
    tab("document.querySelector('.picture').closest('details').open = true")
    sizes = tab(
        "[...document.querySelectorAll('.plot text, .picture text')].map((text) => [text, text.getScreenCTM()])"
        ".map(([text, {a, b}]) => parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b))"
    )
    assert len(sizes) > 50
    assert min(sizes) >= 9
    assert tab("document.documentElement.scrollWidth") <= 390


# Of each table: where it ends or, where it scrolls in itself, where its box ends; and the size of its smallest letters.
TABLES = """[...document.querySelectorAll('table')].map((table) => [
  table.querySelector('caption').textContent,
  (table.closest('.scroll') ?? table).getBoundingClientRect().right,
  Math.min(...Array.from(table.querySelectorAll('th, td, small'), (e) => parseFloat(getComputedStyle(e).fontSize))),
])"""


@pytest.mark.parametrize("page", ["report.html", "summary.html"])
@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_tables_fit_the_screen_or_scroll_in_themselves(tab, report, page, width, height):
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )
    tab.media()
    tab.open(report.with_name(page))
    tab("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    assert tab("document.documentElement.scrollWidth") <= width
    tables = tab(TABLES)
    assert len(tables) > (1 if page == "summary.html" else 20)
    assert [table for table in tables if table[1] > width or table[2] < 11] == []
    wide = "[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth + 1)"
    tab.until(f"{wide}.every((box) => box.tabIndex === 0)")  # the keyboard scrolls them
    assert tab(f"{wide}.length") > 0 or width > 390
    cards = "[...document.querySelectorAll('table.systems tbody tr > *')]"
    assert tab(f"Math.max(...{cards}.map((cell) => cell.getBoundingClientRect().right))") <= width


@pytest.mark.skipif(PYPDF is None, reason="pypdf is not installed")
def test_on_paper_tables_are_whole_and_headings_stand_above_something(tab, report):
    from pypdf import PdfReader

    seen_on(tab, report, PAPER, 700, media="print")
    edges = "[...document.querySelectorAll('table')].map((table) => table.getBoundingClientRect().right)"
    assert max(tab(edges)) <= PAPER
    data = tab.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"]
    pages = [
        words(page.extract_text()) for page in PdfReader(io.BytesIO(base64.b64decode(data))).pages
    ]
    heads = "[...document.querySelectorAll('h2, h3, h4, figcaption, thead')].filter((e) => e.checkVisibility())"
    for head in map(words, tab(f"{heads}.map((e) => e.innerText)")):
        assert not any(page.endswith(head) for page in pages), head
    rows = "[...table.tBodies[0].rows].map((row) => row.cells[0].innerText)"
    tables = f"[...document.querySelectorAll('table')].filter((e) => e.checkVisibility()).map((table) => {rows})"
    for table in tab(tables):
        assert len(table) > 20 or any(all(words(row) in page for row in table) for page in pages), (
            table
        )


def words(text):
    """A text without spaces and ligatures, which paper has elsewhere."""
    return "".join(unicodedata.normalize("NFKC", text).split())
