"""The report in headless Chromium: with keys and pointer, light, dark and on paper, and without a network."""

import json

import pytest
from browser import CHROMIUM, browser

from tandem.cli import run
from tandem.extras.sweep_results import SweepLine, SweepResult
from tandem.report.results import Origin

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"
)
FIRST = "document.querySelector('table.results')"
LIVE = "document.querySelectorAll('figure .vega-embed svg').length"


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as new_tab:
        yield new_tab


@pytest.fixture
def opened(tab, report):
    """The report, freshly opened; afterwards nothing may have gone wrong and nothing been asked for."""
    tab.problems.clear(), tab.requests.clear()
    tab.call("Page.navigate", url="about:blank")
    tab.open(report)
    tab.until("document.querySelector('#differences .vega-embed svg') !== null")
    yield tab
    assert tab.problems == []
    assert [
        url for url in tab.requests if not url.startswith("data:") and url != "about:blank"
    ] == [report.as_uri()]


def column(tab, at, table=FIRST):
    """The sorted-by values of a column: numbers, None where there is none."""
    return tab(
        f"[...{table}.tBodies[0].rows].map((r) => r.cells[{at}].dataset.value).map((v) => v === '' ? null : +v)"
    )


def head(at, table=FIRST):
    """The head of a column, counted from 0."""
    return f"{table}.querySelector('thead th:nth-child({at + 1})')"


def test_a_head_sorts_by_enter_and_by_space(opened):
    before = column(opened, 1)
    assert before == sorted(before, reverse=True)  # the best system stands first
    assert opened(f"{head(1)}.getAttribute('aria-sort')") == "none"
    opened(f"{head(1)}.querySelector('button').focus()")
    opened.press("Enter")
    assert opened(f"{head(1)}.getAttribute('aria-sort')") == "descending"
    assert column(opened, 1) == before
    opened.press(" ")
    assert opened(f"{head(1)}.getAttribute('aria-sort')") == "ascending"
    assert column(opened, 1) == before[::-1]
    # the row without a baseline stays last in both directions
    for _ in range(2):
        opened(f"{head(6)}.querySelector('button').click()")
        assert column(opened, 6)[-1] is None
    assert opened(f"{FIRST}.querySelectorAll('[aria-sort=none]').length") > 5


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_screen_holds_the_answer_and_the_best_system(opened, width, height, scheme):
    opened.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )
    opened.media(prefers_color_scheme=scheme)
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    assert "has the highest RR@10" in opened("document.querySelector('h1').textContent")
    assert opened(bottom.format("h1")) < height / 3
    assert opened(bottom.format("table.systems tbody tr")) < height
    assert opened(bottom.format("nav")) < height / 7
    assert opened("document.documentElement.scrollWidth") <= width
    elements = "[...document.querySelectorAll('.systems *')]"
    smallest = f"Math.min(...{elements}.map((e) => parseFloat(getComputedStyle(e).fontSize)))"
    assert opened(smallest) >= 11
    opened.media(prefers_color_scheme="light")
    opened.call("Emulation.clearDeviceMetricsOverride")


def test_the_keyboard_reaches_everything_and_shows_where_it_is(opened):
    opened.press("Tab")
    assert opened("document.activeElement.className") == "skip"
    opened.press("Enter")
    opened.until("location.hash === '#results'")
    opened("document.activeElement.blur()")
    seen = []
    for _ in range(25):
        opened.press("Tab")
        seen.append(
            opened(
                "document.activeElement.tagName + ' ' + document.activeElement.textContent.trim().slice(0, 20)"
            )
        )
        shown = opened("getComputedStyle(document.activeElement).outlineStyle")
        assert shown != "none", seen[-1]
    assert "BUTTON System" in seen


