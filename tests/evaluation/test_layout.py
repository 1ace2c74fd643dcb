"""Layouts: the tracked ones against the papers, baselines, and one line per mistake."""

import csv
from collections import Counter
from pathlib import Path

import pytest
from messages import unknown_key

from tandem.errors import UserError
from tandem.evaluation.layouts import load_layout, read_printed, with_systems

SCORES = {"MRR@10", "R@5", "R@20", "R@50", "R@100", "R@1000", "Recall@1", "Recall@50"}
PAPERS = Path(__file__).parents[2] / "config/papers"
BASE = "title: T\nbaseline: {system: A}\ncolumns:\n- {measure: RR@10}\nrows:\n- {system: A, run: bm25}\n"


def load(tmp_path, text):
    path = tmp_path / "layout.yaml"
    path.write_text(text)
    return load_layout(path)


def printed(table):
    """The printed values of a tracked layout, row by row."""
    rows = load_layout(PAPERS / f"{table}.yaml").rows
    return {row.id: tuple(row.printed.values()) for row in rows if row.printed}


def test_printed_values_of_the_papers():
    tables = ("dureader_retrieval/table4", "dureader_retrieval/table5", "rocketqav2/table4")
    assert [values for table in tables for values in printed(table).values()] == [
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
        ("Encoder, untrained", ""): ("BM25", ""),
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


RERANKED = (
    BASE
    + """\
- {system: M, first_stage: A, run: bm25+m}
- {system: D, first_stage: M, run: bm25+m+d}
"""
)


def test_what_re_ranks_a_re_rankers_list_is_tested_against_that(tmp_path):
    baselines = {row.system: row.baseline for row in load(tmp_path, RERANKED).rows}
    assert baselines == {"A": None, "M": ("A", ""), "D": ("M", "A")}


def test_a_first_stage_that_may_be_two_rows_is_asked_for(tmp_path):
    text = RERANKED + "- {system: M, first_stage: B, run: de+m}\n"
    with pytest.raises(UserError, match=r"rows\.2\.first_stage: M may be .*; say which"):
        load(tmp_path, text)


def test_a_column_is_named_as_printed_or_as_the_measure(tmp_path):
    layout = load(
        tmp_path,
        BASE.replace("- {measure: RR@10}", "- {measure: RR@10, name: MRR@10}\n- {measure: AP}"),
    )
    assert [(column.measure, column.name) for column in layout.columns] == [
        ("RR@10", "MRR@10"),
        ("AP", "AP"),
    ]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (BASE + "colour: red\n", [unknown_key(": colour", "columns")]),
        (BASE.replace("run: bm25", "run: 3"), [": rows.0.run is 3; allowed: string or null"]),
        (
            BASE + "- {system: A, run: de}\n",
            [": rows.1: A is there twice; each system and first stage once"],
        ),
        (
            BASE + "- {system: B, run: de, baseline: {system: C}}\n",
            [": rows.1: baseline C is not a row; the rows are A, B"],
        ),
        (
            BASE + "- {system: B, run: de, printed: {AP: 3}}\n",
            [": rows.1.printed.AP: no such column; add it to columns"],
        ),
        (
            BASE + "- {system: B, run: de, columns: [nq]}\n",
            [": rows.1.columns: no column is of nq; they are of none"],
        ),
        (
            BASE.replace("rows:", "- {measure: RR@10, name: MRR}\nrows:"),
            [": columns.1: RR@10 is there twice"],
        ),
        (
            BASE.replace("rows:", "splits: {dl: {split: dl19}}\nrows:"),
            [": splits.dl: no column is of dl; they are of none"],
        ),
        (BASE + "- {sistem: B, system: B}\n", [unknown_key(": rows.1.sistem", "system")]),
        ("title: [", [":2: not valid YAML: did not find expected node content"]),
        ("", [": rows is missing", ": title is missing"]),
    ],
)
def test_each_mistake_is_one_line(tmp_path, text, problems):
    with pytest.raises(UserError) as error:
        load(tmp_path, text)
    assert str(error.value).splitlines() == [
        f"{tmp_path / 'layout.yaml'}{problem}" for problem in problems
    ]


