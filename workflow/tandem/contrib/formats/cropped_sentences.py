"""Sentences of passages as training queries."""

import heapq
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import Any

from tandem.contrib.formats.options import CroppedSentences
from tandem.data.sources import DatasetJob, dataset_format
from tandem.data.splits import compute_position
from tandem.errors import UserError
from tandem.extras.derived import PASSAGE_PARTS, DerivedSource
from tandem.extras.sentences import split_sentences


@dataset_format("cropped_sentences")
class CroppedSentencesSource(DerivedSource):
    """Takes sentences of the passages of the input `of` as training queries, each with its passage as positive.

    DRAGON (Lin et al. 2023) crops every sentence, and has teachers label it: `candidates.labels: rank`. Training
    queries of the input `queries`, a dataset over the same passages, follow them: generated ones, for example. If there
    are more sentences than `most`, those whose ids have the lowest hashes are taken; a larger choice contains every
    smaller one.
    """

    def __init__(self, job: DatasetJob, entry: CroppedSentences) -> None:
        super().__init__(job, entry)
        self._most, self._key = entry.most, job.key
        self._beside = DerivedSource(job, entry, "queries") if "queries" in job.inputs else None
        self.places["queries"] = self.places["corpus"]
        if self._beside:
            self.places["queries"] += f" then {self._beside.places['queries']}"
            self.facts |= self._beside.facts

    def rows(self, part: str) -> Iterator[Any]:
        """Yield the rows of a part: passages are the base's; queries are the sentences, then those of `queries`."""
        if part in PASSAGE_PARTS:
            return super().rows(part)
        beside = (
            (row for row in self._beside.rows(part) if row[-1] == "train")
            if self._beside
            else iter(())
        )
        match part:
            case "queries":
                return chain(((name, text, "train") for name, _, text in self._chosen()), beside)
            case "qrels":
                return chain(((name, doc, 1, "train") for name, doc, _ in self._chosen()), beside)
        return iter(())

    def _sentences(self) -> Iterator[tuple[str, str, str]]:
        """Yield id, passage and text of every sentence, in the corpus' order."""
        for doc, _, text in super().rows("corpus"):
            for number, sentence in enumerate(split_sentences(text)):
                yield f"{doc}.s{number}", doc, sentence

    def _chosen(self) -> Iterator[tuple[str, str, str]]:
        """Yield the sentences that become queries."""
        chosen = self._chosen_rows
        return (
            sentence
            for row, sentence in enumerate(self._sentences())
            if chosen is None or row in chosen
        )

    @cached_property
    def _chosen_rows(self) -> set[int] | None:
        """Return the numbers of at most `most` chosen sentences, None for all; count them. Memory: two numbers each."""
        count = self.facts["sentences"] = sum(1 for _ in self._sentences())
        if not count:
            raise UserError(f"dataset {self._key}: no passage of {self.base.folder} has a sentence")
        if self._most is None or self._most >= count:
            return None
        positions = (
            (compute_position(name), row) for row, (name, _, _) in enumerate(self._sentences())
        )
        return {row for _, row in heapq.nsmallest(self._most, positions)}