def test_a_click_on_a_difference_selects_its_query_and_the_address_reopens_it(opened):
    opened("document.querySelector('#differences').scrollIntoView({behavior: 'instant'})")
    box = opened(
        "JSON.stringify(document.querySelector('#differences .mark-rect path').getBoundingClientRect())"
    )
    left, top, wide, high = (json.loads(box)[name] for name in ("left", "top", "width", "height"))
    for kind in ("mousePressed", "mouseReleased"):
        where = {"x": left + wide / 2, "y": top + high / 2, "button": "left", "clickCount": 1}
        opened.call("Input.dispatchMouseEvent", type=kind, **where)
    opened.until("location.search.includes('query=')")
    query = opened("document.querySelector('#detail .code').textContent")
    assert opened("new URLSearchParams(location.search).get('query')") == query
    text = opened("document.querySelector('#detail h3').textContent")
    opened.call("Page.reload")
    opened.until(
        "document.readyState === 'complete' && document.querySelector('#detail h3') !== null"
    )
    assert opened("document.querySelector('#detail h3').textContent") == text
    opened.requests[:] = opened.requests[:1]


def test_two_systems_query_by_query(opened):
    data = opened("JSON.parse(document.getElementById('data').textContent)")
    values = [query["values"] for query in data["queries"]]
    set_to = (
        "(() => {{ const s = document.getElementById('{}'); s.value = {}; "
        "for (const kind of ['input', 'change']) s.dispatchEvent(new Event(kind)); }})()"
    )
    opened(set_to.format("system-a", 4))
    opened(set_to.format("system-b", 1))
    opened(set_to.format("measure", 1))
    differences = [v[4][1] - v[1][1] for v in values]
    counts = [
        opened(f"document.getElementById('count-{name}').textContent")
        for name in ("win", "loss", "tie")
    ]
    expected = [
        sum(d > 0 for d in differences),
        sum(d < 0 for d in differences),
        sum(d == 0 for d in differences),
    ]
    assert list(map(int, counts)) == expected
    assert expected[0] > 0
    assert expected[1] > 0
    opened.until(
        "document.querySelector('#differences .plot').textContent.includes('nDCG@10, A − B')"
    )
    assert f"A better on {expected[0]}" in opened(
        "document.querySelector('#differences .plot').ariaLabel"
    )
    first = opened("document.querySelector('#queries [role=option]').id")
    assert abs(differences[int(first.removeprefix("query-"))]) == max(map(abs, differences))
    opened(set_to.format("outcome", "'win'"))
    listed = opened(
        "[...document.querySelectorAll('#queries [role=option]')].map((o) => +o.dataset.query)"
    )
    assert sorted(listed) == [at for at, d in enumerate(differences) if d > 0]


def test_the_explorer_by_keyboard_and_search(opened):
    data = opened("JSON.parse(document.getElementById('data').textContent)")
    listed = opened("[...document.querySelectorAll('#queries [role=option]')].map((o) => o.id)")
    opened("document.querySelector('#queries [role=option]').click()")
    opened("document.getElementById('queries').focus()")
    opened.press("ArrowDown", 2)
    assert opened("document.querySelector('#queries [aria-selected=true]').id") == listed[2]
    assert (
        opened("document.getElementById('queries').getAttribute('aria-activedescendant')")
        == listed[2]
    )
    query = data["queries"][int(listed[2].removeprefix("query-"))]
    assert opened("document.querySelector('#detail h3').textContent") == query["text"]
    ids = opened(
        "[...document.querySelectorAll('.sides > div:first-child .passage .code')].map((e) => e.textContent)"
    )
    assert ids == [data["passages"][at][0] for at in query["top"][-1]]
    relevant = opened(
        "[...document.querySelectorAll('.sides .passage.relevant .code')].map((e) => e.textContent)"
    )
    assert set(relevant) <= {data["passages"][at][0] for at in query["relevant"]}
    opened.press("End")
    assert opened("document.querySelector('#queries [aria-selected=true]').id") == listed[-1]
    search = "document.getElementById('search')"
    opened(f"{search}.value = 'q05'; {search}.dispatchEvent(new Event('input'))")
    assert opened("document.getElementById('count').textContent") == "1 query listed."
    opened(f"{search}.value = 'no such words'; {search}.dispatchEvent(new Event('input'))")
    assert opened("document.getElementById('detail').textContent") == "No query is like this."


