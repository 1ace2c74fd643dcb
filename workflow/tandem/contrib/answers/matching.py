"""The stage `match`: find the passages at the top of a run that contain an answer to their question.

A run is inverted: each passage is read and prepared once, and matched with all questions that found it. A search over
21 million passages finds a few million of them. Instead of gathering their texts, the stage reads the corpus once and
matches each passage with the questions whose lists name it. Only arrays are in memory: about 30 bytes per (question,
passage) pair, and 60 for each distinct passage.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tandem.cluster.progress import Progress, warn
from tandem.cluster.work import map_in_order
from tandem.contrib.answers.options import MatchParams
from tandem.data.collection import Collection
from tandem.data.rows import IdRows
from tandem.data.runs import MATCHES_FILE, iter_ranking, require_run_split, require_split_queries
from tandem.extras.answer_rules import Matcher
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

_Integers = NDArray[np.int64]

_CUTOFFS = (1, 5, 10, 20, 50, 100, 500, 1000)
_ROWS_PER_GROUP = 131_072
# passages of the corpus that are read and given to a process at a time
PASSAGES_PER_BLOCK = 4096
_QUERIES_PER_BLOCK = 100  # queries whose lists are Python objects at a time
_worker: dict[str, Matcher] = {}  # the matcher of this process


def run(job: Job[MatchParams]) -> None:
    """Match the answers of a split's questions in the passages that a run found.

    Inputs: dataset, run. Writes matches.parquet with query_id, doc_id, rank and relevant: questions in the order of the
    run, and passages by rank.

    The manifest's `success` is a share of all questions with answers, in the run or not: those with a match in the
    top k (DPR's top-k accuracy). Broken patterns, answers without a token, and searches that were given up are counted;
    none of them matches.
    """
    params = job.params
    collection = Collection(job.inputs["dataset"])
    require_run_split(job.inputs["run"], params.split)
    answers = collection.answers(params.split)
    numbers = {query: number for number, query in enumerate(answers)}
    results = _RunPairs(job.inputs["run"], collection.artifact, numbers, params.depth)
    if not len(results):
        require_split_queries(job.inputs["run"], collection, params.split)
    matcher = Matcher(params.match, list(answers.values()))
    relevant = np.zeros(len(results), bool)
    timeouts = 0
    workers = min(job.execution.workers or 1, -(-collection.passages // PASSAGES_PER_BLOCK))
    pieces = results.pieces(collection, params.title, f"match {job.key}")
    for pairs, values, given_up in map_in_order(
        _match, pieces, workers, 1, partial(_start, matcher)
    ):
        relevant[pairs] = values
        timeouts += given_up
    counts = {
        "broken_patterns": matcher.broken,
        "empty_answers": matcher.empty,
        "timeouts": timeouts,
    }
    problems = [f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items() if number]
    with writing(job) as draft:
        columns = {
            "query_id": pa.array(list(answers), pa.string()).take(pa.array(results.questions)),
            "doc_id": results.ids.take(pa.array(results.docs)).cast(pa.string()),
            "rank": pa.array(results.ranks),
            "relevant": pa.array(relevant),
        }
        pq.write_table(
            pa.table(columns),
            draft.path(MATCHES_FILE),
            row_group_size=_ROWS_PER_GROUP,
            compression="zstd",
        )
        draft.facts.update(
            questions=len(answers), pairs=len(results), passages=len(results.ids), **counts
        )
        draft.facts["missing"] = len(answers) - len(np.unique(results.questions))
        # rank of each question's first match
        first: _Integers = np.full(len(answers), np.iinfo(np.int64).max)
        np.minimum.at(first, results.questions[relevant], results.ranks[relevant])
        cutoffs = (k for k in _CUTOFFS if k <= params.depth)
        draft.facts["success"] = {str(k): float(np.mean(first <= k)) for k in cutoffs}
        if problems:
            warn(job, draft, f"{', '.join(problems)}: no match")


class _PassageBlock(NamedTuple):
    """Texts of some passages, the questions that found each, and the positions of these pairs in `_RunPairs`."""

    texts: list[str]
    questions: list[list[int]]
    pairs: _Integers


class _RunPairs:
    """The top of a run for the questions in `numbers` (query id → number): a pair for each line, in the run's order.

    For each pair, `questions` contains the question's number, `ranks` the rank, from 1, and `docs` the document, as an
    index into `ids`, the distinct document ids. A system that finds nothing has no pair.
    """

    def __init__(
        self, run: Artifact, dataset: Artifact, numbers: Mapping[str, int], depth: int
    ) -> None:
        ranked = (
            (numbers[q], docs[:depth]) for q, docs, _ in iter_ranking(run, dataset) if q in numbers
        )
        questions: list[int] = []
        lengths: list[int] = []
        names = [pa.array([], pa.large_string())]
        while batch := list(islice(ranked, _QUERIES_PER_BLOCK)):
            questions += [number for number, _ in batch]
            lists = [docs for _, docs in batch]
            lengths += map(len, lists)
            names.append(pa.array(chain.from_iterable(lists), pa.large_string()))
        self.where = run.folder
        self.questions = np.repeat(np.asarray(questions, np.int32), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        self.ranks = (np.arange(1, len(starts) + 1) - starts).astype(np.int32)
        encoded = pa.concat_arrays(names).dictionary_encode()
        self.docs = np.asarray(encoded.indices)
        self.ids = encoded.dictionary

    def __len__(self) -> int:
        return len(self.docs)

    def pieces(self, collection: Collection, title: bool, label: str) -> Iterator[_PassageBlock]:
        """Yield the passages that were found, in the corpus' order, in one pass that ends after the last of them.

        With `title`, a passage's text is `title . text` (DPR's `use_title`).
        """
        # The pairs of document i are order[bounds[i] : bounds[i + 1]].
        order = np.argsort(self.docs, kind="stable")
        bounds = np.cumsum(np.bincount(self.docs + 1, minlength=len(self.ids) + 1))
        ids = IdRows(pa.chunked_array([self.ids]), "passage", self.where)
        missing = np.ones(len(ids), bool)
        with Progress(label, collection.passages, "passages") as progress:
            for batch in collection.batches(PASSAGES_PER_BLOCK):
                docs = ids.rows(batch["doc_id"].to_pylist(), missing_ok=True)
                retrieved = batch.filter(pa.array(docs >= 0))
                docs = docs[docs >= 0]
                missing[docs] = False
                texts = retrieved["text"].to_pylist()
                if title:
                    titles = retrieved["title"].to_pylist()
                    texts = [f"{name} . {text}" for name, text in zip(titles, texts, strict=True)]
                pairs = [order[bounds[doc] : bounds[doc + 1]] for doc in docs.tolist()]
                if pairs:
                    questions = [self.questions[own].tolist() for own in pairs]
                    yield _PassageBlock(texts, questions, np.concatenate(pairs))
                progress.add(len(batch))
                if not missing.any():
                    return


def _start(matcher: Matcher) -> None:
    _worker["matcher"] = matcher


def _match(piece: _PassageBlock) -> tuple[_Integers, list[bool], int]:
    """Return the positions of a piece's pairs, whether each matches, and how many searches were given up."""
    matcher = _worker["matcher"]
    before = matcher.timeouts
    values: list[bool] = []
    for text, questions in zip(piece.texts, piece.questions, strict=True):
        values += matcher.matches(text, questions)
    return piece.pairs, values, matcher.timeouts - before
