"""Printed numbers beside counted ones: verdicts by hand, a tiny dataset, and that nothing printed was left out."""

import csv
import json
from pathlib import Path

import pytest
from messages import unknown_key

from tandem.cli import run as run_command
from tandem.config.loading import read_section
from tandem.contrib.statistics.options import StatisticsLayout
from tandem.contrib.statistics.printed_statistics import (
    QUANTITIES,
    PrintedNumber,
    compare_with_printed,
    count_quantity,
    read_printed_numbers,
)
from tandem.data.dataset import run
from tandem.errors import UserError
from tandem.store.job import Job

STATISTICS = Path(__file__).parents[3] / "config/statistics"
NUMBERS = Path(__file__).parents[3] / ".." / "shared/facts/paper_numbers.csv"


def printed(value, note=""):
    return PrintedNumber("Table 1", "D", "train", "queries", value, note)


@pytest.mark.parametrize(
    ("value", "counted", "expected"),
    [
        ("532,761", 532761, "equal"),
        ("532,761", 532760, "differs by -1 (-0.0 %)"),
        ("920", 919, "differs by -1 (-0.1 %)"),
        ("200", 250, "differs by +50 (+25.0 %)"),
        ("10.4M", 10405342, "equal"),  # rounds to 10.4 million
        ("10.4M", 10450001, "differs by +50,001 (+0.5 %)"),
        ("516K", 516756, "differs by +756 (+0.1 %)"),  # rounds to 517 thousand
        ("516K", 516499, "equal"),
        ("8.8M", 8841823, "equal"),
        ("8.9M", 8096668, "differs by -803,332 (-9.0 %)"),
        ("2.57", 222395 / 86395, "equal"),  # 2.5742
        ("2.57", 2.58, "differs by +0.01 (+0.4 %)"),
        ("1430.93", 1430.93, "equal"),
        ("0", 3, "differs by +3"),  # no share of nothing
        ("", 7, "not printed"),
        ("7", None, "not counted: the dataset has no such split or text"),
    ],
)
def test_verdicts(value, counted, expected):
    assert compare_with_printed(printed(value), counted, None) == expected


def test_notes_and_absence():
    wrong = printed("249", "wrong: it is another's")
    assert compare_with_printed(wrong, 49, None) == "printed number is wrong: it is another's"
    assert compare_with_printed(wrong, 249, None) == "equal"
    assert (
        compare_with_printed(wrong, None, "not here (1.0 GB)")
        == "not here (1.0 GB); printed number is wrong: it is another's"
    )
    assert compare_with_printed(printed("8"), None, "not here") == "not here"
    assert (
        compare_with_printed(printed("8", "all of them"), 4, None)
        == "differs by -4 (-50.0 %); all of them"
    )


def split(queries, qrels, relevant, characters):
    lengths = {"characters": {"mean": characters}, "words": {"mean": characters / 4}}
    return {
        "queries": queries,
        "qrels": qrels,
        "relevant": {"count": relevant, **lengths},
        **lengths,
    }


ONE = {
    "passages": {"count": 10, "characters": {"mean": 5.0, "median": 4.0}},
    "splits": {"test": split(2, 6, 3, 8.0)},
}
OTHER = {
    "passages": {"count": 30, "characters": {"mean": 9.0, "median": 9.0}},
    "splits": {"train": split(1, 1, 1, 1.0), "test": split(6, 9, 9, 16.0)},
}


@pytest.mark.parametrize(
    ("some", "part", "quantity", "expected"),
    [
        ([ONE, OTHER], "test", "queries", 8),
        ([ONE, OTHER], "all", "queries", 9),
        ([ONE, OTHER], "test", "labels", 15),
        ([ONE, OTHER], "test", "positives", 12),
        ([ONE, OTHER], "test", "positives per query", 1.5),
        ([ONE, OTHER], "test", "characters per query", (2 * 8 + 6 * 16) / 8),
        ([ONE, OTHER], "test", "words per query", (2 * 2 + 6 * 4) / 8),
        ([ONE, OTHER], "test", "characters per positive", (3 * 8 + 9 * 16) / 12),
        ([OTHER], "train+test", "positives per query", 10 / 7),
        ([ONE, OTHER], "all", "passages", 40),
        ([ONE, OTHER], "all", "characters per passage, mean", 8.0),
        ([ONE], "all", "characters per passage, median", 4.0),
        ([ONE, OTHER], "all", "characters per passage, median", None),
        ([ONE, OTHER], "train", "queries", None),  # one of the two has no such split
        ([ONE], "all", "words per passage, mean", None),
    ],
)
def test_counts_of_one_and_two_datasets(some, part, quantity, expected):
    assert count_quantity(some, part, quantity) == expected


