"""Source `windows`: the documents of a dataset, cut into windows."""

from collections.abc import Iterator
from functools import cached_property

from pydantic import Field

from tandem.contrib.long_documents.cutting import (
    count_windows,
    cut_windows,
    name_window,
    split_units,
)
from tandem.contrib.long_documents.options import Windows
from tandem.data.collection import EXCLUDED, LITERAL_MATCH
from tandem.data.sources import DatasetJob, Domain, Judgement, Listed, Passage, dataset_format
from tandem.extras.derived import DerivedSource


class WindowsEntry(Windows):
    """`Windows`, and whether the windows of a query's own document are excluded from its results."""

    excludes_own: bool = Field(False, description="as `ignore_identical_ids` of the dataset")


@dataset_format("windows")
class WindowsSource(DerivedSource):
    """Windows over the documents of the input `of` (Dai & Callan 2019).

    A document without text has one empty window. Only the text is cut. Labels belong to documents. Which windows carry
    them matters only for training, since runs over windows are aggregated to documents before they are scored, by the
    documents' own qrels. With `label: first`, a relevant document's other windows are neither positives nor negatives.
    With `excludes_own`, the windows of a query's own document are `EXCLUDED` for the query, since their ids differ from
    the query's.
    """

    def __init__(self, job: DatasetJob, entry: WindowsEntry) -> None:
        super().__init__(job, entry)
        self._entry = entry
        self._unit = entry.unit or "words"
        self._labels_all = entry.label == "all"
        self.facts |= {"documents": 0, "cut": 0}

    def _cut(self, text: str) -> list[str]:
        entry = self._entry
        return cut_windows(text, entry.length, entry.stride, self._unit, entry.most)

    def read_corpus(self) -> Iterator[Passage]:
        """Yield the documents' windows, in order; count the documents, and the documents that have several windows."""
        repeats_titles = self._entry.titles == "repeat"
        for doc, title, text in super().read_corpus():
            windows = self._cut(text)
            self.facts["documents"] += 1
            self.facts["cut"] += len(windows) > 1
            for number, window in enumerate(windows):
                has_title = repeats_titles or number == 0
                yield name_window(doc, number), title if has_title else "", window

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield the documents' judgements for all of their windows or for the first one; see the class."""
        judged: dict[tuple[str, str], None] = {}  # queries that are documents, with their splits
        for query, doc, relevance, split in super().read_qrels():
            if query in self._own_documents:
                judged[query, split] = None
                if doc == query:
                    continue
            yield query, name_window(doc, 0), relevance, split
            is_barred = relevance in (LITERAL_MATCH, EXCLUDED)  # all windows of such a document
            if relevance <= 0 and not (self._labels_all or is_barred):
                continue
            of_others = relevance if self._labels_all or is_barred else LITERAL_MATCH
            for number in range(1, self._counts.get(doc, 1)):
                yield query, name_window(doc, number), of_others, split
        for query, split in judged:
            for number in range(self._counts.get(query, 1)):
                yield query, name_window(query, number), EXCLUDED, split

    def read_lists(self) -> Iterator[Listed]:
        """Yield the documents' lists, as lists of the windows that carry their documents' labels."""
        for query, doc, label, score in super().read_lists():
            labelled = self._counts.get(doc, 1) if self._labels_all else 1
            for number in range(labelled):
                yield query, name_window(doc, number), label, score

    def read_domains(self) -> Iterator[Domain]:
        """Yield every window's domain, which is its document's."""
        for (_, _, text), (doc, domain) in zip(
            super().read_corpus(), self.rows("domains"), strict=False
        ):
            if domain:
                for number in range(len(self._cut(text))):
                    yield name_window(doc, number), domain

    @cached_property
    def _own_documents(self) -> set[str]:
        """Return the judged queries that are also documents; none if a query's own document may be a result."""
        if not self._entry.excludes_own:
            return set()
        judged = {query for query, *_ in super().read_qrels()}
        return {doc for doc, *_ in super().read_corpus() if doc in judged}

    @cached_property
    def _counts(self) -> dict[str, int]:
        """Return document → number of its windows, for labelled documents and queries' own that have several."""
        entry = self._entry
        labelled = {doc for _, doc, *_ in super().read_qrels()}
        labelled.update(doc for _, doc, *_ in super().read_lists())
        labelled |= self._own_documents
        counts = {}
        for doc, _, text in super().read_corpus():
            if doc not in labelled:
                continue
            units = len(split_units(text, self._unit))
            windows = count_windows(units, entry.length, entry.stride)
            number = min(windows, entry.most or windows)
            if number > 1:
                counts[doc] = number
        return counts
