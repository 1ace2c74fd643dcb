"""The report: complete in itself, safe with hostile texts, and working in a browser."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tandem.errors import UserError
from tandem.reporting import tables
from tandem.reporting.page import embedded
from tandem.reporting.report import main

PAPERS = Path(__file__).parents[2] / "config/papers"
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--dump-dom",
]
LOADS = {"src", "srcset", "action", "formaction", "data", "poster", "background", "ping"}


@pytest.fixture(scope="module")
def report(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    rows = json.dumps(world.rows)
    flags = ["--layout", str(PAPERS / "summary.yaml"), "--rows", rows, "--dataset", "toy", "--split", "test"]
    tables.main([*flags, "--out", str(folder / "summary.csv")])
    out = folder / "report.html"
    assert main(["--tables", str(folder / "summary.csv"), "--rows", rows, "--out", str(out)]) == 0
    return out


class Page(HTMLParser):
    """Collects ids, links, whatever could load something, and the scripts."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.scripts, self.tag = [], [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tag = tag
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name == "href":
                self.links.append(value)
            if name in LOADS or name.startswith("on") or tag in ("link", "iframe", "object", "embed", "base"):
                self.loads.append((tag, name, value))

    def handle_data(self, data):
        if self.tag == "script":
            self.scripts.append(data)

    def handle_endtag(self, tag):
        self.tag = ""


def test_nothing_is_loaded_from_outside(report):
    text = report.read_text()
    page = Page(text)
    assert page.loads == []
    assert all(link.startswith("#") for link in page.links)
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_every_link_has_its_target(report, world):
    page = Page(report.read_text())
    assert len(set(page.ids)) == len(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    runs = {
        Path(json.loads((Path(row["scores"]) / "stage.json").read_text())["upstream"]["run"]).name for row in world.rows
    }
    assert {f"#stage-{key}" for key in runs} <= set(page.links)


def test_hostile_texts_stay_texts(report):
    text = report.read_text()
    assert 'alert("x")</script>' not in text
    assert "<b>bold" not in text
    page = Page(text)
    assert len(page.scripts) == 2
    data = json.loads(page.scripts[0])
    assert any('</script><script>alert("x")</script><!-- & <b>bold</b>' in passage[2] for passage in data["passages"])


def test_embedded_json_reads_back():
    value = {"a": "</script><!-- & \u2028 \u2029 é", "b": [1, None]}
    text = embedded(value)
    assert json.loads(text) == value
    assert not re.search("[<>&\u2028\u2029]", text)


def test_every_part_is_there(report, world):
    text = report.read_text()
    assert text.count('class="chart"') == 4 * 3 + 2
    assert "duplicate of a positive" in text
    assert "24 undenoised lists" in text
    assert text.count("positives (24)") == 1
    assert "train.lr" in text
    assert "2e-05" in text
    for row in world.rows:
        assert row["system"] in text


def test_tables_need_not_be_among_the_rows_compared(report, world, tmp_path):
    rows = world.select(("BM25", ""), ("DE w/ BM25 Neg", ""))
    out = tmp_path / "few.html"
    main(["--tables", str(report.with_name("summary.csv")), "--rows", rows, "--out", str(out)])
    page = Page(out.read_text())
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert json.loads(page.scripts[0])["systems"] == ["BM25", "DE w/ BM25 Neg"]


def test_mistakes(report, world, tmp_path):
    out = tmp_path / "none.html"
    with pytest.raises(UserError, match="no such file"):
        main(["--tables", str(tmp_path / "x.csv"), "--rows", json.dumps(world.rows), "--out", str(out)])
    with pytest.raises(UserError, match="--rows: missing"):
        main(["--tables", str(report.with_name("summary.csv")), "--out", str(out)])
    assert not out.exists()


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)")
def test_in_a_browser(report, tmp_path):
    # With #selftest the page sorts its tables, searches, filters and steps through queries, and writes what failed.
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"{report.as_uri()}#selftest"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    told = re.search(r'<pre id="selftest">(.*?)</pre>', done.stdout)
    assert told is not None, done.stderr[-2000:]
    assert told[1] == "passed"
    assert "CONSOLE" not in done.stderr
    assert re.search(r'class="passage relevant".*?relevant', done.stdout)
    assert "<b>bold" not in done.stdout
