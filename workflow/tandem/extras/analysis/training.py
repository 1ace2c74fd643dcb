"""Stages `dynamics` and `hardness`: how a joint training's score distributions approach each other; how hard the
negatives of training lists are, and which of them may be positives.
"""

import json
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.special import log_softmax
from scipy.stats import kendalltau

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.columns import DatasetNames, Floats64
from tandem.data.rows import index_queries
from tandem.data.splits import draw_subset
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.models.ragged import Ids
from tandem.retrieval.encode import SideEncoder
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import PairScores, average_probabilities, open_judges
from tandem.stages.evaluation import DynamicsParams, HardnessParams
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing
from tandem.training.instances import draw_list
from tandem.training.lists import add_ids, read_lists
from tandem.training.validation import draw_apart

DYNAMICS = "dynamics.parquet"
FLOATS = ("entropy_de", "entropy_ce", "kl", "tau")
_DYNAMICS_SCHEMA = pa.schema(
    [("step", pa.int64()), ("query_id", pa.string()), *((name, pa.float64()) for name in FLOATS)]
)
NEGATIVES_FILE = "negatives.parquet"
_LIST_COLUMNS = ("query_row", "passage_row", "label", "rank", "score", "list")
_QUARTILES = (0.25, 0.5, 0.75)


def compare_scores(retriever: Floats64, reranker: Floats64) -> tuple[float, float, float, float | None]:
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
    """Return H(p) = -Σ p log p in nats: 0 if one passage has everything, log n if all have the same.

    >>> round(compute_entropy(np.log([0.5, 0.5])), 6)  # log 2
    0.693147
    """
    return float(-(np.exp(log_p) * log_p).sum())


def measure_divergence(log_p: Floats64, log_q: Floats64) -> float:
    """Return KL(p ‖ q) = Σ p (log p - log q) in nats (RocketQAv2 Eq. 4 with p of the retriever, q of the re-ranker)."""
    return float((np.exp(log_p) * (log_p - log_q)).sum())


def compare_ranks(left: Floats64, right: Floats64) -> float | None:
    """Return Kendall's tau-b of two models' scores; None where one of them gives every passage the same score."""
    if len(left) < 2:
        return None
    tau = float(kendalltau(left, right, variant="b").statistic)
    return None if np.isnan(tau) else tau


class SampledLists(NamedTuple):
    """Hold some training lists, one of each query."""

    ids: list[str]  # of the queries
    queries: Ids  # row of the query of each pair, shape (pairs,)
    passages: Ids  # row of the passage of each pair, same shape; lists stand together
    ends: Ids  # where each list ends in them, shape (lists,)


def run_dynamics(job: Job[DynamicsParams]) -> None:
    """Write dynamics.parquet: per step and query the entropies of both, KL(DE ‖ CE) and tau-b of their scores.

    The lists are those that the training draws in its first epoch.
    Inputs: dataset, candidates, tokens, cross_tokens; `point.<i>`: a joint model or its checkpoints; retriever and
    reranker: what it started from, step 0, left out if one of them has not been trained for its part.
    """
    require_dataset(job, "candidates", "tokens", "cross_tokens")
    use_workers(job.execution.workers)
    sampled, points = sample_lists(job), list_points(job)
    rows: list[dict[str, object]] = []
    with writing(job) as draft, Progress(f"dynamics {job.key}", len(points) * len(sampled.ids), "lists") as progress:
        for step, retriever, reranker in points:
            # pairs that any stage has scored before are found
            pairs = PairScores(reranker, job.inputs["cross_tokens"], job.params.precision, job.params.batch_tokens)
            cross_scores = pairs.score(sampled.queries, sampled.passages).astype(np.float64)
            dual_scores = score_by_retriever(job, retriever, sampled)

            dual_lists = np.split(dual_scores, sampled.ends[:-1])
            cross_lists = np.split(cross_scores, sampled.ends[:-1])
            for query, dual, cross in zip(sampled.ids, dual_lists, cross_lists, strict=True):
                values = (step, query, *compare_scores(dual, cross))
                rows.append(dict(zip(_DYNAMICS_SCHEMA.names, values, strict=True)))
            progress.add(len(sampled.ids))
        pq.write_table(pa.Table.from_pylist(rows, _DYNAMICS_SCHEMA), draft.path(DYNAMICS))
        draft.facts |= {"lists": len(sampled.ids), "points": len(points)}