def test_a_system_that_is_named_twice_has_one_row(tmp_path):
    layout = with_systems(load(tmp_path, BASE), ["de", "bm25", "de"])
    assert [row.id for row in layout.rows] == [("A", ""), ("de", "")]


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_added_is_tested_against_what_it_re_ranks_whatever_the_order(tmp_path, turned):
    systems = ["bm25+m+duo", "bm25+mono+duo", "bm25+mono", "de+mono", "de", "other+mono"]
    text = RERANKED.replace("- {system: D, first_stage: M, run: bm25+m+d}\n", "")
    layout = with_systems(load(tmp_path, text), systems[:: -1 if turned else 1])
    assert {row.id: row.baseline for row in layout.rows[2:]} == {
        ("duo", "bm25+m"): ("M", "A"),
        ("duo", "bm25+mono"): ("mono", "A"),
        ("mono", "A"): ("A", ""),
        ("mono", "de"): ("de", ""),
        ("de", ""): ("A", ""),
        ("mono", "other"): ("A", ""),  # which has no row
    }


def test_a_quoted_row_is_no_first_stage_of_what_is_added(tmp_path):
    text = BASE + "- {system: Quoted, quoted: true}\n"
    (row,) = with_systems(load(tmp_path, text), ["de"]).rows[2:]
    assert (row.id, row.baseline) == (("de", ""), ("A", ""))
    alone = BASE.replace("baseline: {system: A}\n", "").replace("bm25", "de")
    (row,) = with_systems(load(tmp_path, alone), ["bm25"]).rows[1:]
    assert (row.id, row.baseline) == (("bm25", ""), None)


def test_a_missing_layout(tmp_path):
    with pytest.raises(UserError, match="no such layout"):
        load_layout(tmp_path / "none.yaml")


def test_a_table_of_two_collections():
    values = printed("rocketqav2/table2")
    assert values["BM25 (anserini)", ""] == (18.7, 59.2, 85.7, None, 59.1, 73.7)
    assert values["COIL", ""] == (35.5, None, 96.3, None, None, None)
    assert values["RocketQAv2 (retriever)", ""] == (38.8, 86.2, 98.1, 75.1, 83.7, 89.0)
    rows = {row.system: row for row in load_layout(PAPERS / "rocketqav2/table2.yaml").rows}
    assert not [name for name, row in rows.items() if row.quoted]
    assert rows["GAR"].run == "gar"
    assert rows["ME-BERT"].wrong["msmarco RR@10"].startswith("34.3 is the hybrid")
    assert set(rows["BM25 (anserini)"].wrong) == {
        "msmarco Success@1000", "natural-questions Success@20", "natural-questions Success@100"
    }  # fmt: skip


def test_none_of_the_rerankers_is_quoted():
    rows = load_layout(PAPERS / "rocketqav2/table3.yaml").rows
    assert not [row.system for row in rows if row.quoted]


def test_the_rerankers_and_the_further_collections():
    assert list(printed("rocketqav2/table3").values()) == [
        (18.7,), (34.9,), (36.5,), (37.7,), (39.0,), (39.0,), (39.5,), (39.4,),
        (40.5,), (40.9,), (40.1,), (41.8,), (41.9,)
    ]  # fmt: skip
    assert list(printed("dureader_retrieval/table6").values()) == [(50.6, 43.93), (49.94, 42.89)]
    assert list(printed("dureader_retrieval/table7").values()) == [
        (6.26, 4.98, 14.05), (4.39, 2.93, 16.4), (15.22, 11.28, 40.36)
    ]  # fmt: skip
    assert list(printed("dureader_retrieval/table8").values()) == [
        (57.49, 48.37, 85.67), (14.02, 9.91, 38.04), (56.67, 46.68, 87.78)
    ]  # fmt: skip
    assert list(printed("dureader_retrieval/table9").values()) == [
        (None, 28.03),
        (87.88, 19.50),
        (None, 38.35),
    ]


def test_every_printed_number_of_the_reviews_table_is_in_its_layout():
    with (PAPERS / "printed.csv").open() as file:
        lines = [
            line
            for line in csv.DictReader(file)
            if (line["source"], line["table"]) == ("coelho_review", "Table 1")
        ]
    rows = {row.system: row for row in load_layout(PAPERS / "review/table1.yaml").rows}
    shown = [value for row in rows.values() for value in row.printed.values() if value is not None]
    assert sorted(shown) == sorted(float(line["value"]) for line in lines)
    assert len(shown) == 39
    assert tuple(rows["CoCondenser"].printed.values()) == (38.6, 98.4, 71.5, 68.1)
    assert rows["ANCE"].wrong == {
        "msmarco RR@10": "RocketQAv2's Table 2 and ANCE's README have 33.0"
    }
    assert {row.family for row in rows.values()} == {"sparse", "dense"}


