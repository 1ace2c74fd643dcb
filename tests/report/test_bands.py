"""Verdicts: match, near, off, a printed number that is wrong; which band is taken; mistakes in bands.yaml."""

from dataclasses import replace
from pathlib import Path

import pytest
from messages import unknown_key
from table_plans import make_table

from tandem.config.loading import read_bands
from tandem.config.tables import Band
from tandem.errors import UserError
from tandem.report.filling import Place, criteria, select_band, verdict
from tandem.report.results import read_table

PAPERS = Path(__file__).parents[2] / "config/papers"
PLACE = Place("DE", "", "de_bm25neg", "pydocs-unlabelled", "pydocs", "test", "RR@10", "mine")


def band(tolerance, near, source="", **keys):
    return Band(tolerance=tolerance, near=near, source=source, **keys)


BAND = band(0.3, 1.0, "by hand")


@pytest.mark.parametrize(
    ("value", "said"),
    [(37.4, "match"), (37.1, "match"), (37.7, "match"), (37.71, "near"), (38.4, "near"), (36.39, "off")],
)
def test_how_far_from_what_is_printed(value, said):
    assert verdict(value, 37.4, BAND, "") == said


def test_a_wrong_number_is_no_measure_of_ours():
    assert verdict(62.9, 59.1, BAND, "it is DPR's") == "printed number is wrong (it is DPR's)"
    assert verdict(None, 59.1, None, "it is DPR's") == "printed number is wrong (it is DPR's)"
    assert verdict(62.9, 59.1, band(0.3, 1.0, "a regression", value=62.94), "it is DPR's") == "match"


def test_no_verdict_without_something_to_hold_it_against():
    assert verdict(37.4, None, BAND, "") == ""
    assert verdict(37.4, 37.4, None, "") == ""
    assert verdict(None, 37.4, BAND, "") == ""


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
    later = band(0.1, 0.4, "later", measure="RR@10")
    assert select_band([measure, later], PLACE, stands_in=False) is later
    assert select_band([band(1, 1, table="mine")], PLACE, stands_in=False)
    assert select_band([band(1, 1, table="mine")], replace(PLACE, table="yours"), stands_in=False) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- {tolerance: 1, near: 2}", "0.source is missing"),
        ("- {tolerance: 1, near: 2, source: s, colour: red}", unknown_key("0.colour", allowed="dataset")),
        ("- {tolerance: 2, near: 1, source: s}", "0.near is 1, below tolerance"),
        ("- {tolerance: 1, near: 2, source: s, dataset: d}", "0: names dataset d, but no value"),
        ("tolerance: 1", "the whole is no list of bands"),
        ("- [", "not valid YAML"),
    ],
)
def test_mistakes_in_bands_are_one_line(tmp_path, text, told):
    (tmp_path / "bands.yaml").write_text(text)
    with pytest.raises(UserError, match=told) as error:
        read_bands(tmp_path / "bands.yaml")
    assert "\n" not in str(error.value)


def test_the_tracked_bands_hold_together():
    bands = read_bands(PAPERS / "bands.yaml")
    assert [band for band in bands if not criteria(band)], "one band holds for whatever is printed"
    assert all(band.source for band in bands)


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
- {recipe: new, dataset: small, measure: RR@10, value: 90, tolerance: 1, near: 20, source: three runs, seeds: 3,
   deviations: [40 steps]}
"""


def filled(world, dataset):
    (world.root / "layout.yaml").write_text(LAYOUT)
    (world.root / "bands.yaml").write_text(BANDS)
    rows = world.select(("Old", ""), ("New", ""))
    out = make_table(world.root, world.root / "layout.yaml", rows, world.root / "t.csv", dataset=dataset)
    return read_table(out.with_suffix(".json")), out


def test_a_table_says_its_verdicts_and_their_bands(four_queries):
    table, out = filled(four_queries, dataset="toy")
    assert [[cell.verdict for cell in row.cells] for row in table.rows] == [["match", "off"], ["near", "match"]]
    text = out.with_suffix(".md").read_text()
    assert "MRR@10 (RR@10) | printed | Δ | verdict | p" in text
    assert "Band: what is printed ± 0.5, near ± 1; by convention." in text
    for suffix in (".html", ".tex"):
        assert "near" in out.with_suffix(suffix).read_text()
    assert [line.split(",")[16] for line in out.read_text().splitlines()[1:]] == ["match", "off", "near", "match"]


def test_where_another_dataset_stands_in_only_its_own_band_holds(four_queries):
    table, out = filled(four_queries, dataset="small")
    assert [[cell.verdict for cell in row.cells] for row in table.rows] == [["", ""], ["near", ""]]
    band = table.rows[1].cells[0].band
    assert (band.value, band.tolerance, band.near, band.source, band.seeds) == (90, 1, 20, "three runs", 3)
    assert band.deviations == ("40 steps",)
    told = "Band of New, RR@10: 90.00 ± 1, near ± 20; three runs (3 seeds); differs from the paper: 40 steps."
    text = out.with_suffix(".md").read_text()
    assert told in text
    assert "near earlier runs" in text
    assert "+0.90" not in text  # 100.00 here, 99.1 printed: of another dataset, so no difference is taken
