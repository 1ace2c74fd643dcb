"""Tables from real score artifacts: exact content, escaping, and the terminal's view."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_plans import make_table

from tandem.errors import UserError
from tandem.extras.report.table_answers import answer_question, rank_rows
from tandem.report.formats import (
    MARGIN,
    ORDERS,
    draw_conclusion,
    format_comparison,
)
from tandem.report.grids import (
    describe_p,
    format_difference,
    format_four_decimals,
    format_number,
    format_p,
    mark,
)
from tandem.report.results import (
    BestSystem,
    Cell,
    FilledColumn,
    FilledRow,
    Table,
    read_table,
)
from tandem.report.scored import scale_value
from tandem.report.table_commands import show, write_table
from tandem.store.artifact import open_artifact
from tandem.store.lineage import input_of

PAPERS = Path(__file__).parents[2] / "config/papers"
ODD = "Same <b>& 1_%"
# from the baseline, and their p
CHANGES = ((8.15, 0.045), (-2.0, 0.0004), (1.5, 0.089), (2.5, 0.06), (None, None))
LAYOUT = f"""
title: Odd & even
paper: {{citation: "A <et> al.", table: Table 9}}
printed_on: {{dataset: real, name: The Real One, split: test}}
decimals: 1
baseline: {{system: Old}}
columns:
  - {{measure: RR@10, name: MRR@10}}
  - {{measure: Success@1}}
rows:
  - {{system: Old, run: bm25, printed: {{RR@10: 40}}}}
  - {{system: New, run: new}}
  - {{system: "{ODD}", run: same}}