def test_ranks_move_from_one_system_to_the_other(opened):
    data = opened("JSON.parse(document.getElementById('data').textContent)")
    opened.until("document.querySelector('#detail figure svg') !== null")
    shown = opened("document.querySelector('#detail .code').textContent")
    query = next(query for query in data["queries"] if query["id"] == shown)
    # the page begins with the last system against the first
    (now,), (before,) = query["ranks"][-1], query["ranks"][0]
    assert now != before
    ranks = f"{data['passages'][query['relevant'][0]][0]}: {now or 'none'} in A, {before or 'none'} in B"
    assert (
        opened("document.querySelector('#detail .plot').ariaLabel")
        == f"Ranks of relevant passages. {ranks}"
    )
    colour = "good" if (now or 99) < (before or 99) else "bad"
    assert (
        opened(
            f"document.querySelectorAll('#detail .plot path[stroke=\"var(--{colour})\"]').length"
        )
        == 1
    )
    measures = opened(
        "[...document.getElementById('measure').options].map((option) => option.textContent)"
    )
    assert measures == ["RR@10", "nDCG@10", "Success@1", "Success@50", "R@50"]


def test_hostile_texts_stay_texts(opened):
    opened("document.getElementById('query-0').click()")
    assert opened("document.querySelector('#detail h3').textContent").startswith(
        "what is </script><script>alert"
    )
    assert (
        opened(
            "document.querySelectorAll('#detail script, #queries script, #detail b:not(header b), h3 b').length"
        )
        == 0
    )
    assert "<b>bold</b>" in opened("document.querySelector('.passage.relevant p').textContent")


def test_every_plot_is_drawn_by_vega_when_it_comes_into_view(opened):
    figures = opened("document.querySelectorAll('figure.chart').length")
    assert opened(LIVE) < figures  # those far below are pictures still
    for at in range(figures):
        opened(
            f"document.querySelectorAll('figure.chart')[{at}].scrollIntoView({{behavior: 'instant'}})"
        )
        opened.until(
            f"document.querySelectorAll('figure.chart')[{at}].querySelector('.vega-embed svg') !== null"
        )
    opened.until(f"{LIVE} === {figures}")
    assert opened("document.querySelectorAll('.plot svg.marks').length") == figures


def test_no_code_from_text_and_nothing_from_outside(opened):
    refused = (
        "(() => { try { new Function('return 1')(); return ''; } catch (e) { return e.name; } })()"
    )
    assert opened(refused) == "EvalError"
    assert opened("fetch('data:,x').then(() => 'loaded', () => 'refused')") == "refused"
    opened.problems.clear()  # the browser reports both refusals


def test_dark_as_the_system_says_and_as_the_button_says(opened):
    colour = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('.plot path[stroke=\"var(--c0)\"]')).stroke"
    light, blue = opened(colour), opened(line)
    opened.media(prefers_color_scheme="dark")
    dark = opened(colour)
    assert (light, dark) == ("rgb(246, 247, 249)", "rgb(16, 19, 24)")
    assert opened(line) != blue
    opened("document.getElementById('theme').click()")
    assert opened(colour) == light
    opened.call("Page.reload")
    opened.until(
        "document.readyState === 'complete' && document.documentElement.dataset.theme === 'light'"
    )
    assert opened(colour) == light
    opened.media(prefers_color_scheme="light")
    opened("document.getElementById('theme').click()")
    assert opened(colour) == dark
    opened.media(media="print")
    assert opened(f"{colour}") == "rgb(255, 255, 255)"
    shown = opened(
        "[...document.querySelectorAll('nav, .explorer, .controls')].map((e) => getComputedStyle(e).display)"
    )
    assert set(shown) == {"none"}
    opened.media(media="")
    opened("localStorage.clear()")
    opened.requests[:] = opened.requests[:1]


