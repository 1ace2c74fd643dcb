"""Join passages into long documents: those that follow each other and have the same title."""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain, groupby, islice
from math import inf
from operator import itemgetter

from pydantic import Field

from tandem.contrib.formats.options import Joined, position_names
from tandem.data.collection import EXCLUDED, LITERAL_MATCH
from tandem.data.sources import (
    Answers,
    DatasetJob,
    Domain,
    Judgement,
    Listed,
    Passage,
    Query,
    dataset_format,
)
from tandem.extras.derived import DerivedSource


class JoinedEntry(Joined):
    """The entry, and whether the document with the passage of a query's id is left out of the query's results."""

    excludes_own: bool = Field(False, description="as `ignore_identical_ids` of the dataset")


@dataset_format("joined")
class JoinedSource(DerivedSource):
    """Joins the passages of the input `of`: a document is at most `most` neighbours with the same title.

    It has the id of its first passage, and the texts of all, a line each. The labels of its passages become its labels:
    it is relevant if one of its passages is. With `positions`, the queries of `split` are repeated in further splits,
    which depend on the position of their first relevant passage in its document: `<name>.q` is query q in the split
    `<split>_<name>`. If no query's own passage may be a result, the document that holds the passage q is `EXCLUDED` for
    q and its copies, whatever else it holds: q would find itself in it.
    """

    def __init__(self, job: DatasetJob, entry: JoinedEntry) -> None:
        super().__init__(job, entry)
        self._entry = entry
        self._names = position_names(entry.positions)
        self.facts |= {"documents": 0, "passages": 0}

    def _documents(self) -> Iterator[list[Passage]]:
        """Yield the passages of each document."""
        most = self._entry.most
        # A passage without a title shares no document: its id distinguishes it from its neighbours.
        for _, neighbours in groupby(
            super().read_corpus(), key=lambda passage: passage[1] or (passage[0],)
        ):
            document: list[Passage] = []
            for passage in neighbours:
                if most is not None and len(document) == most:
                    yield document
                    document = []
                document.append(passage)
            yield document

    def read_corpus(self) -> Iterator[Passage]:
        """Yield the documents; count them, and the passages that they are joined from."""
        for document in self._documents():
            first, title, _ = document[0]
            self.facts["documents"] += 1
            self.facts["passages"] += len(document)
            yield first, title, "\n".join(text for _, _, text in document)

    def read_domains(self) -> Iterator[Domain]:
        """Yield the domain of each document: that of its first passage."""
        domains = self.rows("domains")  # a row per passage, in the order of passages
        for document in self._documents():
            of_passages = list(islice(domains, len(document)))
            if of_passages and of_passages[0][1]:
                yield document[0][0], of_passages[0][1]

    def read_queries(self) -> Iterator[Query]:
        """Yield the dataset's queries, then those of `split` by the position of their relevant passages."""
        yield from super().read_queries()
        for query, text, split in super().read_queries():
            if name := self._position_of.get(query):
                yield f"{name}.{query}", text, f"{split}_{name}"

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield labels of documents: the highest grade of their passages, else a label that bars negatives, else 0.

        `EXCLUDED`, for a document that holds the query itself, takes precedence.
        """
        for (query, split), labels in self._labels.items():
            for doc, relevance in labels.items():
                yield query, doc, relevance, split
        for (query, split), labels in self._labels.items():
            if split == self._entry.split and (name := self._position_of.get(query)):
                for doc, relevance in labels.items():
                    yield f"{name}.{query}", doc, relevance, f"{split}_{name}"

    def read_answers(self) -> Iterator[Answers]:
        """Yield the dataset's answers, then those of the queries by position."""
        yield from super().read_answers()
        for query, texts in super().read_answers():
            if name := self._position_of.get(query):
                yield f"{name}.{query}", texts

    def read_lists(self) -> Iterator[Listed]:
        """Yield the dataset's lists, with documents in place of passages, each at the place of its first passage.

        A document has the label of its most relevant passage, and the highest score of its passages with that label.
        """
        for query, group in groupby(super().read_lists(), key=itemgetter(0)):
            best: dict[str, tuple[int, float | None]] = {}
            for _, passage, label, score in group:
                doc, _ = self._places.get(passage, (passage, 0))
                own = label, score
                best[doc] = max(best.get(doc, own), own, key=_rank)
            for doc, (label, score) in best.items():
                yield query, doc, label, score

    @cached_property
    def _places(self) -> dict[str, tuple[str, int]]:
        """Return labelled passage, or passage that is a query → its document, and its position there, from 1."""
        labelled = {
            passage for _, passage, _, _ in chain(super().read_qrels(), super().read_lists())
        }
        if self._entry.excludes_own:
            labelled.update(query for query, *_ in super().read_qrels())
        places = {}
        for document in self._documents():
            for number, (passage, _, _) in enumerate(document, start=1):
                if passage in labelled:
                    places[passage] = (document[0][0], number)
        return places

    @cached_property
    def _labels(self) -> dict[tuple[str, str], dict[str, int]]:
        """Return query and split → document → relevance."""
        labels: dict[tuple[str, str], dict[str, int]] = {}
        for query, passage, relevance, split in super().read_qrels():
            doc, _ = self._places.get(passage, (passage, 0))
            own = labels.setdefault((query, split), {})
            own[doc] = relevance if doc not in own else self._merge(own[doc], relevance)
        if self._entry.excludes_own:
            for (query, _), own in labels.items():
                if query in self._places:
                    doc, _ = self._places[query]
                    own[doc] = EXCLUDED
        return labels

    def _merge(self, first: int, second: int) -> int:
        """Return the label of a document that has passages with two labels."""
        # A dataset of broken copies bars the passage q for `swap.q`, whose id does not name that passage.
        if self._entry.excludes_own and EXCLUDED in (first, second):
            return EXCLUDED
        return _stronger(first, second)

    @cached_property
    def _position_of(self) -> dict[str, str]:
        """Return query of `split` → name of its first relevant passage's position range; empty without positions."""
        entry = self._entry
        positions: dict[str, int] = {}
        if entry.positions:
            for query, passage, relevance, split in super().read_qrels():
                if split == entry.split and relevance > 0 and passage in self._places:
                    number = self._places[passage][1]
                    positions[query] = min(number, positions.get(query, number))
        named = {}
        for query, number in positions.items():
            bounds_before = sum(number > bound for bound in entry.positions)
            named[query] = self._names[bounds_before]
        return named


def _rank(listed: tuple[int, float | None]) -> tuple[int, float]:
    """Return the criterion between two passages of a listed document: the label, then the score."""
    label, score = listed
    return label, -inf if score is None else score


def _stronger(first: int, second: int) -> int:
    """Return which of two labels of a document's passages becomes the document's."""
    if max(first, second) > 0:
        return max(first, second)
    for bar in (EXCLUDED, LITERAL_MATCH):
        if bar in (first, second):
            return bar
    return max(first, second)