"""


def table(world, rows=None, layout=LAYOUT, **changed):
    path = world.root / "layout.yaml"
    path.write_text(layout)
    rows = rows or world.select(("Old", ""), ("New", ""), (ODD, ""))
    return make_table(
        world.root, path, rows, changed.pop("out", world.root / "tables/t.csv"), **changed
    )


def run_of(world, system):
    scores = next(row["scores"] for row in world.rows if row["system"] == system)
    return Path(json.loads((Path(scores) / "stage.json").read_text())["upstream"]["run"]).name


def test_csv_to_the_letter(four_queries):
    # Reciprocal ranks 1/2, 1 and 1/2 on every query. New - Old = (1/2)*4: only ++++ and ---- of 16 sign patterns reach
    # its sum, p = 1/8, and 1/4 after Holm's correction for two comparisons.
    old, new, same = (run_of(four_queries, system) for system in ("Old", "New", ODD))
    shown = "no difference shown,0.0000,\n"
    assert table(four_queries).read_text() == (
        "system,first_stage,dataset,split,measure,printed,value,low,high,change,p,mark,stage,"
        "name,sd,seeds,verdict,printed_dataset,printed_split,conclusion,margin,before\n"
        f"Old,,toy,test,RR@10,40.0,50.0000,50.0000,50.0000,,,,{old},MRR@10,,,,real,test,,,\n"
        f"Old,,toy,test,Success@1,,0.0000,0.0000,0.0000,,,,{old},Success@1,,,,real,test,,,\n"
        f"New,,toy,test,RR@10,,100.0000,100.0000,100.0000,50.0000,0.250000,,{new},MRR@10,,,,real,test,{shown}"
        f"New,,toy,test,Success@1,,100.0000,100.0000,100.0000,100.0000,0.250000,,{new},Success@1,,,,real,test,{shown}"
        f"{ODD},,toy,test,RR@10,,50.0000,50.0000,50.0000,0.0000,1.000000,,{same},MRR@10,,,,real,test,{shown}"
        f"{ODD},,toy,test,Success@1,,0.0000,0.0000,0.0000,0.0000,1.000000,,{same},Success@1,,,,real,test,{shown}"
    )


def test_p_is_corrected_over_the_comparisons_of_a_measure_on_a_dataset(four_queries):
    # Each test alone: p = 1/8 of New, 1 of the odd one. On `one` both are compared, on `two` New alone.
    layout = LAYOUT.split("columns:")[0] + (
        "columns: [{measure: RR@10, dataset: one}, {measure: RR@10, dataset: two}]\n"
        "rows:\n  - {system: Old, run: old}\n"
        "  - {system: New, run: new, baseline: {system: Old}}\n"
        f'  - {{system: "{ODD}", run: same, columns: [one], baseline: {{system: Old}}}}\n'
    )
    selected = json.loads(four_queries.select(("Old", ""), ("New", ""), (ODD, "")))
    rows = [{**row, "column": "one"} for row in selected]
    rows += [{**row, "column": "two"} for row in selected[:2]]
    out = table(four_queries, rows=rows, layout=layout)
    new = read_table(out.with_suffix(".json")).rows[1]
    assert [cell.p for cell in new.cells] == [0.25, 0.125]
    assert "comparisons of a column" in out.with_suffix(".md").read_text()


def test_markdown_says_what_stands_in(four_queries):
    text = table(four_queries).with_suffix(".md").read_text()
    lines = text.splitlines()
    assert "printed: The Real One test; ours: toy test, 4 queries (a stand-in" in lines[0]
    assert (
        lines[2]
        == "| System | re-ranks | MRR@10 (RR@10) | printed | difference | Success@1 | difference | p against |"
    )
    assert (
        lines[4] == r"| Old | – | 50.00 \[50.00, 50.00\] | 40.0 | – | 0.00 \[0.00, 0.00\] | – | – |"
    )
    assert (
        r"| **100.00 \[100.00, 100.00\]** | – | no difference shown (±50.00): +50.00, p = 0.250 |"
        in lines[5]
    )
    assert lines[6].startswith(r"| Same \<b\>& 1\_% |")
    assert "<b>" not in text


def test_html_escapes_and_links_the_runs_manifest(four_queries):
    path = table(four_queries).with_suffix(".html")
    text = path.read_text()
    assert "<b>" not in text
    assert "Same &lt;b&gt;&amp; 1_%" in text
    assert "http" not in text.replace("http-equiv", "")
    anchor = text.split('data-value="100.0"><a href="#')[1].split('"')[0]
    behind = text.split(f'<tr id="{anchor}">')[1].split("</tr>")[0]
    link = behind.split('<a href="')[1].split('"')[0]
    assert json.loads((path.parent / link).read_text())["key"] == run_of(four_queries, "New")


def test_latex_escapes(four_queries):
    text = table(four_queries).with_suffix(".tex").read_text()
    assert r"Same \ensuremath{<}b\ensuremath{>}\& 1\_\%" in text
    assert (
        r"System & re-ranks & MRR@10 (RR@10) & printed & difference & Success@1 & difference & p against \\"
        in text
    )
    assert r"\textbf{100.00 {[}100.00, 100.00{]}}" in text


def test_same_bytes_twice(four_queries):
    first = {path.name: path.read_bytes() for path in table(four_queries).parent.iterdir()}
    assert len(first) == 5
    assert first == {path.name: path.read_bytes() for path in table(four_queries).parent.iterdir()}


def test_on_its_own_dataset_nothing_stands_in_and_differences_are_taken(four_queries):
    path = table(four_queries, dataset="real")
    assert r"| 50.00 \[50.00, 50.00\] | 40.0 | +10.00 | – |" in path.with_suffix(".md").read_text()
    assert (
        read_table(path.with_suffix(".json")).caption
        == "printed: The Real One test; ours: real test, 4 queries"
    )


def test_what_stages_note_and_warn_of_stands_below_the_table_in_every_format(four_queries, capsys):
    (manifest,) = four_queries.root.glob("results/toy/dataset/*/stage.json")
    content = json.loads(manifest.read_text())
    facts = {
        "warnings": ["7 passages hold no text"],
        "notes": ["de, the first 2 re-ranked: chosen on dev"],
    }
    manifest.write_text(json.dumps(content | {"facts": facts}))
    path = table(four_queries)  # three rows are above it: the line stands once
    texts = {suffix: path.with_suffix(suffix).read_text() for suffix in (".md", ".tex", ".html")}
    show(path)
    texts["show"] = " ".join(capsys.readouterr().out.split())
    for line in (
        "Warning: dataset toy: 7 passages hold no text.",
        "toy: de, the first 2 re-ranked: chosen on dev.",
    ):
        assert [suffix for suffix, text in texts.items() if text.count(line) != 1] == []


def test_show_finds_a_table_by_its_name(four_queries, monkeypatch, capsys):
    monkeypatch.chdir(four_queries.root)
    path = table(four_queries)
    folder = four_queries.root / "results/tables/mine"
    folder.mkdir(parents=True)
    shutil.copy(path.with_suffix(".json"), folder / "table9.json")
    show(path)
    by_path = capsys.readouterr().out
    show(Path("mine/table9"))
    assert capsys.readouterr().out == by_path
    with pytest.raises(UserError, match=r"mine/table8: is not a table; did you mean mine/table9\?"):
        show(Path("mine/table8"))
    shutil.copy(path.with_suffix(".json"), folder / "table9.v2.json")
    show(Path("mine/table9.v2"))
    assert capsys.readouterr().out == by_path


def test_show_takes_the_names_that_lineage_takes(four_queries, monkeypatch, capsys):
    monkeypatch.chdir(four_queries.root)
    path = table(four_queries, out=four_queries.root / "results/mine/tables/paper/table9.csv")
    show(path)
    by_path = capsys.readouterr().out
    show(Path("mine/paper/table9"))
    assert capsys.readouterr().out == by_path
    with pytest.raises(
        UserError, match=r"mine/paper/table8: is not a table; did you mean mine/paper/table9\?"
    ):
        show(Path("mine/paper/table8"))


@pytest.mark.parametrize("name", ["mine/sweeps/lr", "results/mine/sweeps/lr.csv"])
def test_show_says_where_a_sweep_is_seen(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = Path("results/mine/sweeps/lr.json")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    files = r"results/mine/sweeps/lr\.html, or results/mine/sweeps/lr\.md"
    with pytest.raises(
        UserError, match=f"^{name}: is a sweep, not a table; open its page {files}$"
    ):
        show(Path(name))


def test_show_is_aligned_and_tells_every_p(four_queries, capsys):
    path = table(four_queries)
    show(path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Table 9: Odd & even · printed: The Real One test; ours: toy test")
    assert lines[2].split() == [
        "#",
        "System",
        "re-ranks",
        "MRR@10",
        "(RR@10)",
        "printed",
        "p",
        "Success@1",
        "p",
        "p",
        "against",
    ]
    assert lines[5].split() == ["2", "New", "–", "100.00", "–", "0.250", "100.00", "0.250", "#1"]
    assert lines[2].index("p against") == lines[5].rindex("#")
    assert "▲ above and ▼ below the row's baseline" in " ".join(lines)


def test_the_papers_layouts_fill_from_a_whole_run(world, tmp_path):
    for name in ("dureader_retrieval/table4", "dureader_retrieval/table5", "summary"):
        systems = [(row["system"], row["first_stage"]) for row in world.rows]
        if name.endswith("4"):
            systems = [systems[at] for at in (0, 2, 6)]
        else:
            systems.remove(("Encoder, untrained", ""))
        if name == "summary":
            systems.remove(("CE w/ DE Neg", "BM25"))
        rows = json.loads(world.select(*systems))
        if name == "summary":
            rows.append({"system": "Encoder, untrained", "absent": "toy has no vectors"})
            rows.append({"system": "CE w/ DE Neg", "first_stage": "BM25", "absent": "toy is cut"})
        make_table(tmp_path, PAPERS / f"{name}.yaml", rows, tmp_path / f"{name}.csv")
    notes = (tmp_path / "summary.md").read_text()
    assert "Encoder, untrained is not made: toy has no vectors." in notes
    assert "CE w/ DE Neg on BM25 is not made: toy is cut." in notes
    filled = read_table(tmp_path / "dureader_retrieval/table5.json")
    assert [(row.system, row.against) for row in filled.rows] == [
        ("CE w/ BM25 Neg", "BM25"),
        ("CE w/ DE Neg", "BM25"),
        ("CE w/ DE Neg", "DE w/ BM25 Neg"),
        ("RocketQAv2 (re-ranker)", "RocketQAv2 (retriever)"),
    ]
    cell = filled.rows[0].cells[0]
    assert isinstance(cell, Cell)
    assert cell.low < cell.value < cell.high


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"out": Path("t.html")}, "must end in .csv"),
        ({"split": "dev"}, "was scored on split test, but planned is dev"),
        (
            {"rows": '[{"system": "Old", "first_stage": "", "scores": "/nowhere"}]'},
            "not a finished artifact",
        ),
    ],
)
def test_mistakes_write_nothing(four_queries, changed, message):
    with pytest.raises(UserError, match=message):
        table(four_queries, **changed)
    assert not (four_queries.root / "tables").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a table's plan .*Invalid JSON"),
        (
            '{"name": "t", "layout": {"title": "T"}}',
            r"is not a table's plan \(rows: Field required\)",
        ),
        (
            '{"name": "t", "layout": {"title": "T"}, "rows": [{"scores": "x"}]}',
            "rows.0.system: Field required",
        ),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_broken_plan_is_one_line(tmp_path, content, message):
    plan = tmp_path / "t.plan"
    if content is not None:
        plan.write_text(content)
    with pytest.raises(UserError, match=message) as error:
        write_table(plan=plan, out=tmp_path / "t.csv")
    assert "\n" not in str(error.value)


def test_rows_must_be_those_of_the_layout(four_queries):
    with pytest.raises(UserError, match="New has no scores"):
        table(four_queries, rows=four_queries.select(("Old", "")))
    with pytest.raises(UserError, match="New is not a row of"):
        table(four_queries, layout=LAYOUT.replace("  - {system: New, run: new}\n", ""))
    with pytest.raises(UserError, match="Old is there twice"):
        table(four_queries, rows=four_queries.select(("Old", ""), ("Old", "")))


def test_show_needs_a_table(tmp_path):
    with pytest.raises(UserError, match="no such file; `tandem run` writes it"):
        show(tmp_path / "t.csv")
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(UserError, match="not a table"):
        show(tmp_path / "t.csv")


def test_counts_are_shown_as_they_are_beside_shares_in_percent(counted, tmp_path, capsys):
    layout = tmp_path / "counted.yaml"
    layout.write_text("""
