"""Orders of two rows, tested below a table: numbers by hand, in every format; rows that are not there."""

import json
from pathlib import Path

import pytest
from table_plans import make_table

from tandem.errors import UserError
from tandem.evaluation.layouts import load_layout
from tandem.report.formats import make_orders_grid
from tandem.report.results import Cell, FilledOrder, Table, read_table
from tandem.report.table_commands import show

PAPERS = Path(__file__).parents[3] / "config/papers"
SAME = "Same <b>& 1_%"
LAYOUT = f"""
title: Orders
baseline: {{system: Old}}
columns:
  - {{measure: RR@10, name: MRR@10}}
  - {{measure: Success@1}}
rows:
  - {{system: Old, run: bm25}}
  - {{system: New, run: new}}
  - {{system: "{SAME}", run: same}}
orders:
  - {{claim: new beats same, higher: New, lower: "{SAME}"}}
  - {{claim: old beats new, higher: {{system: Old}}, lower: New}}
  - {{claim: same beats old, higher: "{SAME}", lower: Old}}
"""


@pytest.fixture
def table(four_queries):
    path = four_queries.root / "layout.yaml"
    path.write_text(LAYOUT)
    rows = four_queries.select(("Old", ""), ("New", ""), (SAME, ""))
    return make_table(four_queries.root, path, rows, four_queries.root / "tables/t.csv")


def test_each_pair_is_tested_on_its_own_queries(table):
    # Reciprocal ranks 1/2, 1 and 1/2 on each of four queries: p of a difference is 2/16, three times that after Holm.
    orders = read_table(table.with_suffix(".json")).orders
    assert [(order.claim, order.higher, order.lower) for order in orders] == [
        ("new beats same", "New", SAME), ("old beats new", "Old", "New"), ("same beats old", SAME, "Old"),
    ]  # fmt: skip
    numbers = [[(cell.change, cell.p, cell.margin) for cell in order.cells] for order in orders]
    assert numbers == [
        [(50.0, 0.375, 0.0), (100.0, 0.375, 0.0)],
        [(-50.0, 0.375, 0.0), (-100.0, 0.375, 0.0)],
        [(0.0, 1.0, 0.0), (0.0, 1.0, 0.0)],
    ]


def test_orders_of_the_same_runs_are_one_test_and_those_without_a_test_are_named(
    four_queries, capsys
):
    rows, _ = LAYOUT.split("orders:")
    rows += """
  - {system: New again, run: new}
  - {system: Missing, run: x}
orders:
  - {claim: new beats old, higher: New, lower: Old}
  - {claim: again beats old, higher: New again, lower: Old}
  - {claim: old beats new, higher: Old, lower: New}
  - {claim: again beats new, higher: New again, lower: New}
  - {claim: missing beats old, higher: Missing, lower: Old}
"""
    layout = four_queries.root / "layout.yaml"
    layout.write_text(rows)
    scored = json.loads(four_queries.select(("Old", ""), ("New", ""), (SAME, "")))
    scored.append({**scored[1], "system": "New again", "same_as": "New"})
    scored.append({"system": "Missing", "absent": "toy has no vectors"})
    path = make_table(four_queries.root, layout, scored, four_queries.root / "tables/t.csv")
    orders = read_table(path.with_suffix(".json")).orders
    # 2 of 16 sign patterns, and one comparison
    assert [(order.claim, order.cells[0].change, order.cells[0].p) for order in orders] == [
        ("new beats old", 50.0, 0.125),
        ("again beats old", 50.0, 0.125),
        ("old beats new", -50.0, 0.125),
    ]
    show(path)
    note = (
        "Not tested: again beats new (New again and New are the same run); "
        "missing beats old (Missing has no scores)."
    )
    assert note in " ".join(capsys.readouterr().out.split())
    for suffix in (".md", ".tex", ".html"):
        assert note in path.with_suffix(suffix).read_text()