LAYOUT = """
title: Tiny & <odd>
paper: {citation: A., source: us, tables: [Table 1, text 2]}
quantities: [{split: train, quantity: queries}, {split: train, quantity: labels}, {split: dev, quantity: queries}]
datasets:
  Tiny: tiny
  Twice: [tiny, tiny]
  Renamed: {dataset: tiny, splits: {dev: test}}
  Half: [tiny, big]
  Big: big
  None of ours: null
"""
PRINTED = """source,table,dataset,split,quantity,value,note
us,Table 1,Tiny,train,queries,1,
us,Table 1,Tiny,test,queries,3,
us,Table 1,Tiny,all,passages,"1,000",wrong: of another
us,Table 1,Tiny,train,characters per query,6.00,
us,text 2,Tiny,train,characters per positive,14.00,
us,Table 1,Twice,all,passages,4,
us,Table 1,Renamed,dev,queries,1,
us,Table 1,Half,all,passages,5,
us,Table 1,Big,all,passages,9M,wrong: 8M
us,Table 1,None of ours,test,queries,70,
us,Table 9,Elsewhere,test,queries,70,
them,Table 1,Elsewhere,test,queries,70,
"""


@pytest.fixture
def tiny(tmp_path):
    """A dataset of two passages: `One alpha beta` (14 characters) answers the training query `alpha?` (6)."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        '{"_id": "d1", "title": "One", "text": "alpha beta"}\n{"_id": "d2", "text": "gamma"}\n'
    )
    (folder / "queries.jsonl").write_text(
        '{"_id": "q1", "text": "alpha?"}\n{"_id": "q2", "text": "gamma?"}\n'
    )
    (folder / "qrels/train.tsv").write_text("q1\td1\t1\nq1\td2\t0\n")
    (folder / "qrels/test.tsv").write_text("q2\td2\t1\n")
    run(Job("dataset", tmp_path / "tiny", {"source": "beir"}, {}, {"path": str(folder)}))
    return tmp_path / "tiny"


def words(tmp_path, tiny, layout=LAYOUT, numbers=PRINTED, **changed):
    (tmp_path / "layout.yaml").write_text(layout)
    (tmp_path / "printed.csv").write_text(numbers)
    flags = {
        "layout": tmp_path / "layout.yaml",
        "artifacts": json.dumps({"tiny": str(tiny)}),
        "presence": json.dumps({"big": "not here (1.0 GB)"}),
        "out": tmp_path / "tables/t.csv",
    }
    return [
        "statistics",
        *(word for name, value in (flags | changed).items() for word in (f"--{name}", str(value))),
    ]


def test_table_of_a_tiny_dataset(tmp_path, tiny):
    assert run_command(words(tmp_path, tiny)) == 0
    head, *lines = csv.reader((tmp_path / "tables/t.csv").read_text().splitlines())
    assert head == ["table", "dataset", "quantity", "printed", "counted", "verdict"]
    assert lines == [
        ["Table 1", "Tiny", "queries, train", "1", "1", "equal"],
        ["Table 1", "Tiny", "queries, test", "3", "1", "differs by -2 (-66.7 %)"],
        ["Table 1", "Tiny", "passages", "1,000", "2", "printed number is wrong: of another"],
        ["Table 1", "Tiny", "characters per query, train", "6.00", "6", "equal"],
        ["text 2", "Tiny", "characters per positive, train", "14.00", "14", "equal"],
        ["Table 1", "Tiny", "labels, train", "", "2", "not printed"],
        ["Table 1", "Twice", "passages", "4", "4", "equal"],
        ["Table 1", "Twice", "queries, train", "", "2", "not printed"],
        ["Table 1", "Twice", "labels, train", "", "4", "not printed"],
        ["Table 1", "Renamed", "queries, dev", "1", "1", "equal"],
        ["Table 1", "Renamed", "queries, train", "", "1", "not printed"],
        ["Table 1", "Renamed", "labels, train", "", "2", "not printed"],
        ["Table 1", "Half", "passages", "5", "", "not here (1.0 GB)"],
        ["Table 1", "Big", "passages", "9M", "", "not here (1.0 GB); printed number is wrong: 8M"],
        ["Table 1", "None of ours", "queries, test", "70", "", "not here: not in the catalogue"],
    ]
    assert (tmp_path / "tables/t.md").read_text().count("\n| Table 1 |") == 14
    page = (tmp_path / "tables/t.html").read_text()
    assert "Tiny &amp; &lt;odd&gt;" in page
    assert page.count('<th scope="row">') == len(lines)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"layout": LAYOUT.replace("Tiny: tiny", "Small: tiny")},
            "datasets lacks Tiny, of which .* prints numbers",
        ),
        ({"layout": LAYOUT + "more: 1\n"}, unknown_key("more", allowed="datasets, note")),
        (
            {"numbers": PRINTED.replace("9M", "nine")},
            r"printed.csv:10: value is 'nine'; write it as",
        ),
        (
            {"numbers": PRINTED.replace("passages", "weight")},
            "'weight' is not a quantity; allowed are queries",
        ),
        (
            {"numbers": PRINTED.replace("split,", "part,")},
            "columns are .*; they must be source, table",
        ),
        (
            {"layout": LAYOUT.replace("source: us", "source: nobody")},
            "prints nothing of nobody in Table 1, text 2",
        ),
        ({"artifacts": "[]"}, "--artifacts: Input should be an object"),
        ({"presence": "{"}, "--presence: Invalid JSON"),
        ({"artifacts": '{"tiny": "/no/where"}'}, "/no/where: not a finished artifact"),
        ({"out": "t.md"}, "--out: is t.md; it must end in .csv"),
    ],
)
def test_mistakes_are_one_line(tmp_path, tiny, changed, message):
    with pytest.raises(UserError, match=message) as error:
        run_command(words(tmp_path, tiny, **changed))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "tables").exists()


LAYOUTS = sorted(STATISTICS.glob("*.yaml"))


@pytest.mark.parametrize("path", LAYOUTS, ids=lambda path: path.stem)
def test_layouts_of_the_papers_are_whole(path):
    layout = read_section(StatisticsLayout, path)
    numbers = read_printed_numbers(
        STATISTICS / "printed.csv", layout.paper.source, layout.paper.tables
    )
    assert {number.dataset for number in numbers} == set(layout.datasets)
    assert {number.quantity for number in numbers} <= set(QUANTITIES)
    assert {number.table for number in numbers} == set(layout.paper.tables)


def test_every_printed_number_has_a_layout():
    layouts = [read_section(StatisticsLayout, path) for path in LAYOUTS]
    shown = [
        read_printed_numbers(STATISTICS / "printed.csv", layout.paper.source, layout.paper.tables)
        for layout in layouts
    ]
    with open(STATISTICS / "printed.csv", encoding="utf-8") as file:
        assert sum(map(len, shown)) == len(list(csv.DictReader(file))) == 169


def test_every_value_of_the_papers_tables_is_carried_over():
    if not NUMBERS.is_file():
        pytest.skip(f"the facts are not here: {NUMBERS}")
    keys = ("source", "table", "dataset", "split", "value")
    tables = {
        *(("dureader_retrieval", f"Table {number}") for number in (1, 2, 3)),
        ("rocketqav2", "Table 1"),
        ("survey", "Table 4"),
    }
    with (
        open(NUMBERS, encoding="utf-8") as facts,
        open(STATISTICS / "printed.csv", encoding="utf-8") as ours,
    ):
        published = [tuple(row[key] for key in keys) for row in csv.DictReader(facts)]
        carried = [tuple(row[key] for key in keys) for row in csv.DictReader(ours)]
    assert set(carried) <= set(published)
    assert sorted(row for row in carried if row[:2] in tables) == sorted(
        row for row in published if row[:2] in tables
    )