title: Counted
baseline: {system: Old}
columns: [{measure: NumRet}, {measure: RR@10}]
rows: [{system: Old, run: a, printed: {NumRet: 3.1}}, {system: New, run: b}]
""")
    path = make_table(tmp_path, layout, counted, tmp_path / "counted.csv")
    filled = read_table(path.with_suffix(".json"))
    old, new = (filled_row.cells for filled_row in filled.rows)
    assert [(cell.value, cell.low, cell.high) for cell in old] == [(3, 3, 3), (50, 50, 50)]
    # one passage fewer, the relevant one at rank 1 instead of 2; without chance over queries no margin
    assert [(cell.value, cell.change, cell.margin) for cell in new] == [(2, -1, 0), (100, 50, 0)]
    assert (filled.best.value, filled.best.over) == (3, "")
    assert ",NumRet,3.10,3.0000,3.0000,3.0000," in path.read_text()
    show(path)
    shown = capsys.readouterr().out
    assert "2.00" in shown
    texts = [path.with_suffix(ending).read_text() for ending in (".md", ".tex", ".html")]
    for text in [shown, *texts]:
        assert "Values in percent (NumRet as they are), the best" in " ".join(text.split())


def test_a_measure_that_one_row_lacks_stays_for_the_others(counted, empty_world, tmp_path):
    old, new = counted
    scores = open_artifact(Path(new["scores"]))
    run, data = (input_of(scores, role) for role in ("run", "dataset"))
    shallow = empty_world.score("Shallow", "", run, data, ["RR@10"])
    rows = [old, new, {**new, "system": "Shallow", "scores": str(shallow.folder)}]
    layout = tmp_path / "three.yaml"
    layout.write_text("""
