"""Some domains of a dataset."""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import Any

from tandem.contrib.formats.options import Domains
from tandem.contrib.formats.passage_domains import DOMAINS
from tandem.data.sources import DatasetJob, Passage, dataset_format
from tandem.data.tables import stream_rows
from tandem.errors import UserError, nearest, printable, shortened
from tandem.extras.derived import DerivedSource


@dataset_format("domains")
class DomainsSource(DerivedSource):
    """Keeps the passages of the input `of` whose domain is among `only`, or is not among `without`, and their queries.

    A query is kept if a relevant passage of it is kept; its labels of other passages are removed. Queries without
    labels are removed, too: which domain they ask about is not known.
    """

    def __init__(self, job: DatasetJob, entry: Domains) -> None:
        super().__init__(job, entry)
        if DOMAINS not in self.base.manifest.files:
            raise UserError(
                f"dataset {job.key}: the passages of {self.base.key} have no domains; name a file of them"
            )
        self._key, self._named = (
            ("only", entry.only) if entry.only else ("without", entry.without or ())
        )
        known = {domain for (domain,) in stream_rows(self.base.path(DOMAINS), "domain")} - {""}
        for name in self._named:
            if name not in known:
                hint = shortened(nearest(name, known))
                raise UserError(
                    f"dataset {job.key}: {self._key} names {printable(name)}, which is not a domain{hint}"
                )
        self.facts[self._key] = list(self._named)

    def read_corpus(self) -> Iterator[Passage]:
        rows = zip(super().rows("corpus"), super().rows("domains"), strict=True)
        return (passage for passage, (_, domain) in rows if self._stays(domain))

    def rows(self, part: str) -> Iterator[Any]:
        """Yield the rows of a part that are kept."""
        rows = super().rows(part)
        match part:
            case "domains":
                return (row for row in rows if self._stays(row[1]))
            case "qrels" | "lists":
                return (row for row in rows if row[0] in self._asked and row[1] in self._docs)
        return (row for row in rows if row[0] in self._asked)

    def _stays(self, domain: str) -> bool:
        return (domain in self._named) == (self._key == "only")

    @cached_property
    def _docs(self) -> set[str]:
        """Return the kept passages with a label."""
        labelled = {row[1] for row in chain(super().rows("qrels"), super().rows("lists"))}
        return {
            doc
            for doc, domain in super().rows("domains")
            if doc in labelled and self._stays(domain)
        }

    @cached_property
    def _asked(self) -> set[str]:
        """Return the queries that are kept."""
        return {
            query
            for query, doc, relevance, _ in super().rows("qrels")
            if relevance > 0 and doc in self._docs
        }
