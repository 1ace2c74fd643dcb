"""RocketQA's training files as a collection of their own: what they mention are its passages and training queries.

Passages and queries are told apart by what they say; an id is 64 bits of its blake2b hash (odds of
one collision among 8.8 million passages: 1 to 500,000).
"""

from array import array
from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter

import numpy as np

from tandem.data.files import Files
from tandem.data.sources import Judgement, Listed, Passage, Query, Source
from tandem.data.sources.rocketqa import title_of
from tandem.data.sources.training_tsv import Mention, mentions
from tandem.errors import UserError
from tandem.store.job import Job


class Mentions:
    """Every pair of a query and a passage that the files mention, in their order: 13 bytes each, and the queries.

    Attributes:
        queries: text → number, by first appearance.
    """

    def __init__(self, pairs: Iterator[Mention]) -> None:
        self.queries: dict[str, int] = {}
        self._query, self._doc, self._label = array("i"), array("Q"), array("b")
        for query, title, text, label in pairs:
            self._query.append(self.queries.setdefault(query, len(self.queries)))
            self._doc.append(digest(title, text))
            self._label.append(label)

    def first(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """For each mention whether its passage is mentioned for the first time."""
        docs = np.frombuffer(self._doc, np.uint64)
        first = np.zeros(len(docs), bool)
        first[np.unique(docs, return_index=True)[1]] = True
        return first

    def by_query(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """(query's number, its (passage's digest, label) in the files' order), queries by first appearance."""
        order = np.argsort(np.frombuffer(self._query, np.int32), kind="stable")
        rows = ((self._query[at], self._doc[at], self._label[at]) for at in order)
        for query, group in groupby(rows, key=itemgetter(0)):
            yield query, [(doc, label) for _, doc, label in group]


class RocketQaTsv(Source):
    """The files `dual` and `cross`, one of them or both, in the folder of `path`. All queries are training queries."""

    PARAMS = frozenset({"dual", "cross"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        told = {name: job.params[name] for name in ("dual", "cross") if job.params.get(name)}
        if not told:
            raise UserError("dual, cross: neither is told; name a training file of the folder, as dual: dual.train.tsv")
        files = Files(job)
        self._files = {name: files.find(file) for name, file in told.items()}
        self.places = {"corpus": "passage", "queries": "query"}

    def corpus(self) -> Iterator[Passage]:
        """(id, title, text) of each different passage, by first mention."""
        for is_first, (_, title, text, _) in zip(self._mentions.first(), self._read(), strict=True):
            if is_first:
                yield f"{digest(title, text):016x}", title, text

    def queries(self) -> Iterator[Query]:
        """(id, text, train) of each different query, by first mention."""
        return ((_name(text), text, "train") for text in self._mentions.queries)

    def qrels(self) -> Iterator[Judgement]:
        """(query id, passage id, 1, train) of each positive."""
        return ((query, doc, 1, "train") for query, doc, label, _ in self.lists() if label > 0)

    def lists(self) -> Iterator[Listed]:
        """(query id, passage id, 1 or 0, None), each pair once; a passage that is both is a positive, and counted."""
        self.facts["both_positive_and_negative"] = 0
        names = list(self._mentions.queries)
        for query, mentioned in self._mentions.by_query():
            positives = {doc for doc, label in mentioned if label}
            negatives = {doc for doc, label in mentioned if not label}
            self.facts["both_positive_and_negative"] += len(positives & negatives)
            for doc in dict.fromkeys(doc for doc, _ in mentioned):
                yield _name(names[query]), f"{doc:016x}", int(doc in positives), None

    @cached_property
    def _mentions(self) -> Mentions:
        return Mentions(self._read())

    def _read(self) -> Iterator[Mention]:
        """Every mention of the files, with clean titles."""
        for query, title, text, label in mentions(self._files.get("dual"), self._files.get("cross")):
            yield query, title_of(title), text, label


def digest(*texts: str) -> int:
    """64 bits of the blake2b hash of texts that hold no tab."""
    return int.from_bytes(blake2b("\t".join(texts).encode(), digest_size=8).digest(), "big")


def _name(query: str) -> str:
    """A query's id."""
    return f"{digest(query):016x}"