title: Three
baseline: {system: Old}
columns: [{measure: RR@10}, {measure: NumRet}]
rows: [{system: Old, run: a}, {system: New, run: b}, {system: Shallow, run: c}]
""")
    filled = read_table(
        make_table(tmp_path, layout, rows, tmp_path / "three.csv").with_suffix(".json")
    )
    values = [[cell.value for cell in own.cells] for own in filled.rows]
    assert values == [[50, 3], [100, 2], [100, None]]
    assert [[cell.change for cell in own.cells] for own in filled.rows[1:]] == [
        [50, -1],
        [50, None],
    ]
    assert filled.caption == "ours: toy test, 4 queries"


def test_two_datasets_without_a_heading_are_told_apart(four_queries):
    layout = """
title: Two
columns: [{measure: RR@10, dataset: one}, {measure: RR@10, dataset: two}]
rows: [{system: Old, run: a}, {system: New, run: b}]
"""
    old, new = json.loads(four_queries.select(("Old", ""), ("New", "")))
    rows = [
        {**old, "column": "one", "dataset": "one"},
        {**old, "column": "two", "dataset": "two"},
        {"system": "New", "column": "one", "absent": "dataset one has answers and no qrels"},
        {**new, "column": "two", "dataset": "two"},
    ]
    path = table(four_queries, rows=json.dumps(rows), layout=layout)
    filled = read_table(path.with_suffix(".json"))
    assert filled.names == ["one: RR@10", "two: RR@10"]
    assert [cell.value for cell in filled.rows[1].cells] == [None, 100]
    note = "New is not measured everywhere: dataset one has answers and no qrels."
    assert note in path.with_suffix(".md").read_text()


def test_rows_whose_labels_leave_other_queries_stand_side_by_side(four_queries, corrected):
    layout = """
title: Corrected
columns: [{measure: RR@10}]
rows:
  - {system: Old, run: a}
  - {system: "Old, corrected", run: a, labels: corrected, baseline: {system: Old}}
"""
    rows = [four_queries.rows[0], corrected]
    path = table(four_queries, rows=json.dumps(rows), layout=layout)
    filled = read_table(path.with_suffix(".json"))
    assert [(own.cells[0].value, own.cells[0].p) for own in filled.rows] == [(50, None)] * 2
    assert filled.caption == "ours: toy test, 4 queries, toy test, 3 queries"
    note = "Old, corrected is not tested against Old: other queries are scored."
    for suffix in (".md", ".tex", ".html"):
        assert path.with_suffix(suffix).read_text().count(note) == 1


@pytest.fixture
def relabelled(four_queries):
    """`relabelled(queries)`: a table of plain rows and of rows by corrected labels, which keep so many queries.

    Its reference has the relevant passage at rank 3. By the corrected labels `b` is relevant: Old has it at rank 1.
    """
    world = four_queries
    old = open_artifact(Path(world.rows[0]["scores"]))
    run, data = (input_of(old, role) for role in ("run", "dataset"))
    lists = [(f"q{n}", ["b", "c", "a"], [3, 2, 1]) for n in range(4)]
    low = world.make("bm25", "low", {}, lists, dataset=data)
    world.score("Low", "", low, data)

    def make(queries):
        def files(draft):
            qrels = pq.read_table(data.path("qrels.parquet")).slice(0, queries)
            docs = pa.array(["b"] * queries)
            pq.write_table(qrels.set_column(1, "doc_id", docs), draft.path("qrels.parquet"))

        labels = world.make("relabel", f"corrected{queries}", {}, files, dataset=data)
        world.score("Old, corrected", "", run, data, labels=labels)
        new = input_of(open_artifact(Path(world.rows[1]["scores"])), "run")
        world.score("New, corrected", "", new, data, labels=labels)
        layout = """
