"""Which words are query terms, what of a long text is shown, and how it is broken into lines."""

import pytest

from tandem.contrib.demo.search import cut_excerpt, list_query_terms


def bold(line):
    """What is bold in a line."""
    return [line.plain[span.start : span.end] for span in line.spans]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("How does the Otter eat?", {"how", "does", "otter", "eat"}),
        ("to be or not", {"be", "not", "or", "to"}),
        ("numpy.linalg.norm", {"numpy", "linalg", "norm"}),
        ("水獭吃什么", {"水獭", "獭吃", "吃什", "什么"}),
        ("BM25 检索", {"bm25", "检索"}),
        ("Straße", {"strasse"}),
    ],
)
def test_terms(query, expected):
    assert list_query_terms(query) == expected


def test_terms_are_bold_whole_words_only_and_in_the_texts_own_spelling():
    (line,) = cut_excerpt("Otters? The OTTER, an otter.", {"otter"}, 60)
    assert bold(line) == ["OTTER", "otter"]
    (line,) = cut_excerpt("我看水獭吃鱼", {"水獭", "獭吃"}, 60)
    assert bold(line) == ["水獭", "獭吃"]


def test_an_excerpt_is_the_part_with_most_terms():
    text = "otter " + "filler " * 30 + "the otter eats crabs and urchins " + "filler " * 90
    lines = cut_excerpt(text, {"otter", "crabs", "urchins"}, 30)
    shown = " ".join(line.plain.strip() for line in lines)
    assert (len(lines), shown[0], shown[-1]) == (3, "…", "…")
    assert "otter eats crabs and urchins" in shown


def test_a_short_text_is_shown_whole_with_its_spaces_tidied():
    assert [line.plain for line in cut_excerpt("a  short\ntext", {"text"}, 60)] == ["a short text"]


def test_what_a_terminal_would_obey_is_not_shown():
    assert cut_excerpt("red \x1b[31malarm\x07 \x9b2J", {"alarm"}, 60)[0].plain == "red [31malarm 2J"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three four", ["one two", "three", "four"]),
        ("水獭吃螃蟹和海胆", ["水獭吃螃", "蟹和海胆"]),
        ("incomprehensibilities", ["incompreh", "ensibilit", "ies"]),
        ("one two three four five six", ["one two", "three", "four fiv…"]),
        ("", [""]),
    ],
)
def test_lines_break_between_words_and_count_wide_characters_twice(text, expected):
    assert [line.plain.rstrip() for line in cut_excerpt(text, set(), 9)] == expected