def test_a_link_to_a_stage_opens_it(opened):
    opened(f"{FIRST}.querySelector('td a').click()")
    opened.until("document.querySelector('details.stage:target') !== null")
    assert opened("document.querySelector('details.stage:target').open")


def test_what_is_wider_than_the_window_is_scrolled_by_the_keyboard(opened):
    opened.call(
        "Emulation.setDeviceMetricsOverride",
        width=400,
        height=800,
        deviceScaleFactor=1,
        mobile=False,
    )
    box = "document.querySelector('#cost .scroll')"
    opened.until(f"{box}.tabIndex === 0 && {box}.getAttribute('role') === 'group'")
    assert opened(f"{box}.ariaLabel").startswith("Cost of each stage")
    assert opened("document.documentElement.scrollWidth") <= 400  # nothing else is wider
    opened.call("Emulation.clearDeviceMetricsOverride")


def test_a_number_of_a_tables_own_page_opens_its_lineage(tab, report):
    tab.problems.clear()
    tab.open(report.with_name("summary.html"))
    tab(f"{FIRST}.querySelector('td a').click()")
    tab.until("document.querySelector('tr:target')?.closest('details').open === true")
    assert "bm25" in tab("document.querySelector('tr:target a').getAttribute('href')")
    before = column(tab, 1)
    tab(f"{head(1)}.querySelector('button').click()")
    assert column(tab, 1) == sorted(before, reverse=True)
    assert tab.problems == []


def test_a_sweep_is_shown_and_sorted_by_its_numbers(tab, report, world, tmp_path):
    def line(size, value):
        point = {"models.rocketqav2.train.list_size": size}
        return SweepLine(
            point,
            "<b>Retriever</b>",
            "RR@10",
            2,
            value,
            0.5,
            value - 2,
            value + 2,
            None,
            None,
            None,
            ["k-1"],
        )

    path = "models.rocketqav2.train.list_size"
    facts = {
        "name": "sizes",
        "title": "Figure 4",
        "paths": [path],
        "x": path,
        "scale": "log",
        "baseline": {path: 8},
    }
    facts |= {
        "note": "",
        "dataset": "toy",
        "split": "test",
        "stands_in_for": "",
        "queries": 24,
        "measures": ["RR@10"],
    }
    origin = Origin("s-1", "k-1", "k", dirty=False, finished="", machine="m", seconds=1.5)
    result = SweepResult(
        **facts, lines=[line(8, 9.5), line(32, 37.4), line(128, 38.8)], runs={"k-1": origin}
    )
    (tmp_path / "sizes.json").write_text(result.to_json())
    flags = ["--tables", str(report.with_name("summary.csv")), "--rows", json.dumps(world.rows)]
    run(
        [
            "report",
            *flags,
            "--sweeps",
            str(tmp_path / "sizes.json"),
            "--out",
            str(tmp_path / "report.html"),
        ]
    )
    tab.problems.clear()
    tab.open(tmp_path / "report.html")
    table = "document.querySelector('#sweeps table.results')"
    assert tab(f"{table}.tBodies[0].rows[0].cells[1].textContent") == "<b>Retriever</b>"
    tab(f"{head(2, table)}.querySelector('button').click()")
    assert column(tab, 2, table) == [38.8, 37.4, 9.5]
    tab(f"{head(0, table)}.querySelector('button').click()")
    assert column(tab, 0, table) == [128, 32, 8]  # not as words
    tab(f"{table}.querySelector('td a').click()")
    tab.until("document.querySelector('tr:target')?.closest('details').open === true")
    assert tab("document.querySelector('tr:target').cells[0].textContent") == "k-1"
    tab("document.querySelector('#sweeps figure').scrollIntoView()")
    tab.until("document.querySelector('#sweeps .vega-embed svg') !== null")
    assert tab.problems == []
