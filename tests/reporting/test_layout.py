"""Layouts: the tracked ones against the papers, baselines, and one line per mistake."""

from pathlib import Path

import pytest

from tandem.errors import UserError
from tandem.reporting.layout import load_layout

PAPERS = Path(__file__).parents[2] / "config/papers"
BASE = "title: T\nbaseline: {system: A}\ncolumns:\n- {measure: RR@10}\nrows:\n- {system: A, run: bm25}\n"


def load(tmp_path, text):
    path = tmp_path / "layout.yaml"
    path.write_text(text)
    return load_layout(path)


def test_printed_values_of_the_papers():
    printed = {
        (paper, row.id): row.printed
        for paper in ("dureader_retrieval/table4", "dureader_retrieval/table5", "rocketqav2/table4")
        for row in load_layout(PAPERS / f"{paper}.yaml").rows
        if row.printed
    }
    assert [tuple(values.values()) for values in printed.values()] == [
        (21.03, 12.08, 70.00),
        (53.96, 41.53, 91.33),
        (56.80, 48.83, 70.00),
        (57.62, 51.52, 70.00),
        (74.21, 66.03, 91.33),
        (37.4, 84.9),
        (36.0, 84.5),
        (36.3, 83.9),
        (36.3, 84.9),
    ]


def test_baselines_of_the_summary():
    rows = load_layout(PAPERS / "summary.yaml").rows
    assert {row.id: row.baseline for row in rows} == {
        ("BM25", ""): None,
        ("DE w/ BM25 Neg", ""): ("BM25", ""),
        ("CE w/ BM25 Neg", "BM25"): ("BM25", ""),
        ("CE w/ DE Neg", "BM25"): ("BM25", ""),
        ("CE w/ DE Neg", "DE w/ BM25 Neg"): ("DE w/ BM25 Neg", ""),
        ("RocketQAv2 (retriever)", ""): ("DE w/ BM25 Neg", ""),
        ("RocketQAv2 (re-ranker)", "RocketQAv2 (retriever)"): ("RocketQAv2 (retriever)", ""),
    }
    assert rows[-1].run == "rocketqav2.retriever+rocketqav2.reranker"


def test_hidden_rows_are_baselines_only():
    rows = load_layout(PAPERS / "dureader_retrieval/table5.yaml").rows
    hidden = [row.system for row in rows if row.hidden]
    assert hidden == ["BM25", "DE w/ BM25 Neg", "RocketQAv2 (retriever)"]
    assert all(row.baseline == (row.first_stage, "") for row in rows if not row.hidden)


def test_a_column_is_named_as_printed_or_as_the_measure(tmp_path):
    layout = load(tmp_path, BASE.replace("- {measure: RR@10}", "- {measure: RR@10, name: MRR@10}\n- {measure: AP}"))
    assert [(column.measure, column.name) for column in layout.columns] == [("RR@10", "MRR@10"), ("AP", "AP")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BASE + "colour: red\n", "the layout: .*'colour' was unexpected"),
        (BASE.replace("run: bm25", "run: 3"), "rows.0.run: 3 is not of type 'string'"),
        (BASE + "- {system: A, run: de}\n", "rows.1: A is there twice"),
        (
            BASE + "- {system: B, run: de, baseline: {system: C}}\n",
            "rows.1: baseline C is not a row; the rows are A, B",
        ),
        (BASE + "- {system: B, run: de, printed: {AP: 3}}\n", "rows.1.printed.AP: no such column"),
        ("title: [", "not valid YAML"),
        ("", "the layout: None is not of type 'object'"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, text, told):
    with pytest.raises(UserError, match=told) as error:
        load(tmp_path, text)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "layout.yaml"))


def test_a_missing_layout(tmp_path):
    with pytest.raises(UserError, match="no such layout"):
        load_layout(tmp_path / "none.yaml")
