"""A docstring as a pair of query and passage: the filters that make it a fair one.

The passage must answer without naming the object itself, or any lexical match would find it.
"""

import re
from dataclasses import dataclass

from tandem.data.sources.pydocs.clean import SPACE, summary_and_body
from tandem.data.sources.pydocs.docstrings import Documented

QUERY_WORDS = range(3, 31)
PASSAGE_WORDS = 12  # at least so many words of two or more letters
ASCII_SHARE = 0.95  # of a passage's characters; a query must be all ASCII
WORD = re.compile(r"[A-Za-z]{2,}")
# "axis (int): …" documents a parameter, "See foo" and "Deprecated" nothing at all.
PARAMETER = re.compile(r"^[\w\s,*/]+(\s\([^)]*\)+)?\s*:|^\w+\s+\(.*\)\)?:")
EMPTY_TALK = re.compile(
    r"deprecated|see |test |this (function|method|class) is deprecated|alias |same as|todo|overrid|internal|helper",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Pair:
    """A query and the passage that answers it."""

    query: str
    passage: str


def pair_of(documented: Documented, longest: int | None) -> Pair | None:
    """The pair of a documented object, or None where a filter drops it.

    Args:
        documented: the object's name and docstring.
        longest: most words of a passage, the rest is cut off; None for no limit.
    """
    parts = summary_and_body(documented.docstring)
    if parts is None or not is_query(parts[0]):
        return None
    query, body = parts
    if not body or sum(map(str.isascii, body)) < ASCII_SHARE * len(body):
        return None
    body = SPACE.sub(" ", masked(body, documented.name)).replace(query, " ").strip()
    if len(WORD.findall(body)) < PASSAGE_WORDS:
        return None
    return Pair(query, " ".join(body.split()[:longest]))


def is_query(summary: str) -> bool:
    """Whether a summary is a sentence one could search with."""
    return (
        len(summary.split()) in QUERY_WORDS
        and summary.isascii()
        and not PARAMETER.match(summary)
        and not EMPTY_TALK.match(summary)
    )


def masked(body: str, name: str) -> str:
    """A passage without the object's own name; names of up to two letters stay."""
    if len(name.strip("_")) <= 2:
        return body
    return re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", " ", body)


def normalised(text: str) -> str:
    """Lower-case letters and digits, everything else a blank: what makes two texts the same."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))