def list_points(job: Job) -> list[tuple[int, Artifact, Artifact]]:
    """Return (step, model with the dual encoder, model with the cross-encoder), in the order of steps."""
    points = [(int(model.manifest.facts["steps"]), model, model) for model in job.many("point")]
    retriever, reranker = job.inputs.get("retriever"), job.inputs.get("reranker")
    if retriever and reranker and (retriever.folder / "dual").is_dir() and (reranker.folder / "cross").is_dir():
        points.append((0, retriever, reranker))
    return sorted(points, key=lambda point: point[0])


def sample_lists(job: Job[DynamicsParams]) -> SampledLists:
    """Return the first list of each sampled query, as the training draws it when it visits it first."""
    params, lists = job.params, read_lists(job.inputs["candidates"].path("candidates.parquet"))
    if params.set_apart:
        apart = draw_apart(lists, params.set_apart, params.seed)
        lists = lists.select(np.flatnonzero(~np.isin(lists.queries, apart)))
    size, positives = params.list_size, params.positives
    if size is None:
        sizes = job.many("point")[0].manifest.facts["sizes"]
        size, positives = int(sizes["list_size"]), int(sizes["positives"])

    first_list: dict[str, int] = {}  # of each query
    for index, query in enumerate(index_queries(Collection(job.inputs["dataset"])).ids(lists.queries)):
        first_list.setdefault(query, index)
    ids = list(draw_subset(dict.fromkeys(first_list, "train"), {"train": params.queries}))

    passages = []
    for query in ids:
        places = draw_list(lists, first_list[query], size, params.seed, 0, positives)
        passages.append(lists.passages[places[places >= 0]].astype(np.int64))  # -1 fills up short lists
    lengths = [len(rows) for rows in passages]
    queries = np.repeat(lists.queries[[first_list[query] for query in ids]], lengths)
    return SampledLists(ids, queries, np.concatenate(passages), np.cumsum(lengths))


def score_by_retriever(job: Job[DynamicsParams], model: Artifact, sampled: SampledLists) -> Floats64:
    """Return s_de(q, p) of each pair: the vectors' dot product over the temperature; shape (pairs,), float64."""
    sides, temperature = [], 1.0
    for side, rows in (("queries", sampled.queries), ("passages", sampled.passages)):
        inputs = {"dataset": job.inputs["dataset"], "tokens": job.inputs["tokens"], "model": model}
        params: Any = {"side": side, **job.params.encode.model_dump()}
        encoder = SideEncoder(Job[Any]("embeddings", job.out, params, inputs, job.execution))
        unique, inverse = np.unique(rows, return_inverse=True)
        vectors: Any = encoder.encode(encoder.read(unique), Progress(f"dynamics {model.key} {side}", 0, "texts"))
        sides.append(np.asarray(vectors, np.float64)[inverse])
        temperature = encoder.model.temperature
    return np.asarray(np.einsum("pd,pd->p", *sides) / temperature)


