"""The report: complete in itself, safe with hostile texts, and readable without a script."""

import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_plans import make_table

from tandem.cli import run as run_command
from tandem.errors import UserError
from tandem.evaluation.layouts import PlannedRow
from tandem.evaluation.scores import read_aligned
from tandem.evaluation.scores import run as score
from tandem.extras.report.compare import compare_systems
from tandem.extras.report.page import embed_json
from tandem.extras.report.report_page import open_systems
from tandem.extras.report.sections import count_by_bin, describe_dataset, list_examples
from tandem.extras.report.stage_graph import group_by_box, list_stage_costs
from tandem.report.results import read_table
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.lineage import input_of, walk

LOADS = {"src", "srcset", "action", "formaction", "data", "poster", "background", "ping"}


class Page(HTMLParser):
    """Collects ids, links, whatever could load something, and the scripts."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.tags = [], [], [], []
        self.scripts, self.kind, self.tag = {}, "", ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tag = tag
        self.tags.append((tag, dict(attributes)))
        self.kind = dict(attributes).get("id") or dict(attributes).get("class") or "own"
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name == "href":
                self.links.append(value)
            if (
                name in LOADS
                or name.startswith("on")
                or tag in ("link", "iframe", "object", "embed", "base")
            ):
                self.loads.append((tag, name, value))

    def handle_data(self, data):
        if self.tag == "script":
            self.scripts.setdefault(self.kind, []).append(data)

    def handle_endtag(self, tag):
        self.tag = ""


def test_nothing_is_loaded_from_outside(report):
    text = report.read_text()
    page = Page(text)
    assert page.loads == []
    assert all(link.startswith("#") for link in page.links)
    assert len(page.scripts["vega"]) == 1
    # which knows words for loading; the policy forbids them
    text = text.replace(page.scripts["vega"][0], "")
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_every_link_has_its_target(report, world):
    page = Page(report.read_text())
    assert len(set(page.ids)) == len(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    runs = {
        Path(json.loads((Path(row["scores"]) / "stage.json").read_text())["upstream"]["run"]).name
        for row in world.rows
    }
    assert {f"#stage-{key}" for key in runs} <= set(page.links)


def test_hostile_texts_stay_texts(report):
    text = report.read_text()
    assert 'alert("x")</script>' not in text
    assert "<b>bold" not in text
    page = Page(text)
    assert set(page.scripts) == {"data", "spec", "vega", "own"}
    (data,) = map(json.loads, page.scripts["data"])
    assert any(
        '</script><script>alert("x")</script><!-- & <b>bold</b>' in passage[2]
        for passage in data["passages"]
    )


def test_embedded_json_reads_back():
    value = {"a": "</script><!-- & \u2028 \u2029 é", "b": [1, None]}
    text = embed_json(value)
    assert json.loads(text) == value
    assert not re.search("[<>&\u2028\u2029]", text)


def test_the_page_leads_with_the_answer(report):
    text = report.read_text()
    answer, first_table = (
        text.index("<h1>RocketQAv2 (re-ranker) on RocketQAv2 (retriever) has the highest RR@10"),
        text.index("<table"),
    )
    assert answer < first_table
    names = re.findall(r'<th scope="row">([^<]*)<', text[first_table:].split("</table>")[0])
    assert names[:2] == ["RocketQAv2 (re-ranker)", "RocketQAv2 (retriever)"]
    assert names[-1] == "BM25"


def test_every_part_is_there(report, world):
    text = report.read_text()
    # loss and dev of four trainings, two training lists, one pair of systems
    assert text.count('class="chart"') == text.count('class="spec"') == 4 * 2 + 2 + 1
    assert "duplicate of a positive" in text
    assert "24 undenoised lists" in text
    assert text.count("positives (24): most from 0.75 to 1") == 1
    assert "train.lr" in text
    assert "2e-05" in text
    for row in world.rows:
        assert row["system"] in text


def test_without_a_script_there_are_pictures_tables_and_words(report):
    page = Page(report.read_text())
    captions = sum(tag == "caption" for tag, _ in page.tags)
    assert captions == sum(tag == "table" for tag, _ in page.tags)
    heads = [attributes for tag, attributes in page.tags if tag == "th"]
    assert all("scope" in attributes for attributes in heads)
    plots = [attributes for tag, attributes in page.tags if attributes.get("class") == "plot"]
    assert plots
    assert all(
        attributes["role"] == "img" and len(attributes["aria-label"]) > 20 for attributes in plots
    )
    assert (
        report.read_text().count('<div class="plot" role="img"')
        == report.read_text().count('class="marks"') - 1
    )
    assert {"main", "nav", "header"} <= {tag for tag, _ in page.tags}


def test_wins_over_every_pair_of_systems(artifact_of):
    systems = {
        ("BM25", ""): artifact_of("BM25"),
        ("DE w/ BM25 Neg", ""): artifact_of("DE w/ BM25 Neg"),
    }
    grid, chart = compare_systems(systems)
    _, values = read_aligned(list(systems.values()), ["RR@10"])
    old, new = values[:, :, 0].tolist()
    won = sum(b > a for a, b in zip(old, new, strict=True))
    lost = sum(b < a for a, b in zip(old, new, strict=True))
    assert grid.title.startswith("On how many of 24 queries the row's system has a higher RR@10")
    assert grid.rows == [["BM25", "–", str(lost)], ["DE w/ BM25 Neg", str(won), "–"]]
    assert won > lost > 0
    assert f"DE w/ BM25 Neg is better on {won} queries, BM25 on {lost}" in chart
    assert compare_systems({("BM25", ""): artifact_of("BM25")})[1] is None


def test_a_system_whose_labels_leave_other_queries_is_not_compared(four_queries, corrected):
    rows = [PlannedRow.model_validate(row) for row in (*four_queries.rows[:2], corrected)]
    assert list(open_systems(rows)) == [("Old", ""), ("New", "")]
    assert list(open_systems(rows[::-1])) == [("Old, corrected", "")]
    grid, _ = compare_systems(open_systems(rows))
    assert grid.title.startswith("On how many of 4 queries")


def test_a_system_without_a_measure_of_the_others_is_not_compared(empty_world, four_queries):
    first = open_artifact(Path(four_queries.rows[0]["scores"]))
    run, data = (input_of(first, role) for role in ("run", "dataset"))
    own = empty_world.score("Old by AP", "", run, data, ["AP"])
    row = {**four_queries.rows[0], "system": "Old by AP", "scores": str(own.folder)}
    rows = [PlannedRow.model_validate(row) for row in (*four_queries.rows[:2], row)]
    assert list(open_systems(rows)) == [("Old", ""), ("New", "")]
    assert list(open_systems(rows[2:])) == [("Old by AP", "")]


def test_negatives_of_the_lists_are_counted_between_the_edges(empty_world):
    def files(draft):
        columns = {
            "label": pa.array([1, 0, 0, 0, 0, 0], pa.int8()),
            "judge": [0.9, 0.05, 0.1, 0.6, math.nan, 0.7],
        }
        columns |= {
            "score": [9.0, 0.1, 0.2, 0.3, 0.4, 0.9],
            "list": ["denoised"] * 5 + ["undenoised"],
        }
        pq.write_table(pa.table(columns), draft.path("candidates.parquet"))

    candidates = empty_world.make("candidates", "bm25", {}, files)
    assert count_by_bin(candidates, [0, 0.5, 1], "judge") == [2, 1]
    assert count_by_bin(candidates, [0, 0.5, 1], "score") == [4, 1]
    assert count_by_bin(empty_world.make("candidates", "old", {}), [0, 0.5, 1], "judge") == []


def test_examples_of_training_lists_have_their_texts(four_queries):
    data = input_of(open_artifact(Path(four_queries.rows[0]["scores"])), "dataset")
    # queries of which three are shown, and of each two negatives at most
    queries = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    columns = {"query_row": queries, "label": pa.array([1, 0, 0, 0, 1, 0, 1, 0, 1, 0], pa.int8())}
    columns |= {
        "passage_row": [0, 1, 2, 1, 0, 2, 0, 1, 0, 1],
        "score": [math.nan, 2.5, 1.25, 1, 4, 3, 2, 1, 2, 1],
    }

    def files(draft):
        pq.write_table(pa.table(columns), draft.path("candidates.parquet"))

    grid = list_examples(four_queries.make("candidates", "bm25", {}, files, dataset=data))
    assert grid.rows[:3] == [
        ["q0", "positive", "–", "a"],
        ["q0", "negative", "2.5", "b"],
        ["q0", "negative", "1.25", "c"],
    ]
    assert [row[0] for row in grid.rows[3:]] == ["q1", "q1", "q2", "q2"]
    assert list_examples(four_queries.make("candidates", "none", {}, dataset=data)) is None


def test_verdicts_and_quoted_rows_fit_into_their_columns(report, world, tmp_path):
    summary = json.loads(report.with_name("summary.json").read_text())
    summary["rows"][1]["cells"][0] |= {"printed": 77.0, "verdict": "match", "sd": 0.41}
    summary["rows"][2]["cells"][0] |= {
        "printed": 88.0,
        "verdict": "printed number is wrong (of another split)",
    }
    empty = dict.fromkeys(("value", "low", "high", "change", "p"))
    cells = [
        {"measure": cell["measure"], "printed": None, **empty}
        for cell in summary["rows"][0]["cells"]
    ]
    cells[0]["printed"] = 99.9
    row = {
        "system": "Theirs",
        "first_stage": "",
        "against": "",
        "stage": "",
        "folder": "",
        "cells": cells,
    }
    summary["rows"].append({**row, "quoted": True})
    (tmp_path / "quoted.json").write_text(json.dumps(summary))
    flags = ["--tables", str(tmp_path / "quoted.csv"), "--rows", json.dumps(world.rows)]
    run_command(["report", *flags, "--out", str(tmp_path / "report.html")])
    text = (tmp_path / "report.html").read_text()
    table = text[text.index('<table class="results systems sortable">') :].split("</table>")[0]
    head, body = table.split("<tbody>")
    rows = [len(re.findall(r"<t[dh]", row)) for row in body.split("</tr>")[:-1]]
    assert rows == [len(re.findall("<th ", head))] * 9
    assert re.search(r'class="verdict match" title="match">match<', body)
    assert re.search(
        r'class="verdict printed" title="[^"]*of another split[^"]*">printed number is wrong<', body
    )
    assert "± 0.41</a>" in body
    theirs = body[body.index("Theirs") :]
    assert "99.9" in theirs
    assert "<a " not in theirs
    page = Page(text)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_an_error_analysis_is_shown_with_its_sheet(report, world, tmp_path):
    row = {
        "query_id": "q1",
        "doc_id": "p1",
        "rank": 1,
        "score": 2.5,
        "query": "<i>why</i>",
        "title": "",
    }
    row |= {
        "passage": "x" * 900,
        "positive": "because",
        "positive_rank": None,
        "guess": "other",
        "why": "no term is shared",
    }
    facts = {
        "split": "test",
        "run": "bm25-0123456789",
        "top": 5,
        "queries": 24,
        "without_positive": 6,
        "percent": 25.0,
    }
    facts |= {"sampled": 1, "pairs": 1, "guesses": {"other": 1, "false negative": 0}}

    def files(draft):
        pq.write_table(pa.Table.from_pylist([row]), draft.path("pairs.parquet"))
        write_json(draft.path("summary.json"), facts)

    analysis = world.make("errors", "bm25", {"split": "test", "top": 5}, files)
    flags = ["--tables", str(report.with_name("summary.csv")), "--rows", json.dumps(world.rows)]
    run_command(
        [
            "report",
            *flags,
            "--added",
            json.dumps({"analysis": [str(analysis.folder)]}),
            "--out",
            str(tmp_path / "report.html"),
        ]
    )
    section = (
        (tmp_path / "report.html")
        .read_text()
        .split('<section id="analyses">')[1]
        .split("</section>")[0]
    )
    assert "6 of 24 test queries (25.0 %)" in section
    assert "&lt;i&gt;why&lt;/i&gt; <code>q1</code>" in section
    assert f">{'x' * 400}… <code>p1</code>" in section
    assert section.count("<caption") == section.count("<table")
    assert "1 of 1 pairs" in section


def test_the_kinds_of_work_are_those_of_the_run(report, world):
    stages = walk(open_artifact(Path(row["scores"])) for row in world.rows)
    boxes = {box.name: box for box in group_by_box(stages)}
    assert {name: len(box.stages) for name, box in boxes.items()} == {
        "Collection": 1, "Encoder": 3, "Sparse search": 2, "Training lists": 2, "Training": 4, "Encoding": 6,
        "Retrieval": 3, "Re-ranking": 4, "Scores": 8,
    }  # fmt: skip
    assert boxes["Training lists"].inputs == [
        "Collection", "Sparse search", "Training (denoising)", "Retrieval (negatives of the next model)",
    ]  # fmt: skip
    assert boxes["Training"].cost.startswith("4 stages · ")
    assert "from Collection, Encoding" in report.read_text()
    cost = list_stage_costs(stages.values())
    assert [len(row) for row in cost.rows] == [len(cost.head)] * len(stages)
    assert cost.links[0, 0] == f"#stage-{next(iter(stages))}"


def test_tables_need_not_be_among_the_rows_compared(report, world, tmp_path):
    rows = world.select(("BM25", ""), ("DE w/ BM25 Neg", ""))
    out = tmp_path / "few.html"
    run_command(
        [
            "report",
            "--tables",
            str(report.with_name("summary.csv")),
            "--rows",
            rows,
            "--out",
            str(out),
        ]
    )
    page = Page(out.read_text())
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert json.loads(page.scripts["data"][0])["systems"] == ["BM25", "DE w/ BM25 Neg"]


def test_queries_say_of_which_seed_they_are(four_queries, tmp_path):
    old, new, same = (row["scores"] for row in four_queries.rows)
    seeds = {1: {"Old": old, "New": new}, 2: {"Old": old, "New": same}}
    rows = [
        {"system": system, "first_stage": "", "dataset": "toy", "seed": seed, "scores": scores}
        for seed, own in seeds.items()
        for system, scores in own.items()
    ]
    systems = [{"system": system, "run": system.lower()} for system in seeds[1]]
    (tmp_path / "layout.yaml").write_text(json.dumps({"title": "Seeds", "rows": systems}))
    said = []
    for count in (1, 2):
        table = tmp_path / f"{count}.csv"
        make_table(tmp_path, tmp_path / "layout.yaml", rows[: 2 * count], table)
        out = table.with_suffix(".html")
        words = ["--tables", str(table), "--rows", json.dumps(rows[:2]), "--out", str(out)]
        assert run_command(["report", *words]) == 0
        said.append("Of several seeds, those of the first: 1." in out.read_text())
    assert said == [False, True]


def test_mistakes(report, world, tmp_path):
    out = tmp_path / "none.html"
    with pytest.raises(UserError, match="no such file"):
        run_command(
            [
                "report",
                "--tables",
                str(tmp_path / "x.csv"),
                "--rows",
                json.dumps(world.rows),
                "--out",
                str(out),
            ]
        )
    with pytest.raises(UserError, match="--rows"):
        run_command(["report", "--tables", str(report.with_name("summary.csv")), "--out", str(out)])
    assert not out.exists()


def test_a_group_of_datasets_has_tables_and_no_single_queries(world, artifact_of, tmp_path):
    params = {**artifact_of("BM25").params, "members": ["one", "two"]}
    job = world.job(
        "score",
        "bm25.test",
        params,
        **{"member.0": artifact_of("BM25"), "member.1": artifact_of("BM25")},
    )
    score(job)
    rows = json.dumps([{"system": "BM25", "first_stage": "", "scores": str(job.out)}])
    (tmp_path / "layout.yaml").write_text(
        json.dumps({"title": "Both", "rows": [{"system": "BM25", "run": "bm25"}]})
    )
    make_table(tmp_path, tmp_path / "layout.yaml", rows, tmp_path / "both.csv", dataset="both")
    out = tmp_path / "report.html"
    assert (
        run_command(
            ["report", "--tables", str(tmp_path / "both.csv"), "--rows", rows, "--out", str(out)]
        )
        == 0
    )
    page = Page(out.read_text())
    assert read_table(tmp_path / "both.json").caption == "ours: both test, 2 datasets"
    assert {"results", "lineage", "cost"} <= set(page.ids)
    assert not {"compare", "data"} & set(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_a_run_that_was_deleted_is_a_line(four_queries, tmp_path):
    row = four_queries.rows[0]
    run = Path(open_artifact(Path(row["scores"])).upstream["run"])
    shutil.rmtree(run)
    with pytest.raises(UserError, match=f"its run {run} is gone; run again to make it"):
        run_command(
            [
                "report",
                "--tables",
                "--rows",
                json.dumps([row]),
                "--out",
                str(tmp_path / "report.html"),
            ]
        )


def test_statistics_of_splits_stand_side_by_side():
    statistics = {
        "passages": {"count": 1200, "words": {"mean": 35.5}},
        "splits": {"train": {"queries": 20}, "test": {"queries": 3, "without_positive": 1}},
        "warnings": [],
    }
    corpus, splits = describe_dataset(statistics)
    assert corpus.rows == [
        ["passages, count", "1,200"],
        ["passages, words, mean", "35.50"],
        ["warnings", "–"],
    ]
    assert splits.head == ["Statistic", "train", "test"]
    assert splits.rows == [["queries", "20", "3"], ["without positive", "–", "1"]]
