"""Datasets made of generated texts: passages with appended queries, and training queries without people's labels."""

from collections.abc import Iterator
from functools import cached_property
from heapq import nlargest
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from tandem.contrib.generation.options import (
    DROP_SHARE,
    SCORES_FILE,
    Expanded,
    GeneratedQueries,
)
from tandem.data.collection import CORPUS, QUERIES
from tandem.data.runs import iter_rows
from tandem.data.sources import DatasetJob, Passage, dataset_format
from tandem.data.tables import stream_rows
from tandem.errors import UserError
from tandem.extras.derived import PASSAGE_PARTS, DerivedSource, require_input
from tandem.stages.data import TEXTS_FILE
from tandem.store.artifact import Artifact

_TEXT_COLUMNS = ("id", "number", "text", "log_likelihood", "tokens")
# a smaller share of queries that find their own passage is worth a warning: the generator writes about other things
_FEW_FOUND = 0.2


class GeneratedText(NamedTuple):
    """A text and its position among all texts of a `generated` artifact."""

    row: int
    doc: str
    number: int
    text: str
    log_likelihood: float | None
    tokens: int | None


def read_text_scores(
    job: DatasetJob, generated: Artifact, number: int
) -> np.ndarray[Any, np.dtype[np.float32]] | None:
    """Return the scores of all texts, float32, NaN for empty ones; None without the input `scores`. 4 bytes a text."""
    if "scores" not in job.inputs:
        return None
    artifact = require_input(job, "scores", "score_generated")
    scored = Path(artifact.upstream["generated"]).name
    if scored != generated.key:
        raise UserError(
            f"dataset {job.key}: {artifact.folder} has scores of {scored}; expected {generated.key}"
        )
    count = artifact.params["number"]
    if number > count:
        raise UserError(
            f"dataset {job.key}: number is {number}, but {artifact.folder} has scores of {count} a passage"
        )
    scores: np.ndarray[Any, np.dtype[np.float32]] = pq.read_table(artifact.path(SCORES_FILE))[
        "score"
    ].to_numpy()
    return scores


class GeneratedSource(DerivedSource):
    """Combines the dataset of the input `of` with the texts generated for its passages, the input `generated`."""

    def __init__(self, job: DatasetJob, entry: Expanded | GeneratedQueries) -> None:
        super().__init__(job, entry)
        self.generated = require_input(job, "generated", "generated")
        of = Path(self.generated.upstream["dataset"]).name
        params = self.generated.params
        if of != self.base.key or params["side"] != "passages":
            what = f"texts of {params['side']} of {of}"
            raise UserError(
                f"dataset {job.key}: {self.generated.folder} holds {what}; expected passages of {self.base.key}"
            )
        if entry.number > params["number"]:
            have = f"{self.generated.folder} has {params['number']} of a passage"
            raise UserError(
                f"dataset {job.key}: number is {entry.number}, but {have}; lower it, or generate more"
            )
        self.number = entry.number
        self.scores = read_text_scores(job, self.generated, entry.number)
        self.facts |= {"generated": self.generated.key}

    def texts(self) -> Iterator[GeneratedText]:
        """Yield the first `number` texts of each passage, without empty ones, in the corpus' order."""
        rows = enumerate(stream_rows(self.generated.path(TEXTS_FILE), *_TEXT_COLUMNS))
        every = (GeneratedText(row, *values) for row, values in rows)
        return (text for text in every if text.number < self.number and text.text)


@dataset_format("expanded")
class ExpandedSource(GeneratedSource):
    """Appends generated queries to the texts of passages; queries and labels are those of the input `of`.

    docT5query (Nogueira and Lin 2019) also appends queries that repeat each other, which adds to their terms' weights:
    repeated queries are appended here as well. With scores, the lowest `drop_share` of all queries is left out, by one
    threshold for the whole collection (Doc2Query--: Gospodinov, MacAvaney and Macdonald 2023).
    """

    def __init__(self, job: DatasetJob, entry: Expanded) -> None:
        super().__init__(job, entry)
        self._share = entry.drop_share or DROP_SHARE
        self.facts |= {"appended": 0, "dropped": 0}

    def read_corpus(self) -> Iterator[Passage]:
        """Yield the passages, each with its queries; count the queries."""
        threshold = self._threshold
        groups = groupby(self.texts(), key=itemgetter(1))
        group_doc, group = next(groups, (None, iter(())))
        for doc, title, text in super().read_corpus():
            queries = []
            if doc == group_doc:
                for query in group:
                    if self.scores is not None and self.scores[query.row] <= threshold:
                        self.facts["dropped"] += 1
                    else:
                        queries.append(query.text)
                group_doc, group = next(groups, (None, iter(())))
            self.facts["appended"] += len(queries)
            texts = [text, *queries] if text else queries
            yield doc, title, " ".join(texts)
        if group_doc is not None:
            raise UserError(
                f"{self.generated.folder}: {group_doc} is out of the corpus' order; make it again"
            )

    @cached_property
    def _threshold(self) -> float:
        """Return the score up to which queries are left out: the highest of the lowest share, or minus infinity.

        Queries of equal scores are treated alike, so that a few more may be left out.
        """
        if self.scores is None:
            return float("-inf")
        rows = np.fromiter((text.row for text in self.texts()), np.int64)
        known = np.sort(self.scores[rows])
        known = known[np.isfinite(known)]
        count = int(self._share * len(known))
        return float(known[count - 1]) if count else float("-inf")


