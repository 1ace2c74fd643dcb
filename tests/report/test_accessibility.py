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
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def opened(tmp_path_factory, report):
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        tab.open(report)
        yield tab


def seen_on(tab, width, height, **media):
    """The page at a size, every plot drawn for it."""
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    tab.media(**media)
    tab.call("Page.reload")
    tab.until("document.readyState === 'complete' && document.querySelector('#differences .vega-embed svg') !== null")
    for at in range(tab("document.querySelectorAll('figure.chart').length")):
        figure = f"document.querySelectorAll('figure.chart')[{at}]"
        tab(f"{figure}.scrollIntoView({{behavior: 'instant'}})")
        tab.until(f"!{figure}.checkVisibility() || {figure}.querySelector('.vega-embed svg') !== null")


@pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed")
@pytest.mark.parametrize("media", ["light", "dark", "print"])
@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_axe_finds_nothing(opened, width, height, media):
    named = {"media": "print"} if media == "print" else {"prefers_color_scheme": media}
    seen_on(opened, width, height, **named)
    opened("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    opened(Path(AXE.origin).with_name("axe.min.js").read_text(encoding="utf-8"))
    found = opened("axe.run({resultTypes: ['violations']}).then((result) => result.violations)")
    assert [(rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in found] == []


def test_labels_can_be_read_on_a_phone(opened):
    seen_on(opened, 390, 844)
    sizes = opened(
        "[...document.querySelectorAll('.plot text')].map((text) => [text, text.getScreenCTM()])"
        ".map(([text, {a, b}]) => parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b))"
    )
    assert len(sizes) > 50
    assert min(sizes) >= 9
    assert opened("document.documentElement.scrollWidth") <= 390


@pytest.mark.skipif(PYPDF is None, reason="pypdf is not installed")
def test_on_paper_tables_are_whole_and_headings_stand_above_something(opened):
    from pypdf import PdfReader

    seen_on(opened, PAPER, 700, media="print")
    edges = "[...document.querySelectorAll('table')].map((table) => table.getBoundingClientRect().right)"
    assert max(opened(edges)) <= PAPER
    data = opened.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"]
    pages = [words(page.extract_text()) for page in PdfReader(io.BytesIO(base64.b64decode(data))).pages]
    heads = "[...document.querySelectorAll('h2, h3, h4, figcaption, thead')].filter((e) => e.checkVisibility())"
    for head in map(words, opened(f"{heads}.map((e) => e.innerText)")):
        assert not any(page.endswith(head) for page in pages), head
    rows = "[...table.tBodies[0].rows].map((row) => row.cells[0].innerText)"
    tables = f"[...document.querySelectorAll('table')].filter((e) => e.checkVisibility()).map((table) => {rows})"
    for table in opened(tables):
        assert len(table) > 20 or any(all(words(row) in page for row in table) for page in pages), table


def words(text):
    """A text without spaces and ligatures, which paper has elsewhere."""
    return "".join(unicodedata.normalize("NFKC", text).split())