title: Corrected
columns: [{measure: RR@10}]
rows:
  - {system: Low, run: low}
  - {system: "New, corrected", run: new, labels: corrected}
  - {system: "Old, corrected", run: old, labels: corrected}
  - {system: Old, run: old, baseline: {system: Low}}
"""
        names = ("Low", "New, corrected", "Old, corrected", "Old")
        rows = world.select(*((name, "") for name in names))
        path = table(world, rows=rows, layout=layout)
        return read_table(path.with_suffix(".json")), path.with_suffix(".md").read_text()

    return make


@pytest.mark.parametrize("queries", [3, 4])
def test_the_best_is_of_the_same_queries_and_labels(relabelled, queries):
    filled, text = relabelled(queries)
    values = [row.cells[0].value for row in filled.rows]
    assert values == [33.3333, 50, 100, 50]
    # 1/2 instead of 1/3 on each of four queries: 2 of 16 sign patterns. 100 is of other labels.
    best = BestSystem("Old", "RR@10", 50.0, "Low", 16.6667, 0.125, among="toy test")
    assert filled.best == best
    # the report names the queries, and has their rows first
    assert answer_question(filled)[0].startswith("Old has the highest RR@10 on toy test: 50.0, ")
    ranked = [row.system for row in rank_rows(filled)]
    assert ranked == ["Old", "Low", "Old, corrected", "New, corrected"]
    bold = [line.split(" | ")[0] for line in text.splitlines() if "**" in line and "|" in line]
    assert bold == ["| Old, corrected", "| Old"]
    assert "Values in percent, the best of the same queries and labels in bold." in text


def test_a_table_that_has_no_share_is_not_in_percent(counted, tmp_path, capsys):
    layout = tmp_path / "counted.yaml"
    layout.write_text("{title: T, columns: [{measure: NumRet}], rows: [{system: Old, run: a}]}")
    show(make_table(tmp_path, layout, counted[:1], tmp_path / "t.csv"))
    assert "Values as the measures have them, not in percent, the best" in capsys.readouterr().out


def test_percent_is_stable_against_the_last_bits():
    # 1/640 is 0.15625 %: a tie at the fourth decimal that summation noise could tip either way.
    assert (
        scale_value(1 / 640, "RR@10")
        == scale_value(1 / 640 * (1 + 1e-15), "RR@10")
        == scale_value(1 / 640 * (1 - 1e-15), "RR@10")
    )


def test_what_rounds_to_nothing_has_no_minus():
    assert str(scale_value(-1e-9, "RR@10")) == str(scale_value(-0.0, "NumRet")) == "0.0"
    assert (format_number(-0.004), format_number(-0.005001)) == ("0.00", "-0.01")
    assert (format_difference(-0.04, 1), format_difference(-0.06, 1)) == ("+0.0", "−0.1")
    assert format_four_decimals(-0.0) == "0.0000"


def test_marks_and_probabilities():
    assert [mark(1.0, p) for p in (None, 0.05, 0.049)] == ["", "", "▲"]
    assert [mark(-1.0, p) for p in (None, 0.05, 0.049)] == ["", "", "▼"]
    assert [format_p(p) for p in (None, 0.00099, 0.001, 1.0)] == ["–", "<0.001", "0.001", "1.000"]
    # What is marked never reads as 0.050.
    assert [format_p(p) for p in (0.0494, 0.0496, 0.05, 0.0504)] == [
        "0.049",
        "<0.05",
        "0.050",
        "0.050",
    ]
    assert [describe_p(p) for p in (None, 0.0004, 0.0496, 0.05)] == [
        "p = –",
        "p < 0.001",
        "p < 0.05",
        "p = 0.050",
    ]


def rewritten(world, system, **changed):
    """Rows of the three systems, one of them with a changed row."""
    rows = json.loads(world.select(("Old", ""), ("New", ""), (ODD, "")))
    return json.dumps([row | (changed if row["system"] == system else {}) for row in rows])


def test_what_a_reader_may_conclude():
    cells = [Cell("RR@10", None, 50.0, 48.0, 52.0, change, p, margin=1.9) for change, p in CHANGES]
    unsure = ["no difference shown (±1.90)", "no difference shown (±2.50)"]
    assert [draw_conclusion(cell) for cell in cells] == ["above", "below", *unsure, ""]
    assert [format_comparison(cell) for cell in cells] == [
        "above: +8.15, p = 0.045",
        "below: −2.00, p < 0.001",
        "no difference shown (±1.90): +1.50, p = 0.089",
        "no difference shown (±2.50): +2.50, p = 0.060",
        "–",
    ]
    assert all("at least the difference itself" in note for note in (MARGIN, ORDERS))


def test_a_table_never_mixes_generations(four_queries):
    planned = run_of(four_queries, "New")
    table(four_queries, rows=rewritten(four_queries, "New", run=planned))
    with pytest.raises(
        UserError, match=f"scores run {planned}, but planned is s1-0000000000; a table never mixes"
    ):
        table(four_queries, rows=rewritten(four_queries, "New", run="s1-0000000000"))


def test_a_copied_or_outdated_score_is_refused(four_queries, tmp_path):
    folder = Path(next(row["scores"] for row in four_queries.rows if row["system"] == "New"))
    copy = folder.with_name("s1-1111111111")
    shutil.copytree(folder, copy)
    with pytest.raises(
        UserError, match=f"its manifest is of {folder.name}; delete the folder and run again"
    ):
        table(four_queries, rows=rewritten(four_queries, "New", scores=str(copy)))
    manifest = json.loads((folder / "stage.json").read_text())
    (folder / "stage.json").write_text(json.dumps(manifest | {"version": 0}))
    with pytest.raises(UserError, match="was made by version 0 of score"):
        table(four_queries)


def test_quoted_and_absent_rows_have_printed_values_and_no_run(four_queries):
    layout = LAYOUT + "  - {system: Theirs, quoted: true, printed: {RR@10: 77.7}}\n"
    layout += "  - {system: Missing, run: x, baseline: {system: New}, printed: {RR@10: 66.6}}\n"
    rows = json.loads(four_queries.select(("Old", ""), ("New", ""), (ODD, "")))
    rows.append({"system": "Missing", "first_stage": "", "absent": "toy has no split unlabelled"})
    path = table(four_queries, rows=json.dumps(rows), layout=layout)
    lines = path.with_suffix(".md").read_text().splitlines()
    assert lines[7] == "| Theirs | – | – | 77.7 | – | – | – | quoted |"
    assert lines[8] == "| Missing | – | – | 66.6 | – | – | – | quoted |"
    assert (
        "Missing is only printed: toy has no split unlabelled."
        in path.with_suffix(".md").read_text()
    )
    filled = read_table(path.with_suffix(".json"))
    assert [row.quoted for row in filled.rows] == [False, False, False, True, True]
    assert filled.rows[3].cells[0].value is None
    assert "Theirs,,,,RR@10,77.7,,,,,,,,MRR@10,,,,real,test,,," in path.read_text().splitlines()
    assert '<a href="#row-' not in path.with_suffix(".html").read_text().split("Theirs")[1]


def test_columns_of_queries_that_are_not_there_are_only_printed_or_left_out(four_queries):
    layout = LAYOUT.replace(
        "rows:",
        "  - {measure: RR@10, dataset: dl, dataset_name: Deep}\n  - {measure: AP, dataset: dl}\n"
        "splits: {dl: {of: real, split: dl19}}\nrows:",
    )
    layout = layout.replace("RR@10: 40", "dl RR@10: 70")
    path = table(four_queries, layout=layout, skipped={"dl": "dataset toy has test, and no dl19"})
    filled = read_table(path.with_suffix(".json"))
    assert [column.label for column in filled.columns] == [
        "MRR@10 (RR@10)",
        "Success@1",
        "Deep: RR@10",
    ]
    cell = filled.rows[0].cells[2]
    assert (cell.printed, cell.value, filled.rows[1].cells[2].printed) == (70.0, None, None)
    assert (
        "Deep is not measured: dataset toy has test, and no dl19."
        in path.with_suffix(".md").read_text()
    )


def test_a_row_that_is_the_run_of_an_earlier_one_says_so_and_is_not_tested_again(four_queries):
    layout = (
        LAYOUT
        + "  - {system: New again, run: new}\norders: [{claim: n > o, higher: New again, lower: Old}]\n"
    )
    rows = json.loads(four_queries.select(("Old", ""), ("New", ""), (ODD, "")))
    rows.append({**rows[1], "system": "New again", "same_as": "New"})
    path = table(four_queries, rows=json.dumps(rows), layout=layout)
    filled = read_table(path.with_suffix(".json"))
    new, again = filled.rows[1], filled.rows[3]
    assert (again.cells[0].value, again.cells[0].p) == (new.cells[0].value, None)
    assert new.cells[0].p == 0.25  # 1/8, corrected for two comparisons and not for three
    assert (again.same_as, new.same_as) == ("New", "")
    (order,) = filled.orders  # of New, by its other name
    assert (order.higher, order.cells[0].change, order.cells[0].p) == ("New again", 50.0, 0.125)
    text = path.with_suffix(".md").read_text()
    assert text.splitlines()[7].endswith("| same run as New |")
    assert "New again is the same run as New: the configuration does not tell them apart." in text
    for suffix in (".html", ".tex"):
        assert "same run as New" in path.with_suffix(suffix).read_text()


def test_a_run_under_two_names_is_tested_against_the_baseline_of_each(four_queries):
    layout = """
