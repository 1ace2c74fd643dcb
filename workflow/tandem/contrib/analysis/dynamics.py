"""Stage `dynamics`: measure how the score distributions of the two models of a joint training approach each other."""

import json
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import log_softmax
from scipy.stats import kendalltau

from tandem.cluster.progress import Progress
from tandem.contrib.analysis.options import DYNAMICS_FILE, DynamicsParams
from tandem.data.collection import Collection
from tandem.data.columns import Floats64
from tandem.data.rows import index_queries
from tandem.data.splits import draw_subset
from tandem.extras.validation.validation_sets import draw_apart
from tandem.models.device import use_workers
from tandem.models.ragged import Ids
from tandem.retrieval.encode import SideEncoder
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import PairScores
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing
from tandem.training.instances import draw_list
from tandem.training.lists import Lists, read_lists

COMPARED = ("entropy_de", "entropy_ce", "kl", "tau")
_DYNAMICS_SCHEMA = pa.schema(
    [("step", pa.int64()), ("query_id", pa.string()), *((name, pa.float64()) for name in COMPARED)]
)


def compare_scores(
    retriever: Floats64, reranker: Floats64
) -> tuple[float, float, float, float | None]:
    """Compare two models' scores of one list: return the entropy of both and KL(DE ‖ CE) in nats, and Kendall's tau-b.

    s_de(q, p) and s_ce(q, p), shape (list,), any real scale; log p(i) = s_i - log Σ_j exp s_j (RocketQAv2 Eqs. 2, 3).
    """
    log_de, log_ce = log_softmax(retriever), log_softmax(reranker)
    return (
        compute_entropy(log_de),
        compute_entropy(log_ce),
        measure_divergence(log_de, log_ce),
        compare_ranks(retriever, reranker),
    )


def compute_entropy(log_p: Floats64) -> float:
    """Return H(p) = -Σ p log p in nats: 0 if one passage has the whole probability, log n if all have the same.

    >>> round(compute_entropy(np.log([0.5, 0.5])), 6)  # log 2
    0.693147
    """
    return float(-(np.exp(log_p) * log_p).sum())


def measure_divergence(log_p: Floats64, log_q: Floats64) -> float:
    """Return KL(p ‖ q) = Σ p (log p - log q) in nats (RocketQAv2 Eq. 4 with p of the retriever, q of the re-ranker)."""
    return float((np.exp(log_p) * (log_p - log_q)).sum())


def compare_ranks(left: Floats64, right: Floats64) -> float | None:
    """Return Kendall's tau-b of two models' scores; None if one of them gives every passage the same score."""
    if len(left) < 2:
        return None
    tau = float(kendalltau(left, right, variant="b").statistic)
    return None if np.isnan(tau) else tau


class SampledLists(NamedTuple):
    """Some training lists, one for each query."""

    ids: list[str]  # of the queries
    queries: Ids  # row of each pair's query, shape (pairs,)
    passages: Ids  # row of each pair's passage, same shape; lists follow one another
    ends: Ids  # where each list ends among the pairs, shape (lists,)


def run(job: Job[DynamicsParams]) -> None:
    """Write dynamics.parquet: the entropies of both models' scores, KL(DE ‖ CE) and tau-b, by step and query.

    The lists are those that the training draws in its first epoch.
    Inputs: dataset, candidates, tokens, cross_tokens; `point.<i>`: a joint model or its checkpoints; retriever and
    reranker: the models that it started from (step 0). Step 0 is left out if one of these has not been trained for its
    part.
    """
    require_dataset(job, "candidates", "tokens", "cross_tokens")
    use_workers(job.execution.workers)
    sampled, points = sample_lists(job), list_points(job)
    rows: list[dict[str, object]] = []
    with (
        writing(job) as draft,
        Progress(f"dynamics {job.key}", len(points) * len(sampled.ids), "lists") as progress,
    ):
        for step, retriever, reranker in points:
            # scores of pairs that any stage has scored before are reused
            pairs = PairScores(
                reranker, job.inputs["cross_tokens"], job.params.precision, job.params.batch_tokens
            )
            cross_scores = pairs.score(sampled.queries, sampled.passages).astype(np.float64)
            dual_scores = score_by_retriever(job, retriever, sampled)

            dual_lists = np.split(dual_scores, sampled.ends[:-1])
            cross_lists = np.split(cross_scores, sampled.ends[:-1])
            for query, dual, cross in zip(sampled.ids, dual_lists, cross_lists, strict=True):
                values = (step, query, *compare_scores(dual, cross))
                rows.append(dict(zip(_DYNAMICS_SCHEMA.names, values, strict=True)))
            progress.add(len(sampled.ids))
        pq.write_table(pa.Table.from_pylist(rows, _DYNAMICS_SCHEMA), draft.path(DYNAMICS_FILE))
        draft.facts |= {"lists": len(sampled.ids), "points": len(points)}