def test_every_printed_percentage_of_both_papers_tables_is_in_a_layout():
    with (PAPERS / "printed.csv").open() as file:
        lines = [
            line
            for line in csv.DictReader(file)
            if line["unit"] == "percent" and "Table" in line["table"]
        ]
    for paper in ("rocketqav2", "dureader_retrieval"):
        known = Counter(
            line["table"] for line in lines if line["source"] == paper and line["metric"] in SCORES
        )
        shown = {
            f"Table {path.stem[5:]}": sum(
                value is not None
                for row in load_layout(path).rows
                for value in row.printed.values()
            )
            for path in (PAPERS / paper).glob("table*.yaml")
        }
        assert {table: shown.get(table) for table in known} == dict(known)


PRINTED = "source,table,dataset,split,system,setting,metric,value,unit,note\n" + "".join(
    f"p,T1,D,test,{system},{setting},{metric},{value},percent,\n"
    for system, setting, metric, value in (
        ("A", "one", "MRR", 1),
        ("A", "two", "MRR", 2),
        ("B", "one", "MRR", 3),
    )
)
FROM = "title: T\nprinted_from: {source: p, table: T1}\ncolumns:\n- {measure: RR@10, name: MRR}\nrows:\n"


def test_printed_numbers_that_cannot_be_read_are_named(tmp_path):
    row = FROM + "- {system: A, run: bm25, printed: {system: A, setting: one}}\n"
    for wrong, message in {
        PRINTED.replace(",1,", ",37.4%,"): r"printed.csv:2: value is '37.4%'; a number is needed",
        f"{PRINTED}p,T1,too,few\n": r"printed.csv:\d: not \d+ columns; quote a text with commas",
        f'{PRINTED}p,T1,"open\n': r"printed.csv:\d: no valid CSV, unexpected end of data",
    }.items():
        (tmp_path / "printed.csv").write_text(wrong)
        with pytest.raises(UserError, match=message):
            load(tmp_path, row)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("printed: A", "prints several MRR of A; add one setting of: one; two"),
        ("printed: C", "p, T1 prints no C; it has A, B"),
        (
            "printed: {system: A, setting: three}",
            "prints no A in the setting three; it has A in the setting",
        ),
    ],
)
def test_a_printed_number_is_looked_up_by_its_names(tmp_path, row, message):
    (tmp_path / "printed.csv").write_text(PRINTED)
    with pytest.raises(UserError, match=message) as error:
        load(tmp_path, f"{FROM}- {{system: Ours, run: bm25, {row}}}\n")
    assert "\n" not in str(error.value)
    layout = load(
        tmp_path, FROM + "- {system: Ours, run: bm25, printed: {system: A, setting: two}}\n"
    )
    assert layout.rows[0].printed == {"RR@10": 2.0}
    with pytest.raises(UserError, match=r"prints no AP; set `printed: false` for that column"):
        load(
            tmp_path,
            FROM.replace("rows:", "- {measure: AP}\nrows:")
            + "- {system: B, run: bm25, printed: B}\n",
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "- {system: B, quoted: true, run: de}\n",
            "rows.1: B needs a run, or quoted: true and none",
        ),
        ("- {system: B}\n", "rows.1: B needs a run"),
        (
            "- {system: B, run: de, with: {dataset: nq}}\n",
            "rows.1: `dataset` stands beside `with`, not in it",
        ),
        (
            "- {system: B, run: de, with: {seeds: [5]}}\n",
            "rows.1: seeds in `with` has no effect: it is of all rows",
        ),
        (
            "- {system: B, run: de, with_own: {execution.shards: 2}}\n",
            "rows.1: execution.shards in `with` has no effect",
        ),
        (
            "- {system: B, run: de, printed: B}\n",
            "rows.1.printed: names a system, but the layout has no printed_from",
        ),
        (
            "- {system: B, quoted: true}\n- {system: C, run: de, baseline: {system: B}}\n",
            "baseline B is quoted",
        ),
    ],
)
def test_rows_that_do_not_hold_together(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        load(tmp_path, BASE + text)


def test_a_missing_file_of_printed_numbers_is_named(tmp_path):
    with pytest.raises(UserError, match=r"printed.csv: "):
        read_printed(tmp_path / "printed.csv", "rocketqav2", "Table 4")