title: Two names
columns: [{measure: RR@10}]
rows:
  - {system: BM25, run: bm25}
  - {system: DE, run: de}
  - {system: "DE, again", run: de, baseline: {system: BM25}}
  - {system: "DE, once more", run: de, baseline: {system: "BM25, again"}}
  - {system: "BM25, again", run: bm25, baseline: {system: BM25}}
orders: [{claim: dense > lexical, higher: "DE, again", lower: BM25}]
"""
    old, new, _ = json.loads(four_queries.select(("Old", ""), ("New", ""), (ODD, "")))
    rows = [
        {**old, "system": "BM25"},
        {**new, "system": "DE"},
        {**new, "system": "DE, again", "same_as": "DE"},
        {**new, "system": "DE, once more", "same_as": "DE"},
        {**old, "system": "BM25, again", "same_as": "BM25"},
    ]
    path = table(four_queries, rows=rows, layout=layout)
    filled = read_table(path.with_suffix(".json"))
    # One comparison, of 2 in 16 sign patterns: DE's run against BM25's. The others repeat it,
    # or compare BM25 with itself.
    assert [row.cells[0].p for row in filled.rows] == [None, None, 0.125, None, None]
    assert [(order.claim, order.cells[0].p) for order in filled.orders] == [
        ("dense > lexical", 0.125)
    ]
    tested = [line.split(" | ")[-1] for line in path.with_suffix(".md").read_text().splitlines()]
    assert tested[4:9] == ["– |", "– |", "BM25 |", "same run as DE |", "same run as BM25 |"]


def test_two_rows_that_are_each_others_baselines_are_one_test(four_queries):
    layout = """
