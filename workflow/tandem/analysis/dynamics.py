"""Stage `dynamics`: how a retriever's and a re-ranker's score distributions approach each other in joint training."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.analysis.distributions import Array, compare
from tandem.artifact import Artifact, Job, writing
from tandem.data.collection import Collection
from tandem.data.rows import query_rows
from tandem.data.select import subset
from tandem.models.device import use_workers
from tandem.models.template import Ids
from tandem.progress import Progress
from tandem.retrieval.encode import Encoder
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import PairScores
from tandem.training.lists import draw, read_lists

DYNAMICS = "dynamics.parquet"
SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("query_id", pa.string()),
        ("entropy_de", pa.float64()),
        ("entropy_ce", pa.float64()),
        ("kl", pa.float64()),
        ("tau", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Sampled:
    """Some training lists, one of each query.

    Attributes:
        ids: of the queries.
        queries: row of the query of each pair, shape (pairs,).
        passages: row of the passage of each pair, same shape; lists stand together.
        ends: where each list ends in them, shape (lists,).
    """

    ids: list[str]
    queries: Ids
    passages: Ids
    ends: Ids


def run(job: Job) -> None:
    """Write dynamics.parquet: per step and query the entropies of both, KL(DE ‖ CE) and tau-b of their scores.

    Params: queries (so many lists at most, by the queries' hash), list_size and seed (the lists are those that the
    training draws in its first epoch), precision and batch_tokens of cross-encoders, encode.precision and
    encode.batch_tokens of dual encoders.
    Inputs: dataset, candidates, tokens, cross_tokens; `point.<i>`: a joint model or its checkpoints; retriever and
    reranker: what it started from, step 0, left out if one of them has not been trained for its part.
    """
    require_dataset(job, "candidates", "tokens", "cross_tokens")
    use_workers(job.execution.workers)
    sampled, rows = sample(job), []
    told = points(job)
    with writing(job) as draft, Progress(f"dynamics {job.key}", len(told) * len(sampled.ids), "lists") as progress:
        for step, retriever, reranker in told:
            pairs = retrieved(job, retriever, sampled), reranked(job, reranker, sampled)
            for query, de, ce in zip(sampled.ids, *(np.split(one, sampled.ends[:-1]) for one in pairs), strict=True):
                rows.append({"step": step, "query_id": query, **compare(de, ce)})
            progress.add(len(sampled.ids))
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), draft.path(DYNAMICS))
        draft.facts |= {"lists": len(sampled.ids), "points": len(told)}


def points(job: Job) -> list[tuple[int, Artifact, Artifact]]:
    """(step, model with the dual encoder, model with the cross-encoder), in the order of steps."""
    starts = [job.inputs[role] for role in ("retriever", "reranker") if role in job.inputs]
    made = [(int(one.manifest["steps"]), one, one) for one in job.many("point")]
    if len(starts) == 2 and (starts[0].folder / "dual").is_dir() and (starts[1].folder / "cross").is_dir():
        made.append((0, starts[0], starts[1]))
    return sorted(made, key=lambda point: point[0])


def sample(job: Job) -> Sampled:
    """The first list of each sampled query, as the training draws it when it visits it first."""
    lists = read_lists(job.inputs["candidates"].path("candidates.parquet"))
    names = query_rows(Collection(job.inputs["dataset"])).ids(lists.queries)
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        first.setdefault(name, index)
    ids = list(subset(dict.fromkeys(first, "train"), {"train": job.params["queries"]}))
    size, seed = job.params["list_size"], job.params["seed"]
    places = [draw(lists, first[name], size, seed, 0) for name in ids]
    drawn = [lists.passages[one[one >= 0]].astype(np.int64) for one in places]
    lengths = [len(one) for one in drawn]
    queries = np.repeat(lists.queries[[first[name] for name in ids]], lengths)
    return Sampled(ids, queries, np.concatenate(drawn), np.cumsum(lengths))


def retrieved(job: Job, model: Artifact, sampled: Sampled) -> Array:
    """s_de(q, p) of each pair: the vectors' dot product over the model's temperature; shape (pairs,), float64."""
    sides, temperature = [], 1.0
    for side, rows in (("queries", sampled.queries), ("passages", sampled.passages)):
        inputs = {"dataset": job.inputs["dataset"], "tokens": job.inputs["tokens"], "model": model}
        encoder = Encoder(replace(job, params={"side": side, **job.params["encode"]}, inputs=inputs))
        unique, inverse = np.unique(rows, return_inverse=True)
        vectors: Any = encoder.encode(encoder.read(unique), Progress(f"dynamics {model.key} {side}", 0, "texts"))
        sides.append(np.asarray(vectors, np.float64)[inverse])
        temperature = encoder.model.temperature
    made: Array = np.einsum("pd,pd->p", *sides) / temperature
    return made


def reranked(job: Job, model: Artifact, sampled: Sampled) -> Array:
    """s_ce(q, p) of each pair, shape (pairs,), float64; pairs that any stage has scored before are found."""
    scores = PairScores(model, job.inputs["cross_tokens"], job.params["precision"], job.params["batch_tokens"])
    return scores.score(sampled.queries, sampled.passages).astype(np.float64)
