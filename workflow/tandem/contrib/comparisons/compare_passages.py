"""Stages `compare` and `rerank_compared`: a model compares the passages at the top of a run, which is then re-ranked.

duoBERT (Nogueira et al. 2019) and duoT5 (Pradeep et al. 2021) read every pair of passages together with the query, in
both orders. The comparisons are stored, so that every aggregation uses the same numbers.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.cluster.work import Parts
from tandem.config.settings import Execution
from tandem.contrib.comparisons.options import (
    CompareParams,
    ComparisonAggregate,
    RerankComparedParams,
)
from tandem.data.columns import RankedRows
from tandem.data.runs import append_below, iter_rows, write_rows
from tandem.errors import UserError
from tandem.extras.tied_scores import break_ties_by_place
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.folders import PAIR_LENGTH_STEP
from tandem.models.ragged import Ids, Ragged, cut_longest_first, sum_lengths
from tandem.models.tokens import Inputs, Template, Tokens
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import (
    require_dataset,
    require_part,
    require_run_depth,
    require_tokenizer,
)
from tandem.retrieval.pair_scores import find_tokenizer, to_probability
from tandem.stages.base import Json
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

COMPARISONS_FILE = "comparisons.npy"
_AT_ONCE = 4096  # comparisons whose texts are in memory at once


def list_pairs(count: int) -> tuple[Array, Array]:
    """Return the places (i, j) of all ordered pairs of different passages, i by i, shape (count · (count - 1),) each.

    >>> [places.tolist() for places in list_pairs(3)]
    [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    """
    first, second = np.nonzero(~np.eye(count, dtype=bool))
    return first, second


def join_passages(
    first: Ragged, second: Ragged, between: Sequence[int], room: Ids | None = None
) -> Ragged:
    """Return the two passages of each row as one text, with ids between them.

    Args:
        room: how many tokens the joined text of each row may have; the longer passage loses its end first. None:
            nothing is cut.
    """
    if room is not None:
        kept_of_first, kept_of_second = cut_longest_first(
            np.diff(first.offsets), np.diff(second.offsets), np.maximum(room - len(between), 0)
        )
        first = first.cut(kept_of_first)
        second = second.cut(kept_of_second)
    separators = Ragged.of([np.array(between, np.int64)] * len(first))
    joined = Inputs.join([(first, 0), (separators, 0), (second, 0)], False, 0)
    return Ragged(joined.ids, sum_lengths(joined.lengths))


def find_room(model: CrossEncoder, template: Template, queries: Ragged) -> Ids | None:
    """Return how many tokens two joined passages may have together with each query, shape (queries,).

    None if the model does not cut pairs. If it does, it would cut the joined passages as one text and so remove the
    second passage.
    """
    read = model.adapt(template)
    if read.longest_pair is None:
        return None
    room: Ids = read.longest_pair - read.extra[1] - np.diff(queries.offsets)
    return room


class Comparing:
    """The lists whose passages a job compares, part by part; the model is loaded for the first missing part."""

    def __init__(self, job: Job[CompareParams]) -> None:
        require_dataset(job, "run", "tokens")
        require_run_depth(job, job.params.depth)
        self.job = job
        self.source = job.inputs["tokens"]
        self.tokens = Tokens.open(self.source)
        self.folder = require_part(job.inputs["model"], "cross")
        require_tokenizer(find_tokenizer(self.folder), self.source)
        self.parts = Parts(job, ".npy")
        self.queries, self.tops = read_tops(
            job.inputs["run"], job.inputs["dataset"], job.params.depth
        )
        self.model: CrossEncoder | None = None

    def open(self) -> CrossEncoder:
        """Load the model; refuse one that does not compare passages, or only takes shorter texts."""
        params = self.job.params
        use_workers(self.job.execution.workers)
        model = CrossEncoder.load(self.folder).to(device())
        if model.options.passages != 2:
            raise UserError(
                f"{self.folder}: scores one passage; comparisons need a model with compares: true"
            )
        lengths = (self.source.params["query_length"], self.source.params["passage_length"])
        model.check_lengths(*lengths, self.tokens.template, str(self.folder))
        accelerate(
            model,
            Execution(attention="padded"),
            params.batch_tokens,
            params.precision,
            training=False,
        )
        return model

    def write_part(self, span: range, progress: Progress, path: Path) -> Json:
        """Write the scores of a part's comparisons, list by list in the order of `list_pairs`, float32."""
        scores = [np.empty(0, np.float32)]
        for row in span:
            scores.append(self.score(int(self.queries[row]), self.tops[row]))
            progress.add(1)
        joined = np.concatenate(scores)
        with open(path, "wb") as file:
            np.save(file, joined)
        return {"comparisons": len(joined)}

    def score(self, query: int, top: Array) -> Array:
        """Return the scores of a list's comparisons, float32, shape (pairs,)."""
        self.model = self.model or self.open()
        params = self.job.params
        template = self.tokens.template
        first, second = list_pairs(len(top))
        lengths = self.tokens.passages.lengths(top)
        # sort pairs by length; each is computed in a shape that does not depend on the other pairs
        order = np.argsort(-((lengths[first] + lengths[second]) // PAIR_LENGTH_STEP), kind="stable")
        scores = np.empty(len(first), np.float32)
        for start in range(0, len(order), _AT_ONCE):
            pairs = order[start : start + _AT_ONCE]
            before = self.tokens.passages.take(top[first[pairs]])
            behind = self.tokens.passages.take(top[second[pairs]])
            queries = self.tokens.queries.take(np.full(len(pairs), query))
            room = find_room(self.model, template, queries)
            joined = join_passages(before, behind, self.model.separator(template), room)
            scores[pairs] = self.model.score(
                queries, joined, template, resolve_precision(params.precision), params.batch_tokens
            )
        if not np.isfinite(scores).all():
            raise UserError(
                f"{self.folder}: gives a score that is not a number; the model has diverged"
            )
        return scores

    def complete(self) -> dict[int, Json]:
        """Write this job's missing parts; return the facts of its parts by number."""
        return self.parts.complete(len(self.tops), self.write_part)


def read_tops(run: Artifact, dataset: Artifact, depth: int) -> tuple[Array, list[Array]]:
    """Return the query rows of a run's lists, and the rows of each list's first passages."""
    queries = list[int]()
    tops = list[Array]()
    for query, passages, _ in iter_rows(run, dataset):
        queries.append(query)
        tops.append(np.array(passages[:depth], np.int64))
    return np.array(queries, np.int64), tops


def run_shard(job: Job[CompareParams]) -> Json:
    """Compare the lists of every n-th part, starting at this shard's number."""
    return {"parts": list(Comparing(job).complete())}


def run(job: Job[CompareParams]) -> None:
    """Write comparisons.npy: for each list of the run, the scores s(q, p_i, p_j) in the order of `list_pairs`.

    Inputs: dataset, run, tokens, and model, a cross-encoder that compares.
    """
    comparing = Comparing(job)
    facts = comparing.complete()
    total = sum(part["comparisons"] for part in facts.values())
    with writing(job) as draft:
        path = draft.path(COMPARISONS_FILE)
        if total:
            stored = np.lib.format.open_memmap(path, "w+", np.float32, (total,))
            start = 0
            for number in facts:
                part = np.load(comparing.parts.path(number), allow_pickle=False)
                stored[start : start + len(part)] = part
                start += len(part)
            stored.flush()
        else:
            np.save(path, np.empty(0, np.float32))
        draft.facts |= {"comparisons": total, "lists": len(comparing.tops)}
    comparing.parts.remove()


def aggregate(method: ComparisonAggregate, logits: Array, count: int) -> Array:
    """Return a list's scores from its comparisons, float64, shape (passages,).

    With p_ij = σ(s(q, p_i, p_j)), over all j ≠ i: Σ p_ij (`sum`), Σ p_ij + 1 - p_ji (`sym_sum`), the number of
    p_ij > ½ (`binary`), the least or greatest p_ij (`min`, `max`). `copeland` counts the passages j over which i is
    preferred by both orders together, p_ij > p_ji, plus half of those with p_ij = p_ji.

    Args:
        logits: s(q, p_i, p_j) in the order of `list_pairs`.
        count: passages of the list.
    """
    if count < 2:
        return np.zeros(count)
    own: Array = to_probability(logits).reshape(count, count - 1)  # p_ij, j in order without i
    if method == "sum":
        return np.asarray(own.sum(1))
    if method == "binary":
        return np.asarray((own > 0.5).sum(1), np.float64)
    if method in ("min", "max"):
        return np.asarray(own.min(1) if method == "min" else own.max(1))
    square = np.zeros((count, count))
    square[list_pairs(count)] = own.ravel()
    if method == "sym_sum":
        return np.asarray(own.sum(1) + (count - 1) - square.sum(0))
    wins = (square > square.T) + 0.5 * (square == square.T)
    np.fill_diagonal(wins, 0.0)
    return np.asarray(wins.sum(1))


def rerank(job: Job[RerankComparedParams]) -> Iterator[RankedRows]:
    """Yield (the query's row, its documents' rows, their scores): compared documents first; ties keep their order."""
    stored: Any = np.load(
        job.inputs["compared"].path(COMPARISONS_FILE), mmap_mode="r", allow_pickle=False
    )
    start = 0
    for query, ranked, _ in iter_rows(job.inputs["run"], job.inputs["dataset"]):
        count = min(job.params.depth, len(ranked))
        pairs = count * (count - 1)
        scores = aggregate(job.params.aggregate, np.asarray(stored[start : start + pairs]), count)
        start += pairs
        yield query, ranked, append_below(break_ties_by_place(scores), len(ranked))
    if start != len(stored):
        folder = job.inputs["compared"].folder
        raise UserError(
            f"{folder}: has {len(stored):,} comparisons, but the run has {start:,} pairs; compare anew"
        )


def run_rerank(job: Job[RerankComparedParams]) -> None:
    """Write a run as deep as the input `run`, with its top ordered by the input `compared`."""
    require_dataset(job, "run", "compared")
    compared = job.inputs["compared"]
    run = Path(compared.upstream["run"]).name
    if run != job.inputs["run"].key:
        raise UserError(
            f"{job.kind}: {compared.folder} compares passages of {run}; expected {job.inputs['run'].key}"
        )
    if compared.params["depth"] != job.params.depth:
        has = f"{compared.folder} compares {compared.params['depth']} passages"
        raise UserError(f"{job.kind}: depth is {job.params.depth}, but {has}")
    with writing(job) as draft:
        draft.facts["lines"] = write_rows(job, draft, rerank(job))