def test_an_order_of_rows_by_other_queries_says_so(four_queries, corrected):
    layout = four_queries.root / "layout.yaml"
    layout.write_text("""
title: Corrected
columns: [{measure: RR@10}]
rows:
  - {system: Old, run: a}
  - {system: "Old, corrected", run: a, labels: corrected}
orders: [{claim: corrected beats not, higher: "Old, corrected", lower: Old}]
""")
    rows = [four_queries.rows[0], corrected]
    path = make_table(four_queries.root, layout, rows, four_queries.root / "tables/t.csv")
    assert read_table(path.with_suffix(".json")).orders == []
    note = "Not tested: corrected beats not (other queries are scored)."
    assert note in path.with_suffix(".md").read_text()


def test_they_stand_below_the_table_in_every_format(table, capsys):
    show(table)
    texts = {suffix: table.with_suffix(suffix).read_text() for suffix in (".md", ".tex", ".html")}
    texts["show"] = capsys.readouterr().out
    assert [
        name
        for name, text in texts.items()
        if "no difference shown" not in text.split("old beats new")[1]
    ] == []
    assert (
        "| old beats new | Old | New | no difference shown (±50.00): −50.00, p = 0.375 |"
        in texts[".md"]
    )
    assert "<b>" not in texts[".html"]


def test_whether_an_order_holds_is_said_in_words():
    cells = [
        Cell("RR@10", None, change=3.38, p=0.003, margin=2.0),
        Cell("RR@10", None, change=-6.48, p=0.0004, margin=2.0),
        Cell("RR@10", None, change=0.4, p=1.0, margin=2.05),
        Cell("RR@10", None),
    ]
    orders = [FilledOrder("a > b", "A", "B", [cell]) for cell in cells]
    grid = make_orders_grid(Table("T", None, None, 2, "", columns=[], rows=[], orders=orders))
    assert [row[-1] for row in grid.rows] == [
        "holds: +3.38, p = 0.003",
        "the other way round: −6.48, p < 0.001",
        "no difference shown (±2.05): +0.40, p = 1.000",
        "–",
    ]
    assert make_orders_grid(Table("T", None, None, 2, "", columns=[], rows=[])) is None


@pytest.mark.parametrize(
    ("key", "wrong"), [("higher", "Newer"), ("lower", "{system: New, first_stage: Old}")]
)
def test_a_row_that_is_not_there_is_named(tmp_path, key, wrong):
    order = {"claim": "x", "higher": "New", "lower": "Old"} | {key: wrong}
    text = (
        LAYOUT.split("orders:")[0]
        + "orders:\n  - {"
        + ", ".join(f"{k}: {v}" for k, v in order.items())
        + "}\n"
    )
    (tmp_path / "layout.yaml").write_text(text)
    with pytest.raises(
        UserError, match=rf"layout.yaml: orders.0: {key} New.* is not a row; the rows are Old, New"
    ):
        load_layout(tmp_path / "layout.yaml")


@pytest.mark.parametrize("named", ["Judge on Old", "{system: Judge, first_stage: Old}"])
def test_a_re_ranked_row_goes_by_the_name_that_the_table_shows(tmp_path, named):
    rows, _ = LAYOUT.split("orders:")
    row = "  - {system: Judge, first_stage: Old, run: old+judge}\n"
    order = f"orders:\n  - {{claim: re-ranked > its list, higher: {named}, lower: Old}}\n"
    (tmp_path / "layout.yaml").write_text(rows + row + order)
    assert [order.higher.id for order in load_layout(tmp_path / "layout.yaml").orders] == [
        ("Judge", "Old")
    ]


def test_an_order_is_of_two_rows(tmp_path):
    (tmp_path / "layout.yaml").write_text(
        LAYOUT.replace("higher: {system: Old}, lower: New", "higher: New, lower: New")
    )
    with pytest.raises(UserError, match=r"orders.1: New is both higher and lower"):
        load_layout(tmp_path / "layout.yaml")


def test_a_quoted_row_has_no_scores_to_test(tmp_path):
    text = LAYOUT.replace(
        "{system: New, run: new}", "{system: New, quoted: true, printed: {RR@10: 40}}"
    )
    (tmp_path / "layout.yaml").write_text(text)
    with pytest.raises(UserError, match=r"orders.0: higher New is not a row"):
        load_layout(tmp_path / "layout.yaml")


def test_those_of_the_surveys_name_rows_of_their_table():
    assert len(load_layout(PAPERS / "systems.yaml").orders) == 38
