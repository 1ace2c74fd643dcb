"""Windows of a text: each unit in the windows it belongs to, nothing else, under ids that cannot clash."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.contrib.long_documents.cutting import (
    count_windows,
    cut_windows,
    name_window,
    split_window_id,
)

SPACES = st.sampled_from([" ", "  ", "\n", "\t \n", "\u2028", "\u3000"])
WORDS = st.lists(st.text("ab.é中", min_size=1, max_size=3), max_size=40)
LENGTHS = st.integers(1, 12).flatmap(
    lambda length: st.tuples(st.just(length), st.integers(1, length))
)


@pytest.mark.parametrize(
    ("text", "length", "stride", "windows"),
    [
        ("a b c d e", 3, 2, ["a b c", "c d e"]),
        ("a b c d e f", 3, 2, ["a b c", "c d e", "e f"]),
        ("a b c d e f", 3, 3, ["a b c", "d e f"]),
        ("a b c", 3, 1, ["a b c"]),
        ("  a\n b ", 3, 2, ["a\n b"]),
        ("", 3, 2, [""]),
        (" \n ", 3, 2, [""]),
    ],
)
def test_windows_by_hand(text, length, stride, windows):
    assert cut_windows(text, length, stride, "words") == windows


def test_windows_of_text_without_spaces():
    assert cut_windows("水獭是哺乳动物", 3, 2, "characters") == ["水獭是", "是哺乳", "乳动物"]
    assert cut_windows("水獭", 3, 2, "characters") == ["水獭"]
    assert cut_windows("", 3, 2, "characters") == [""]


def test_no_more_windows_than_asked():
    assert cut_windows("a b c d e f g", 2, 2, "words", most=2) == ["a b", "c d"]
    assert cut_windows("a", 2, 2, "words", most=2) == ["a"]


@given(WORDS, SPACES, LENGTHS)
def test_every_word_stands_in_the_windows_it_belongs_to(words, space, lengths):
    length, stride = lengths
    text = space + space.join(words)
    windows = cut_windows(text, length, stride, "words")
    assert len(windows) == count_windows(len(words), length, stride)
    assert [window.split() for window in windows] == [
        words[number * stride : number * stride + length] for number in range(len(windows))
    ]
    assert {
        n * stride + i for n, window in enumerate(windows) for i in range(len(window.split()))
    } == set(range(len(words)))
    # the last window is the first to reach the end, and each stands in the text as it is
    assert len(windows) == 1 or (len(windows) - 2) * stride + length < len(words)
    assert all(window in text for window in windows)


@given(st.text("ab 中\n", max_size=60), LENGTHS)
def test_every_character_stands_in_the_windows_it_belongs_to(text, lengths):
    length, stride = lengths
    windows = cut_windows(text, length, stride, "characters")
    rebuilt = windows[0] + "".join(window[length - stride :] for window in windows[1:])
    assert rebuilt == text
    assert len(windows) == count_windows(len(text), length, stride)


@given(st.lists(st.tuples(st.text("x#0", max_size=4), st.integers(0, 12)), unique=True))
def test_ids_do_not_clash_whatever_documents_are_called(windows):
    ids = [name_window(document, number) for document, number in windows]
    assert len(set(ids)) == len(windows)
    assert [split_window_id(window) for window in ids] == windows


def test_an_id_is_the_document_and_a_number_from_zero():
    assert name_window("d#7", 0) == "d#7#0"
    assert split_window_id("d#7#12") == ("d#7", 12)
    assert not re.search(r"\s", name_window("d", 3))
