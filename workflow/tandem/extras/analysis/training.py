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
from tandem.data.columns import DatasetNames
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

Array = np.ndarray[Any, np.dtype[np.float64]]
DYNAMICS = "dynamics.parquet"
FLOATS = ("entropy_de", "entropy_ce", "kl", "tau")
SCHEMA = pa.schema([("step", pa.int64()), ("query_id", pa.string()), *((name, pa.float64()) for name in FLOATS)])
NEGATIVES = "negatives.parquet"
COLUMNS = ("query_row", "passage_row", "label", "rank", "score", "list")
QUARTILES = (0.25, 0.5, 0.75)


def compare(retriever: Array, reranker: Array) -> tuple[float, float, float, float | None]:
    """Two models' scores of one list: the entropy of both and KL(DE ‖ CE) in nats, and Kendall's tau-b.

    s_de(q, p) and s_ce(q, p), shape (list,), any real scale; log p(i) = s_i - log Σ_j exp s_j (RocketQAv2 Eqs. 2, 3).
    """
    log_de, log_ce = log_softmax(retriever), log_softmax(reranker)
    return entropy(log_de), entropy(log_ce), divergence(log_de, log_ce), rank_correlation(retriever, reranker)


def entropy(log_p: Array) -> float:
    """H(p) = -Σ p log p in nats: 0 if one passage has everything, log n if all have the same."""
    return float(-(np.exp(log_p) * log_p).sum())


def divergence(log_p: Array, log_q: Array) -> float:
    """KL(p ‖ q) = Σ p (log p - log q) in nats (RocketQAv2 Eq. 4 with p of the retriever, q of the re-ranker)."""
    return float((np.exp(log_p) * (log_p - log_q)).sum())


def rank_correlation(left: Array, right: Array) -> float | None:
    """Kendall's tau-b of two models' scores; None where one of them gives every passage the same score."""
    if len(left) < 2:
        return None
    tau = float(kendalltau(left, right, variant="b").statistic)
    return None if np.isnan(tau) else tau


class Sample(NamedTuple):
    """Some training lists, one of each query."""

    ids: list[str]  # of the queries
    queries: Ids  # row of the query of each pair, shape (pairs,)
    passages: Ids  # row of the passage of each pair, same shape; lists stand together
    ends: Ids  # where each list ends in them, shape (lists,)


def dynamics(job: Job[DynamicsParams]) -> None:
    """Write dynamics.parquet: per step and query the entropies of both, KL(DE ‖ CE) and tau-b of their scores.

    The lists are those that the training draws in its first epoch.
    Inputs: dataset, candidates, tokens, cross_tokens; `point.<i>`: a joint model or its checkpoints; retriever and
    reranker: what it started from, step 0, left out if one of them has not been trained for its part.
    """
    require_dataset(job, "candidates", "tokens", "cross_tokens")
    use_workers(job.execution.workers)
    sampled, steps, rows = sample(job), points(job), []
    with writing(job) as draft, Progress(f"dynamics {job.key}", len(steps) * len(sampled.ids), "lists") as progress:
        for step, retriever, reranker in steps:
            # pairs that any stage has scored before are found
            pairs = PairScores(reranker, job.inputs["cross_tokens"], job.params.precision, job.params.batch_tokens)
            cross = pairs.score(sampled.queries, sampled.passages).astype(np.float64)
            scores = retriever_scores(job, retriever, sampled), cross
            lists = (np.split(side, sampled.ends[:-1]) for side in scores)
            for query, de, ce in zip(sampled.ids, *lists, strict=True):
                rows.append(dict(zip(SCHEMA.names, (step, query, *compare(de, ce)), strict=True)))
            progress.add(len(sampled.ids))
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), draft.path(DYNAMICS))
        draft.facts |= {"lists": len(sampled.ids), "points": len(steps)}


def points(job: Job) -> list[tuple[int, Artifact, Artifact]]:
    """(step, model with the dual encoder, model with the cross-encoder), in the order of steps."""
    starts = [job.inputs[role] for role in ("retriever", "reranker") if role in job.inputs]
    steps = [(int(model.manifest.facts["steps"]), model, model) for model in job.many("point")]
    if len(starts) == 2 and (starts[0].folder / "dual").is_dir() and (starts[1].folder / "cross").is_dir():
        steps.append((0, starts[0], starts[1]))
    return sorted(steps, key=lambda point: point[0])


