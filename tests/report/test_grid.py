"""Tables of texts: which columns are numbers, and by what a cell is sorted."""

import pytest

from tandem.extras.report.page import find_worth, list_numeric, make_environment, mark_prose
from tandem.report.grids import PageTable, align_text, write_markdown


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("41.27 ± 0.30 ▲ [38.10, 44.20]", 41.27), ("2e-05", 2e-5), ("11,884", 11884.0), ("<0.001", 0.001),
        ("−5.0", -5.0), ("+44.2", 44.2), ("10.4M", 10.4e6), ("94.53 %", 94.53), ("–", None), ("", None),
        ("paper", None),
    ],
)  # fmt: skip
def test_a_cell_is_sorted_by_the_number_that_it_begins_with(cell, number):
    assert find_worth(cell) == number


def test_a_column_of_numbers_may_have_empty_cells_but_no_words():
    rows = [["8", "paper", "37.4", "–", "128"], ["16", "8", "–", "", "128 lists"]]
    assert list_numeric(PageTable("t", ["size", "semantics", "printed", "none", "words"], rows)) == [
        True, False, True, False, False,
    ]  # fmt: skip


def test_texts_are_escaped_and_rows_named():
    grid = PageTable("<t>", ["a", "<b>"], [["1", "<script>"]], named_by=1, links={(0, 0): "#x"})
    module = make_environment().get_template("_grid.html").make_module()
    shown = " ".join(str(module.grid_table(grid)).split())
    assert '<th scope="row">&lt;script&gt;</th>' in shown
    assert '<td class="num" data-value="1.0"><a href="#x">1</a></td>' in shown
    assert "<script>" not in shown
    assert "there is nothing to show" in str(module.grid_table(PageTable("t", ["a"], [])))


def test_code_in_notes_is_marked_and_nothing_else_is_markup():
    assert (
        mark_prose("the top `<b>.depth`, not <b>")
        == "the top <code>&lt;b&gt;.depth</code>, not &lt;b&gt;"
    )


def test_a_text_of_several_lines_stays_in_its_cell_in_markdown():
    lines = write_markdown(PageTable("t", ["a", "b"], [["two\nlines", "1"]])).splitlines()
    assert [line for line in lines if line.startswith("|")][2:] == ["| two lines | 1 |"]


def test_columns_of_chinese_and_japanese_words_end_at_the_same_place_of_a_terminal():
    rows = [["密集检索", "1.0"], ["dense", "20.0"], ["検索 (DE)", "3.0"]]
    head, *lines = (
        line
        for line in align_text(PageTable("t", ["system", "RR@10"], rows)).splitlines()[1:]
        if not line.startswith("─")
    )
    assert head == "system     RR@10"
    assert lines == ["密集检索     1.0", "dense       20.0", "検索 (DE)    3.0"]