def list_points(job: Job) -> list[tuple[int, Artifact, Artifact]]:
    """Return (step, model with the dual encoder, model with the cross-encoder), in the order of steps."""
    points = [(find_step(model), model, model) for model in job.many("point")]
    retriever, reranker = job.inputs.get("retriever"), job.inputs.get("reranker")
    has_start = any(step == 0 for step, _, _ in points)  # if dev has chosen step 0
    if (
        not has_start
        and retriever
        and reranker
        and (retriever.folder / "dual").is_dir()
        and (reranker.folder / "cross").is_dir()
    ):
        points.append((0, retriever, reranker))
    return sorted(points, key=lambda point: point[0])


def find_step(model: Artifact) -> int:
    """Return the step whose weights a model has: the step that dev has chosen, else the last one."""
    description = json.loads(model.path("model.json").read_text(encoding="utf-8"))
    best = description.get("best")  # the value of the chosen step, and the step
    return int(best[1] if best else model.manifest.facts["steps"])


def sample_lists(job: Job[DynamicsParams]) -> SampledLists:
    """Return the first list of each sampled query, as the training draws it at its first visit."""
    params = job.params
    lists = _read_trained_lists(job)
    size, positives = params.list_size, params.positives
    if size is None:  # the training has derived both from its data
        sizes = job.many("point")[0].manifest.facts["sizes"]
        size, positives = int(sizes["list_size"]), int(sizes["positives"])

    first_list: dict[str, int] = {}  # query → its first list
    query_ids = index_queries(Collection(job.inputs["dataset"])).ids(lists.queries)
    for index, query in enumerate(query_ids):
        first_list.setdefault(query, index)
    ids = list(draw_subset(dict.fromkeys(first_list, "train"), {"train": params.queries}))

    passages = []
    for query in ids:
        places = draw_list(lists, first_list[query], size, params.seed, 0, positives)
        filled = places[places >= 0]  # -1 fills up short lists
        passages.append(lists.passages[filled].astype(np.int64))
    lengths = [len(rows) for rows in passages]
    query_rows = lists.queries[[first_list[query] for query in ids]]
    return SampledLists(
        ids, np.repeat(query_rows, lengths), np.concatenate(passages), np.cumsum(lengths)
    )


def _read_trained_lists(job: Job[DynamicsParams]) -> Lists:
    """Return the lists from which the training learns, without those of its validation queries."""
    params = job.params
    lists = read_lists(job.inputs["candidates"].path("candidates.parquet"))
    if not params.set_apart:
        return lists
    apart = draw_apart(lists, params.set_apart, params.seed)
    return lists.select(np.flatnonzero(~np.isin(lists.queries, apart)))


def score_by_retriever(
    job: Job[DynamicsParams], model: Artifact, sampled: SampledLists
) -> Floats64:
    """Return s_de(q, p) of each pair: the vectors' dot product divided by the temperature; shape (pairs,), float64."""
    sides, temperature = [], 1.0
    for side, rows in (("queries", sampled.queries), ("passages", sampled.passages)):
        inputs = {"dataset": job.inputs["dataset"], "tokens": job.inputs["tokens"], "model": model}
        params: Any = {"side": side, **job.params.encode.model_dump()}
        encoder = SideEncoder(Job[Any]("embeddings", job.out, params, inputs, job.execution))
        unique, inverse = np.unique(rows, return_inverse=True)
        vectors: Any = encoder.encode(
            encoder.read(unique), Progress(f"dynamics {model.key} {side}", 0, "texts")
        )
        sides.append(np.asarray(vectors, np.float64)[inverse])
        temperature = encoder.model.temperature
    return np.asarray(np.einsum("pd,pd->p", *sides) / temperature)