def sample(job: Job[DynamicsParams]) -> Sample:
    """The first list of each sampled query, as the training draws it when it visits it first."""
    params, lists = job.params, read_lists(job.inputs["candidates"].path("candidates.parquet"))
    if params.set_apart:
        apart = draw_apart(lists, params.set_apart, params.seed)
        lists = lists.select(np.flatnonzero(~np.isin(lists.queries, apart)))
    size, positives = params.list_size, params.positives
    if size is None:
        size, positives = (int(job.many("point")[0].manifest.facts["sizes"][key]) for key in ("list_size", "positives"))
    names = index_queries(Collection(job.inputs["dataset"])).ids(lists.queries)
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        first.setdefault(name, index)
    ids = list(draw_subset(dict.fromkeys(first, "train"), {"train": params.queries}))
    places = [draw_list(lists, first[name], size, params.seed, 0, positives) for name in ids]
    drawn = [lists.passages[at[at >= 0]].astype(np.int64) for at in places]
    lengths = [len(passages) for passages in drawn]
    queries = np.repeat(lists.queries[[first[name] for name in ids]], lengths)
    return Sample(ids, queries, np.concatenate(drawn), np.cumsum(lengths))


def retriever_scores(job: Job[DynamicsParams], model: Artifact, sampled: Sample) -> Array:
    """s_de(q, p) of each pair: the vectors' dot product over the model's temperature; shape (pairs,), float64."""
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


def hardness(job: Job[HardnessParams]) -> None:
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
        sources = map("{}: {}".format, params.models, params.drawn_from)
        parts = zip(lists, sources, strict=True)
        rows = pa.concat_tables(negatives(*part, names, params.queries, judges, progress) for part in parts)
        pq.write_table(rows, draft.path(NEGATIVES))
        judged_by = [model.key for model in job.many("judge")]
        reports = [json.loads(artifact.path("report.json").read_text(encoding="utf-8")) for artifact in lists]
        # how many passages each rule took out when all of the lists were drawn
        dropped = {name: report["dropped"] for name, report in zip(params.models, reports, strict=True)}
        counts = count_negatives(rows.to_pandas(), params.threshold if judges else None)
        write_json(draft.path("summary.json"), {"judges": judged_by, "sources": counts, "dropped": dropped})
        draft.facts |= {"rows": len(rows), "judges": judged_by}


def negatives(
    lists: Artifact, name: str, names: DatasetNames, queries: int, judges: list[PairScores], progress: Progress
) -> pa.Table:
    """The rows of one model's lists, of so many queries at most; `name` is what the source is called.

    The file, which may not fit into memory, is read twice.
    """
    path = lists.path("candidates.parquet")
    with pq.ParquetFile(path) as file:
        batches = file.iter_batches(columns=["query_row"])
        known = {names.queries[row]: row for batch in batches for row in batch["query_row"].unique().to_pylist()}
    chosen = [known[query] for query in draw_subset(dict.fromkeys(known, "train"), {"train": queries})]
    in_sample = pc.field("query_row").isin(pa.array(chosen, pa.uint32()))
    rows = add_ids(pq.read_table(path, columns=list(COLUMNS), filters=in_sample), names)
    source = [name if kind == "undenoised" else f"{name}, {kind}" for kind in rows["list"].to_pylist()]
    judge = pa.nulls(len(rows), pa.float32())
    if judges:
        pairs = rows["query_row"].to_numpy(), rows["passage_row"].to_numpy()
        judge = pa.array(average_probabilities(judges, *pairs, progress), pa.float32())
    columns = {column: rows[column] for column in ("query_id", "doc_id", "label", "rank", "score")}
    return pa.table({"source": pa.array(source, pa.string()), **columns, "judge": judge})


def count_negatives(rows: pd.DataFrame, threshold: float | None) -> dict[str, dict[str, object]]:
    """Counts per source: its negatives and queries, quartiles of the ranks of those that a run ranked.

    With judges, whose verdict is positive above `threshold`, also the quartiles of their probabilities of negatives,
    `false_negatives` (percent of negatives above it) and `found_positives` (percent of positives above it: how far the
    verdict is to be trusted, None without any).
    """
    sources: dict[str, dict[str, object]] = {}
    for name, own in rows.groupby("source", sort=False):
        negative, positive = own[own["label"] == 0], own[own["label"] != 0]
        source: dict[str, object] = {"negatives": len(negative), "queries": int(own["query_id"].nunique())}
        source["rank"] = _quartiles(negative.loc[negative["rank"] > 0, "rank"])
        if threshold is not None:
            source["judge"] = _quartiles(negative["judge"])
            source["false_negatives"] = _above(negative["judge"], threshold)
            source["found_positives"] = _above(positive["judge"], threshold)
        sources[str(name)] = source
    return sources


def _quartiles(values: "pd.Series[Any]") -> list[float] | None:
    return [round(float(value), 6) for value in np.quantile(values, QUARTILES)] if len(values) else None


def _above(values: "pd.Series[Any]", threshold: float) -> float | None:
    return round(100 * float((values.astype(float) > threshold).mean()), 2) if len(values) else None