@dataset_format("generated_queries")
class GeneratedQueriesSource(GeneratedSource):
    """Takes generated queries as training queries, each with its passage as positive, without the base's own queries.

    A text is kept if the input `run`, over the input `all`, retrieves its passage within `found_within` (round-trip
    consistency; Promptagator: Dai et al. 2023). Of these, the `best` are kept: by the mean log-likelihood of a token
    (InPars: Bonifacio et al. 2022), or by the input `scores` (InPars-v2: Jeronymo et al. 2023).
    """

    def __init__(self, job: DatasetJob, entry: GeneratedQueries) -> None:
        super().__init__(job, entry)
        self._best = entry.best
        self._within = entry.found_within
        self._job = job
        self.places["queries"] = str(self.generated.folder / TEXTS_FILE)

    def rows(self, part: str) -> Iterator[Any]:
        """Yield the rows of a part: the base's passages, and the queries with their positives."""
        if part in PASSAGE_PARTS:
            return super().rows(part)
        match part:
            case "queries":
                return ((name_query(text), text.text, "train") for text in self._chosen())
            case "qrels":
                return ((name_query(text), text.doc, 1, "train") for text in self._chosen())
        return iter(())

    def _unique_texts(self) -> Iterator[GeneratedText]:
        """Yield the texts that may become queries, in the corpus' order; of equal ones of a passage only the first."""
        for _, group in groupby(self.texts(), key=itemgetter(1)):
            seen = set[str]()
            for text in group:
                if text.text not in seen:
                    seen.add(text.text)
                    yield text

    def _found_texts(self) -> Iterator[GeneratedText]:
        """Yield the texts of `_unique_texts` for which their passage is retrieved; all without the input `run`."""
        if self._is_found is None:
            yield from self._unique_texts()
            return
        for text, is_found in zip(self._unique_texts(), self._is_found, strict=True):
            if is_found:
                yield text

    def _chosen(self) -> Iterator[GeneratedText]:
        """Yield the texts that become queries, in the corpus' order."""
        best = self._best_rows
        return (text for text in self._found_texts() if best is None or text.row in best)

    @cached_property
    def _best_rows(self) -> set[int] | None:
        """Return the rows of the best texts, as many as `best`; None: all found ones. It counts them.

        Memory: the rows and qualities of `best` texts.
        """
        self.facts["texts"] = sum(1 for _ in self._unique_texts())
        count = sum(1 for _ in self._found_texts())
        if self._is_found is not None:
            self.facts["found"] = count
            if 0 < count < _FEW_FOUND * self.facts["texts"]:
                self.warnings.append(
                    f"{count:,} of {self.facts['texts']:,} generated queries find their passage among"
                    f" the first {self._within}: the generator says little of what it reads"
                )
        if not count:
            raise UserError(
                f"dataset {self._job.key}: no generated query is left; raise found_within, or generate more"
            )
        if self._best is None or self._best >= count:
            return None
        # of equal ones the earlier one first
        ranked = ((self._quality(text), -text.row) for text in self._found_texts())
        return {-row for _, row in nlargest(self._best, ranked)}

    def _quality(self, text: GeneratedText) -> float:
        if self.scores is not None:
            return float(self.scores[text.row])
        if text.log_likelihood is None or not text.tokens:
            hint = "name best_by, a model that scores queries with their passages"
            raise UserError(
                f"dataset {self._job.key}: the server gave no likelihood of its texts; {hint}"
            )
        return text.log_likelihood / text.tokens

    @cached_property
    def _is_found(self) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """Return whether the passage of each of `_unique_texts` is among the first `found_within` of the run for it.

        None without the input `run`. Memory: five bytes per text.
        """
        if "run" not in self._job.inputs:
            return None
        run = require_input(self._job, "run", "run")
        every = require_input(self._job, "all", "dataset")
        searched = Path(run.upstream["dataset"]).name
        if searched != every.key:
            raise UserError(
                f"dataset {self._job.key}: {run.folder} is over {searched}; expected {every.key}"
            )
        own = self._list_passage_rows(every)
        is_found = np.zeros(len(own), bool)
        for query, passages, _ in iter_rows(run, every):
            is_found[query] = own[query] in passages[: self._within]
        return is_found

    def _list_passage_rows(self, every: Artifact) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Return the row of each query's passage, shape (queries of `all`,).

        A `UserError` if these queries are not `_unique_texts`, in their order.
        """
        rows = np.empty(pq.read_metadata(every.path(QUERIES)).num_rows, np.int32)
        queries = (query for (query,) in stream_rows(every.path(QUERIES), "query_id"))
        passages = enumerate(doc for (doc,) in stream_rows(every.path(CORPUS), "doc_id"))
        row, doc = next(passages, (0, None))
        for number, (text, query) in enumerate(zip_longest(self._unique_texts(), queries)):
            if text is None or query != name_query(text):
                raise UserError(
                    f"dataset {self._job.key}: {every.folder} has other queries; make it again"
                )
            while doc is not None and doc != text.doc:
                row, doc = next(passages, (row, None))
            if doc is None:
                raise UserError(
                    f"{self.generated.folder}: {text.doc} is out of the corpus' order; make it again"
                )
            rows[number] = row
        return rows


def name_query(text: GeneratedText) -> str:
    """Return the id of a generated query: its passage's, a dot and its number."""
    return f"{text.doc}.{text.number}"
