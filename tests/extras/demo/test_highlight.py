"""Which words are query terms, what of a long text is shown, and how it is broken into lines."""

import pytest

from tandem.extras.demo.search import excerpt, lines, marked, terms, width


def star(text):
    return f"*{text}*"


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
    assert terms(query) == expected


def test_terms_are_marked_whole_words_only_and_in_the_texts_own_spelling():
    assert marked("Otters? The OTTER, an otter.", {"otter"}, star) == "Otters? The *OTTER*, an *otter*."
    assert marked("nothing here", {"otter"}, star) == "nothing here"


def test_overlapping_pairs_of_characters_are_marked_once():
    assert marked("我看水獭吃鱼", {"水獭", "獭吃"}, star) in ("我看*水獭**吃*鱼", "我看*水獭吃*鱼")


def test_an_excerpt_is_the_part_with_most_terms():
    text = "otter " + "filler " * 30 + "the otter eats crabs and urchins " + "filler " * 30
    shown = excerpt(text, {"otter", "crabs", "urchins"}, 60)
    assert (shown[0], shown[-1]) == ("…", "…")
    assert "otter eats crabs and urchins" in shown
    assert width(shown) <= 60


def test_a_short_text_is_shown_whole_with_its_spaces_tidied():
    assert excerpt("a  short\ntext", {"text"}, 60) == "a short text"


def test_what_a_terminal_would_obey_is_not_shown():
    assert excerpt("red \x1b[31malarm\x07 \x9b2J", {"alarm"}, 60) == "red [31malarm 2J"


def test_lines_break_between_words_and_count_wide_characters_twice():
    assert list(lines("one two three four", 9)) == ["one two", "three", "four"]
    assert list(lines("水獭吃螃蟹", 4)) == ["水獭", "吃螃", "蟹"]
    assert list(lines("incomprehensibilities", 10)) == ["incomprehe", "nsibilitie", "s"]
    assert list(lines("", 10)) == []
