"""A dataset whose passages are windows over another's documents (Dai & Callan 2019).

Labels belong to documents; what they say about windows is a choice, of use for training alone: runs over windows are
aggregated to documents before they are scored, by the documents' own qrels.
"""

from collections.abc import Iterator
from functools import cached_property

from tandem.data.collection import CORPUS, LITERAL_MATCH, QUERIES
from tandem.data.sources import Answers, Judgement, Listed, Passage, Query, Source
from tandem.data.sources.artifact_rows import ArtifactRows, needed
from tandem.data.windowing import count, cut, pieces, window_id
from tandem.store.job import Job


class Windows(Source):
    """Windows of `length` units (`unit`), a new one every `stride`, over the documents of the input `of`.

    A document without text has one empty window. Only the text is cut; the title stands before every window (`titles:
    repeat`) or before the first alone. `label` says which windows of a judged document carry its label: `all`, or the
    `first` alone; then a relevant document's others are neither positives nor negatives.
    """

    PARAMS = frozenset({"length", "stride", "unit", "most", "titles", "label"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        base = needed(job, "of", "dataset")
        self._base, params = ArtifactRows(base), job.params
        self._length, self._stride, self._unit = params["length"], params["stride"], params["unit"]
        self._most, self._all, self._repeat = params["most"], params["label"] == "all", params["titles"] == "repeat"
        self.places = {"corpus": self._base.place(CORPUS), "queries": self._base.place(QUERIES)}
        self.facts = {"of": base.key, "documents": 0, "cut": 0}

    def corpus(self) -> Iterator[Passage]:
        """Every window, document after document."""
        for doc, title, text in self._base.corpus():
            windows = cut(text, self._length, self._stride, self._unit, self._most)
            self.facts["documents"] += 1
            self.facts["cut"] += len(windows) > 1
            for number, window in enumerate(windows):
                yield window_id(doc, number), title if self._repeat or number == 0 else "", window

    def queries(self) -> Iterator[Query]:
        """Every query."""
        return self._base.queries()

    def qrels(self) -> Iterator[Judgement]:
        """The judgements of documents, as `label` gives them to windows."""
        for query, doc, relevance, split in self._base.qrels():
            yield query, window_id(doc, 0), relevance, split
            if self._all or relevance > 0:
                for number in range(1, self._counts.get(doc, 1)):
                    yield query, window_id(doc, number), relevance if self._all else LITERAL_MATCH, split

    def answers(self) -> Iterator[Answers]:
        """Every question's answers."""
        return self._base.answers()

    def lists(self) -> Iterator[Listed]:
        """The training lists, a document's place taken by the windows that carry its label."""
        for query, doc, label, score in self._base.lists():
            for number in range(self._counts.get(doc, 1) if self._all else 1):
                yield query, window_id(doc, number), label, score

    @cached_property
    def _counts(self) -> dict[str, int]:
        """How many windows each document has that is judged or listed; those of one window are left out."""
        named = {row[1] for rows in (self._base.qrels(), self._base.lists()) for row in rows}
        counts = {}
        for doc, _, text in self._base.corpus():
            if doc in named:
                windows = count(len(pieces(text, self._unit)), self._length, self._stride)
                if (kept := min(windows, self._most or windows)) > 1:
                    counts[doc] = kept
        return counts
