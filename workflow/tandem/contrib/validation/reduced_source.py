"""Datasets of source `reduced`, on which checkpoints are validated."""

import heapq
from collections.abc import Container, Iterator
from typing import Any

from tandem.contrib.validation.options import Reduced
from tandem.data.collection import CORPUS, Collection
from tandem.data.runs import iter_run, require_run_split
from tandem.data.sources import DatasetJob, dataset_format
from tandem.data.splits import VALIDATED, compute_position, draw_subset
from tandem.data.tables import stream_rows
from tandem.extras.derived import PASSAGE_PARTS, DerivedSource, require_input
from tandem.store.artifact import Artifact


@dataset_format("reduced")
class ReducedSource(DerivedSource):
    """Keep the dev queries of the input `of` (at most `dev_queries`, by hash), over a part of its passages.

    The corpus is the union over the queries of the top `depth` of the input `run`, the reference, and all relevant
    passages, as Asyncval (Zhuang and Zuccon 2022) cuts it: a checkpoint is encoded and searched in minutes, while the
    whole corpus takes hours. The top passages are also the lists of the dataset, none of them as a positive. So the run
    `given` of the reduced dataset is the reference run again, and a cross-encoder can re-rank it.
    """

    def __init__(self, job: DatasetJob, entry: Reduced) -> None:
        super().__init__(job, entry)
        self._texts = Collection(self.base).queries(VALIDATED)
        limits = {VALIDATED: job.params.dev_queries}
        self._selected = draw_subset(dict.fromkeys(self._texts, VALIDATED), limits)
        run = require_input(job, "run", "run")
        require_run_split(run, VALIDATED)
        ranked = iter_run(run, self.base)
        self._top = {
            query: docs[: entry.depth] for query, docs, _ in ranked if query in self._selected
        }

        judged = [
            row for row in super().rows("qrels") if row[0] in self._selected and row[3] == VALIDATED
        ]
        needed = {doc for _, doc, relevance, _ in judged if relevance > 0}
        for docs in self._top.values():
            needed.update(docs)
        self._docs = needed | _draw_passages(self.base, needed, entry.others * len(self._selected))
        self._judged = [row for row in judged if row[2] > 0 or row[1] in self._docs]
        self.facts |= {"run": run.key, "found": len(needed)}

    def rows(self, part: str) -> Iterator[Any]:
        """Yield the rows of a part that stay; the lists are the reference run's top passages, in its order."""
        match part:
            case "queries":
                return ((query, self._texts[query], VALIDATED) for query in self._selected)
            case "qrels":  # of irrelevant passages only those that stay
                return iter(self._judged)
            case "lists":
                return ((query, doc, 0, None) for query, docs in self._top.items() for doc in docs)
        selected: Container[str] = self._docs if part in PASSAGE_PARTS else self._selected
        return (row for row in super().rows(part) if row[0] in selected)


def _draw_passages(dataset: Artifact, present: set[str], count: int) -> set[str]:
    """Draw further passages, those whose ids have the lowest hash: a larger draw contains every smaller one."""
    if not count:
        return set()
    ids = (doc for (doc,) in stream_rows(dataset.path(CORPUS), "doc_id") if doc not in present)
    return set(heapq.nsmallest(count, ids, key=compute_position))