title: Each other
columns: [{measure: RR@10}]
rows:
  - {system: BM25, run: bm25, baseline: {system: DE}}
  - {system: DE, run: de, baseline: {system: BM25}}
  - {system: Third, run: third, baseline: {system: BM25}}
"""
    old, new, odd = json.loads(four_queries.select(("Old", ""), ("New", ""), (ODD, "")))
    rows = [{**old, "system": "BM25"}, {**new, "system": "DE"}, {**odd, "system": "Third"}]
    path = table(four_queries, rows=rows, layout=layout)
    first, second, third = (row.cells[0] for row in read_table(path.with_suffix(".json")).rows)
    # 2 of 16 sign patterns, corrected for two tests and not for three
    assert (first.change, first.p) == (-50.0, 0.25)
    assert (second.change, second.p) == (None, None)
    assert third.p is not None
    text = path.with_suffix(".md").read_text()
    assert "DE is not tested against BM25: that is the test of the other one" in text


def test_every_row_tells_its_lineage(four_queries):
    filled = read_table(table(four_queries).with_suffix(".json"))
    old, new, _ = filled.rows
    run = json.loads((Path(new.folder) / "stage.json").read_text())
    origin = new.lineage[0]
    assert (origin.run, origin.commit, origin.finished) == (
        run["key"],
        run["commit"],
        run["finished"],
    )
    assert origin.machine == run["machine"]["node"]
    assert new.cells[0].stages == [run["key"]]
    assert (old.neighbour, new.neighbour) == ("", "Old")


def test_what_a_row_differs_in_from_the_one_before(world, tmp_path):
    layout = {
        "title": "T",
        "rows": [{"system": "BM25", "run": "bm25"}, {"system": "DE w/ BM25 Neg", "run": "de"}],
    }
    (tmp_path / "layout.yaml").write_text(json.dumps(layout))
    rows = world.select(("BM25", ""), ("DE w/ BM25 Neg", ""))
    make_table(tmp_path, tmp_path / "layout.yaml", rows, tmp_path / "t.csv")
    row = read_table(tmp_path / "t.json").rows[1]
    assert row.neighbour == "BM25"
    assert any(
        line.startswith("retrieve de_bm25neg: its input passages is de_bm25neg.passages-")
        for line in row.differs
    )


def test_columns_of_two_datasets_are_tested_each_on_its_own_queries(four_queries):
    layout = """
title: Two
printed_on: {dataset: one, name: One, split: test}
baseline: {system: Old}
columns:
  - {measure: RR@10, name: MRR@10, dataset: one, dataset_name: One, split: test}
  - {measure: RR@10, name: MRR@10, dataset: two, dataset_name: Two, split: test}
rows:
  - {system: Old, run: a, printed: {one RR@10: 50, two RR@10: 60}}
  - {system: New, run: b, columns: [two]}
