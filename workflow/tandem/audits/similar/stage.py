"""Stage `similar_queries`: which training queries are similar to queries of the other splits."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.audits.similar.asked import Asked, read_sides, same
from tandem.audits.similar.lexical import WordCosine
from tandem.audits.similar.nearest import Array, Proposer, in_parts, nearest
from tandem.audits.similar.pairs import Pairs, examples, summary, table
from tandem.audits.similar.vectors import open_vectors
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.store.files import write_json
from tandem.store.job import Job, writing


def run(job: Job) -> None:
    """Propose pairs of queries, decide which are similar, and write what follows from it.

    Params: depth (proposals per dev or test query), threshold (similar above it), splits (compared with train; null for
    all), and where there are judges precision and batch_tokens. Inputs: dataset; `vectors.<split>` (embeddings of the
    queries of train and every other split), without which words propose; `judge.<i>` and `judge_tokens.<i>`
    (cross-encoders), without which the proposal's own similarity decides.
    Writes pairs.parquet (all proposals), queries.parquet (dev and test queries with a similar training query),
    train.parquet (those training queries), summary.json and examples.json.
    """
    _check(job.params)
    train, others = read_sides(Collection(job.inputs["dataset"]), job.params.get("splits"))
    by_vectors = any(role.startswith("vectors.") for role in job.inputs) and len(train) and len(others)
    proposer = open_vectors(job, others, train) if by_vectors else WordCosine(others.texts, train.texts)
    pairs = decided(job, others, train, proposer)
    judges = [model.key for model in job.many("judge")]
    decided_by = f"mean probability of {len(judges)} cross-encoder(s)" if judges else proposer.name
    with writing(job) as draft:
        rows = table(pairs, others, train)
        pq.write_table(rows, draft.path("pairs.parquet"))
        known = rows.filter(rows["similar"])
        asked = known.select(["other_query_id", "split"]).rename_columns(["query_id", "split"])
        pq.write_table(_once(asked), draft.path("queries.parquet"))
        learned = known.select(["train_query_id"]).rename_columns(["query_id"])
        pq.write_table(_once(learned.sort_by("query_id")), draft.path("train.parquet"))
        told: dict[str, Any] = {"proposed_by": proposer.name, "decided_by": decided_by, "judges": judges}
        told |= {"threshold": job.params["threshold"], "depth": job.params["depth"]}
        counts = summary(pairs, others, train, job.params["depth"])
        write_json(draft.path("summary.json"), told | counts)
        write_json(draft.path("examples.json"), examples(pairs, others, train))
        draft.facts |= {"pairs": len(rows), "train_similar": counts["train"]["similar"], "decided_by": decided_by}


def _check(params: dict[str, Any]) -> None:
    """Refuse parameters that mean nothing."""
    depth, threshold = params["depth"], params["threshold"]
    if type(depth) is not int or depth < 1:
        raise UserError(f"similar_queries: depth is {depth!r}; a whole number from 1 is allowed")
    if type(threshold) not in (int, float) or not 0 <= threshold <= 1:
        raise UserError(f"similar_queries: threshold is {threshold!r}; a number from 0 to 1 is allowed")


def decided(job: Job, others: Asked, train: Asked, proposer: Proposer) -> Pairs:
    """The nearest pairs and those of the same words, scored by the judges or by what proposed them."""
    near = nearest(proposer, len(others), len(train), job.params["depth"], f"similar_queries {job.key}")
    equal = same(others, train)
    width = max(1, len(train))
    keys = np.unique(np.concatenate([near[0] * width + near[1], equal[0] * width + equal[1]]))
    other, at = np.divmod(keys, width)
    proposal = in_parts(proposer, other, at)
    score = _judged(job, others, train, (other, at)) if job.many("judge") else proposal
    is_same = np.isin(keys, equal[0] * width + equal[1])
    return Pairs(other, at, proposal, score, is_same, job.params["threshold"])


def _judged(job: Job, others: Asked, train: Asked, pairs: tuple[Array, Array]) -> Array:
    """The judges' scores; they bring torch, which takes seconds to import and is not wanted without them."""
    from tandem.audits.similar.judge import judged

    return judged(job, others, train, pairs)


def _once(rows: pa.Table) -> pa.Table:
    """The rows that name a query for the first time, in order."""
    first: dict[str, int] = {}
    for at, query in enumerate(rows["query_id"].to_pylist()):
        first.setdefault(query, at)
    return rows.take(pa.array(first.values(), pa.int64()))
