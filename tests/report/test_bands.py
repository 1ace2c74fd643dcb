"""Verdicts on printed numbers, what was measured here before, which band is taken, and mistakes in bands.yaml."""

from dataclasses import replace
from pathlib import Path
from statistics import stdev

import pytest
from messages import unknown_key
from table_plans import make_table

from tandem.config.loading import read_bands
from tandem.config.table_layouts import Band
from tandem.errors import UserError
from tandem.report.filling import Place, compare_before, judge_value, list_criteria, select_band
from tandem.report.results import read_table

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "config/papers"
PLACE = Place("DE", "", "de_bm25neg", "pydocs-unlabelled", "pydocs", "test", "RR@10", "mine")


def band(tolerance, near, source="", **keys):
    return Band(tolerance=tolerance, near=near, source=source, **keys)


BAND = band(0.3, 1.0, "by hand")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (37.4, "match"),
        (37.1, "match"),
        (37.7, "match"),
        (37.71, "near"),
        (38.4, "near"),
        (36.39, "off"),
    ],
)
def test_how_far_from_what_is_printed(value, expected):
    assert judge_value(value, 37.4, BAND, "") == expected


def test_a_wrong_number_is_no_measure_of_ours():
    assert judge_value(62.9, 59.1, BAND, "it is DPR's") == "printed number is wrong (it is DPR's)"
    assert judge_value(None, 59.1, None, "it is DPR's") == "printed number is wrong (it is DPR's)"
    assert (
        judge_value(62.9, 59.1, band(0.3, 1.0, "a regression", value=62.94), "it is DPR's")
        == "match"
    )


def test_what_was_measured_here_has_three_standard_deviations_without_exception():
    measured = Band(value=41.0, sd=0.4, seeds=3, dataset="pydocs", source="a page")
    assert measured.width == pytest.approx(1.2)
    assert [compare_before(value, measured) for value in (42.2, 39.8)] == ["as measured before"] * 2
    assert [compare_before(value, measured) for value in (42.21, 39.79)] == [
        "not as measured before"
    ] * 2
    exact = Band(value=41.0, sd=0, dataset="pydocs", source="a page")
    assert [compare_before(value, exact) for value in (41.02, 41.03)] == [
        "as measured before",
        "not as measured before",
    ]


def test_no_verdict_without_something_to_hold_it_against():
    assert judge_value(37.4, None, BAND, "") == ""
    assert judge_value(37.4, 37.4, None, "") == ""
    assert judge_value(None, 37.4, BAND, "") == ""


def test_the_band_that_says_most_is_taken_and_elsewhere_only_one_of_that_dataset():
    everywhere, measure = band(0.5, 1.5, "all"), band(0.1, 0.2, "measure", measure="RR@10")
    here = band(2.0, 4.0, "small", value=41.0, dataset="pydocs", recipe="de_bm25neg")
    bands = [here, measure, everywhere]
    other = replace(PLACE, recipe="bm25")
    assert select_band(bands, PLACE, stands_in=False) is here  # pydocs-unlabelled is pydocs
    assert select_band(bands, other, stands_in=False) is measure
    assert select_band(bands, replace(other, measure="AP"), stands_in=False) is everywhere
    assert select_band(bands, other, stands_in=True) is None
    assert select_band(bands, PLACE, stands_in=True) is here
    assert select_band(bands, PLACE, stands_in=True, usual=False) is None  # of some queries, say
    assert select_band(bands, PLACE, stands_in=False, usual=False) is measure
    some = band(1, 1, "of 500 queries", queries=500)
    assert select_band([some], replace(PLACE, queries=500), stands_in=False) is some
    assert select_band([some], replace(PLACE, queries=300), stands_in=False) is None
    later = band(0.1, 0.4, "later", measure="RR@10")
    assert select_band([measure, later], PLACE, stands_in=False) is later
    assert select_band([band(1, 1, table="mine")], PLACE, stands_in=False)
    assert (
        select_band([band(1, 1, table="mine")], replace(PLACE, table="yours"), stands_in=False)
        is None
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {tolerance: 1, near: 2}", "0.source is missing"),
        (
            "- {tolerance: 1, near: 2, source: s, colour: red}",
            unknown_key("0.colour", allowed="dataset"),
        ),
        ("- {tolerance: 2, near: 1, source: s}", "0.near is 1, below tolerance"),
        ("- {tolerance: 1, near: 2, source: s, dataset: d}", "0: names dataset d, but no value"),
        ("- {tolerance: 1, source: s}", "0.near is missing"),
        ("- {tolerance: 1, near: 2, source: s, seeds: 3}", "0.sd is missing"),
        ("- {value: 1, sd: 0.1, seeds: 3, source: s}", "0.dataset is missing"),
        ("- {value: 1, sd: 0.1, dataset: d, source: s}", "0.seeds is missing"),
        (
            "- {value: 1, sd: 0.1, seeds: 3, tolerance: 3, dataset: d, source: s}",
            "0.tolerance: .* leave tolerance and",
        ),
        (
            "- {value: 1, sd: 2, seeds: 3, dataset: d, source: s}",
            "0.sd is 2: three of them accept anything within 6.0",
        ),
        ("tolerance: 1", "the whole is not a list of bands"),
        ("- [", "not valid YAML"),
    ],
)
def test_mistakes_in_bands_are_one_line(tmp_path, text, message):
    (tmp_path / "bands.yaml").write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_bands(tmp_path / "bands.yaml")
    assert "\n" not in str(error.value)