"""
    rows = json.loads(four_queries.select(("Old", ""), ("New", "")))
    repeated = [{**row, "column": at, "dataset": at} for at in ("one", "two") for row in rows]
    path = table(
        four_queries, rows=json.dumps([repeated[0], repeated[2], repeated[3]]), layout=layout
    )
    filled = read_table(path.with_suffix(".json"))
    assert filled.names == ["One: MRR@10 (RR@10)", "Two: MRR@10 (RR@10)"]
    assert [[cell.value for cell in row.cells] for row in filled.rows] == [
        [50.0, 50.0],
        [None, 100.0],
    ]
    # 2 of 16 sign patterns, one comparison
    assert [cell.p for cell in filled.rows[1].cells] == [None, 0.125]
    assert [cell.printed for cell in filled.rows[0].cells] == [50, 60]
    assert (
        filled.caption
        == "printed: One test, Two test; ours: one test, 4 queries, two test, 4 queries"
    )
    assert not filled.stands_in


def test_the_caption_names_every_dataset_that_rows_of_a_column_are_searched_on(four_queries):
    rows = json.loads(four_queries.select(("Old", ""), ("New", "")))
    layout = "{title: Own, rows: [{system: Old, run: a}, {system: New, run: b, dataset: two}]}"
    path = table(
        four_queries, rows=json.dumps([rows[0], {**rows[1], "dataset": "two"}]), layout=layout
    )
    assert (
        read_table(path.with_suffix(".json")).caption
        == "ours: toy test, 4 queries, two test, 4 queries"
    )


def row(system, value, change=None, p=None, first_stage="", against="BM25"):
    """A row of one measure."""
    cell = Cell("RR@10", None, value, value, value, change, p)
    return FilledRow(system, first_stage, against if change is not None else "", "k-0", "x", [cell])


def answered(rows, best):
    column = FilledColumn("RR@10", "RR@10", "RR@10", "", "", "", ["toy test, 4 queries"])
    return answer_question(Table("T", None, None, 2, "", [column], rows, best=best))


def test_the_answer_says_significant_only_of_what_is():
    base, dual = row("BM25", 40.0), row("DE", 46.9, 6.9, 0.003)
    worse, unsure = row("CE", 37.1, -2.9, 0.012, "BM25"), row("CE 2", 39.6, -0.4, 0.41, "BM25")
    best = BestSystem("DE", "RR@10", 46.9, "BM25", 6.9, 0.003)
    assert answered([base, dual, worse, unsure], best) == [
        "DE has the highest RR@10: 46.9, +6.9 over BM25 (p = 0.003).",
        "CE on BM25 (−2.9 against BM25, p = 0.012) hurts.",
        "CE 2 on BM25 (−0.4 against BM25, p = 0.410) is lower, but not significantly.",
    ]
    assert answered([base, dual], replace(best, p=0.3)) == [
        "DE has the highest RR@10: 46.9, +6.9 over BM25, which is not significant (p = 0.300)."
    ]
    assert answered([base, worse, worse], BestSystem("BM25", "RR@10", 40.0)) == [
        "BM25 has the highest RR@10: 40.0.",
        "CE on BM25 (−2.9 against BM25, p = 0.012) and CE on BM25 (−2.9 against BM25, p = 0.012) hurt.",
    ]


def test_of_many_rows_that_hurt_the_answer_names_the_first_and_counts_the_others():
    base = row("BM25", 40.0)
    losses = [row(f"DE {n}", 30.0, -10.0, 0.001) for n in range(1, 6)]
    best = BestSystem("BM25", "RR@10", 40.0)
    loss = "(−10.0 against BM25, p = 0.001)"
    assert answered([base, *losses[:4]], best)[1] == (
        f"DE 1 {loss}, DE 2 {loss}, DE 3 {loss} and DE 4 {loss} hurt."
    )
    assert answered([base, *losses], best)[1] == (
        f"DE 1 {loss}, DE 2 {loss}, DE 3 {loss} and 2 others hurt."
    )


def test_the_best_systems_p_counts_no_row_twice(four_queries):
    # New's own baseline is another: its test against Old, 1/8, is corrected for two comparisons and not for three.
    layout = LAYOUT.replace("run: new}", f'run: new, baseline: {{system: "{ODD}"}}}}')
    layout += "  - {system: Odd again, run: same}\n"
    rows = json.loads(four_queries.select(("Old", ""), ("New", ""), (ODD, "")))
    rows.append({**rows[2], "system": "Odd again", "same_as": ODD})
    path = table(four_queries, rows=json.dumps(rows), layout=layout)
    best = read_table(path.with_suffix(".json")).best
    assert best == BestSystem("New", "MRR@10 (RR@10)", 100.0, "Old", 50.0, 0.25)


def test_the_best_system_is_tested_against_the_reference(world, four_queries, tmp_path):
    # 100 against 50 on each of four queries: 2 of 16 sign patterns, and Holm's factor 2 for the table's comparisons.
    filled = read_table(table(four_queries).with_suffix(".json"))
    assert filled.best == BestSystem("New", "MRR@10 (RR@10)", 100.0, "Old", 50.0, 0.25)
    # The joint re-ranker's own baseline is another: its test against BM25 is corrected over the seven other systems.
    rows = json.dumps(world.rows)
    make_table(tmp_path, PAPERS / "summary.yaml", rows, tmp_path / "summary.csv")
    best = read_table(tmp_path / "summary.json").best
    assert (best.system, best.over) == ("RocketQAv2 (re-ranker) on RocketQAv2 (retriever)", "BM25")
    assert best.p < 0.001 < best.gain
