"""Where datasets come from: one small module a format, found by name and imported only when it is used.

A source streams the corpus, the queries and the qrels in an order that is the same on every machine. It may hold what
it likes of queries and qrels, never the whole corpus. To add one, write a module with a class like `Source` and name
it in `SOURCES`.
"""

import importlib
from collections.abc import Iterator
from typing import Any, Protocol

from tandem.errors import UserError

SOURCES = {
    "beir": "beir:Beir",
    "ir_datasets": "irds:IrDatasets",
    "pydocs": "pydocs:PyDocs",
}


class Source(Protocol):
    """What a dataset is read from.

    Attributes:
        PARAMS: names of the parameters that this format takes beside those of every dataset.
        places: what to call the corpus and the queries in an error: `corpus` and `queries` → a file or a phrase; a row
            number is added, counted from 1, which is the line number where the format is one record a line.
        facts: counts worth keeping in the manifest; complete once everything has been read.
    """

    PARAMS: frozenset[str]
    places: dict[str, str]
    facts: dict[str, Any]

    def __init__(self, params: dict[str, Any], execution: dict[str, Any]) -> None:
        """Check parameters and files, a `UserError` if they are wrong; nothing long."""

    def corpus(self) -> Iterator[tuple[str, str, str]]:
        """(document id, title, text) of every passage."""

    def queries(self) -> Iterator[tuple[str, str, str]]:
        """(query id, text, split) of every query; the split is empty where only the qrels tell it."""

    def qrels(self) -> Iterator[tuple[str, str, int, str]]:
        """(query id, document id, relevance, split) of every judgement."""


def source_class(name: str) -> type[Source]:
    """The class of a source by its name in the configuration."""
    if name not in SOURCES:
        raise UserError(f"source: {name!r} is unknown; allowed are {', '.join(SOURCES)}")
    module, attribute = SOURCES[name].split(":")
    found: type[Source] = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    return found