def test_the_tracked_bands_hold_together():
    bands = read_bands(PAPERS / "bands.yaml")
    assert [band for band in bands if not list_criteria(band)], (
        "one band holds for whatever is printed"
    )
    assert all(band.source for band in bands)


def on_page(band):
    """The beginnings of a page's cells for the row and measure of a band: value, and deviation if it has one.

    The page of the default lists the values of the seeds instead, in the next column.
    """
    head: list[str] = []
    for line in (ROOT / band.source).read_text().splitlines():
        cells = [
            cell.strip().replace("\\", "").strip("*") for cell in line.strip().strip("|").split("|")
        ]
        if cells[0] in ("System", "system"):
            head = cells
        if [cell.strip("–") for cell in cells[:2]] == [band.row, band.first_stage or ""]:
            for at, title in enumerate(head):
                if title.split(" printed")[0].split("(")[-1].rstrip(")").endswith(band.measure):
                    at += title.endswith(" printed")
                    seeds = (
                        cells[at + 1].split(", ")
                        if head[at + 1].startswith("seeds") and cells[at + 1]
                        else []
                    )
                    yield cells[at] + (f" ± {stdev(map(float, seeds)):.2f}" if seeds else "")


MEASURED = [band for band in read_bands(PAPERS / "bands.yaml") if band.sd is not None]


@pytest.mark.parametrize(
    "band", MEASURED, ids=lambda band: f"{band.source}-{band.row}-{band.measure}"
)
def test_page_and_band_are_equal(band):
    expected = f"{band.value:.2f}" + (f" ± {band.sd:.2f}" if band.sd else "")
    beginnings = [cell for cell in on_page(band) if cell.startswith(expected)]
    assert beginnings, list(on_page(band))
    assert band.sd or not any("±" in cell and "± 0.00" not in cell for cell in beginnings)


LAYOUT = """
title: T
printed_on: {dataset: toy, name: Toy, split: test}
baseline: {system: Old}
columns: [{measure: RR@10, name: MRR@10}, {measure: Success@1, name: R@1}]
rows:
  - {system: Old, run: bm25, printed: {RR@10: 49.6, Success@1: 3}}
  - {system: New, run: new, printed: {RR@10: 99.1, Success@1: 100}}
"""
BANDS = """
- {tolerance: 0.5, near: 1, source: by convention}
- {recipe: new, dataset: small, measure: RR@10, value: 99.5, sd: 0.2, seeds: 3, source: a page}
- {recipe: bm25, dataset: small, measure: RR@10, value: 49, sd: 0, source: a page}
"""


def filled(world, dataset):
    (world.root / "layout.yaml").write_text(LAYOUT)
    (world.root / "bands.yaml").write_text(BANDS)
    rows = world.select(("Old", ""), ("New", ""))
    out = make_table(
        world.root, world.root / "layout.yaml", rows, world.root / "t.csv", dataset=dataset
    )
    return read_table(out.with_suffix(".json")), out


def test_a_table_says_its_verdicts_and_their_bands(four_queries):
    table, out = filled(four_queries, dataset="toy")
    assert [[cell.verdict for cell in row.cells] for row in table.rows] == [
        ["match", "off"],
        ["near", "match"],
    ]
    text = out.with_suffix(".md").read_text()
    assert "MRR@10 (RR@10) | printed | Δ | verdict | difference" in text
    assert "Band: what is printed ± 0.5, near ± 1; by convention." in text
    for suffix in (".html", ".tex"):
        assert "near" in out.with_suffix(suffix).read_text()
    assert [line.split(",")[16] for line in out.read_text().splitlines()[1:]] == [
        "match",
        "off",
        "near",
        "match",
    ]


def test_what_was_measured_before_is_no_verdict_on_a_paper(four_queries):
    """The printed numbers are of another collection: no difference, no verdict; the earlier value is a note."""
    table, out = filled(four_queries, dataset="small")
    assert [[cell.verdict for cell in row.cells] for row in table.rows] == [["", ""], ["", ""]]
    before = [[cell.before for cell in row.cells] for row in table.rows]
    assert before == [["not as measured before", ""], ["as measured before", ""]]
    text = out.with_suffix(".md").read_text()
    assert "MRR@10 (RR@10) | printed | difference" in text
    assert (
        "Not as measured before: Old, RR@10 50.00, before 49.00; up to 0.02 apart is the same (a page)."
        in text
    )
    assert (
        "As measured before: New, RR@10 100.00, before 99.50; up to 0.60 apart is the same (3 sd of 3"
        in text
    )
    assert [line.split(",")[-1] for line in out.read_text().splitlines()[1:]] == [
        before[0][0],
        "",
        before[1][0],
        "",
    ]
