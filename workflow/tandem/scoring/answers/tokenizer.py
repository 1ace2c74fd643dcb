"""The tokenisation of answer matching: DrQA's SimpleTokenizer as DPR and Pyserini use it, lower-cased.

Python's own `re` knows no Unicode categories, hence the package `regex`.
"""

import unicodedata
from functools import cache

import regex


@cache
def _token() -> "regex.Pattern[str]":
    """A token: a run of letters, numbers and marks, or any one other character that is no separator and no control.

    The reference adds the flags IGNORECASE, UNICODE and MULTILINE; they change no token (a test tries every
    character).
    """
    return regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def decomposed(text: str) -> str:
    """Unicode's canonical decomposition (NFD): `é` becomes `e` and an accent, both part of one token."""
    return unicodedata.normalize("NFD", text)


def words(text: str) -> list[str]:
    """Lower-cased tokens of a text, after NFD; none holds white space.

    Source: facebookresearch/DPR, dpr/utils/tokenizers.py: `tokenize(text).words(uncased=True)` on NFD text.
    """
    return [token.lower() for token in _token().findall(decomposed(text))]