def run_hardness(job: Job[HardnessParams]) -> None:
    """Write negatives.parquet (source, query_id, doc_id, label, rank, score, judge) and summary.json.

    A source is a model and what its lists were drawn from: `rocketqav2: de_bm25neg, denoised`. `judge` is the judges'
    mean probability of relevance, null without judges.
    Inputs: dataset, `candidates.<i>`; `judge.<i>` with `judge_tokens.<i>`.
    """
    params, lists, judges = job.params, job.many("candidates"), open_judges(job)
    require_dataset(job, *(role for role in sorted(job.inputs) if role.startswith(("candidates.", "judge_tokens."))))
    if len(lists) != len(params.models):
        raise UserError(f"hardness: {len(lists)} training lists, but {len(params.models)} models; one name each")
    use_workers(job.execution.workers)

    names = DatasetNames(job.inputs["dataset"])
    with writing(job) as draft, Progress(f"hardness {job.key}", 0, "pairs") as progress:
        parts, dropped = [], {}
        for artifact, model, origin in zip(lists, params.models, params.drawn_from, strict=True):
            parts.append(read_negatives(artifact, f"{model}: {origin}", names, params.queries, judges, progress))
            # how many passages each rule took out when all of the lists were drawn
            report = json.loads(artifact.path("report.json").read_text(encoding="utf-8"))
            dropped[model] = report["dropped"]
        rows = pa.concat_tables(parts)
        pq.write_table(rows, draft.path(NEGATIVES_FILE))

        judged_by = [model.key for model in job.many("judge")]
        counts = count_negatives(rows.to_pandas(), params.threshold if judges else None)
        write_json(draft.path("summary.json"), {"judges": judged_by, "sources": counts, "dropped": dropped})
        draft.facts |= {"rows": len(rows), "judges": judged_by}


def read_negatives(
    lists: Artifact, name: str, names: DatasetNames, queries: int, judges: list[PairScores], progress: Progress
) -> pa.Table:
    """Read the rows of one model's lists, of so many queries at most; `name` is what the source is called.

    The file, which may not fit into memory, is read twice.
    """
    path = lists.path("candidates.parquet")
    row_by_query: dict[str, int] = {}
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["query_row"]):
            row_by_query |= {names.queries[row]: row for row in batch["query_row"].unique().to_pylist()}

    sampled = draw_subset(dict.fromkeys(row_by_query, "train"), {"train": queries})
    sampled_rows = pa.array([row_by_query[query] for query in sampled], pa.uint32())
    in_sample = pc.field("query_row").isin(sampled_rows)
    rows = add_ids(pq.read_table(path, columns=list(_LIST_COLUMNS), filters=in_sample), names)

    sources = [name if kind == "undenoised" else f"{name}, {kind}" for kind in rows["list"].to_pylist()]
    probabilities = pa.nulls(len(rows), pa.float32())
    if judges:
        query_numbers, passage_numbers = rows["query_row"].to_numpy(), rows["passage_row"].to_numpy()
        scores = average_probabilities(judges, query_numbers, passage_numbers, progress)
        probabilities = pa.array(scores, pa.float32())
    columns = {column: rows[column] for column in ("query_id", "doc_id", "label", "rank", "score")}
    return pa.table({"source": pa.array(sources, pa.string()), **columns, "judge": probabilities})


def count_negatives(rows: pd.DataFrame, threshold: float | None) -> dict[str, dict[str, object]]:
    """Count per source its negatives and queries, quartiles of the ranks of those that a run ranked.

    With judges, whose verdict is positive above `threshold`, also the quartiles of their probabilities of negatives,
    `false_negatives` (percent of negatives above it) and `found_positives` (percent of positives above it: how far the
    verdict is to be trusted, None without any).
    """
    sources: dict[str, dict[str, object]] = {}
    for name, own in rows.groupby("source", sort=False):
        negative, positive = own[own["label"] == 0], own[own["label"] != 0]
        source: dict[str, object] = {"negatives": len(negative), "queries": int(own["query_id"].nunique())}
        source["rank"] = _find_quartiles(negative.loc[negative["rank"] > 0, "rank"])
        if threshold is not None:
            source["judge"] = _find_quartiles(negative["judge"])
            source["false_negatives"] = _share_above(negative["judge"], threshold)
            source["found_positives"] = _share_above(positive["judge"], threshold)
        sources[str(name)] = source
    return sources


def _find_quartiles(values: "pd.Series[Any]") -> list[float] | None:
    return [round(float(value), 6) for value in np.quantile(values, _QUARTILES)] if len(values) else None


def _share_above(values: "pd.Series[Any]", threshold: float) -> float | None:
    return round(100 * float((values.astype(float) > threshold).mean()), 2) if len(values) else None
