"""Stage `similar_queries`: which training queries are similar to queries of the other splits.

Such queries let a model memorise what it is tested on. DuReader-retrieval §2.3: candidate pairs are proposed by vectors
or words, a judge decides (similar above 0.5).
"""

from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.config.retrieval import Inference
from tandem.data.collection import Collection
from tandem.data.splits import sort_key
from tandem.errors import UserError
from tandem.extras.audits import query_similarity as similarity
from tandem.extras.audits.query_similarity import Proposer, Queries
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import require_dataset
from tandem.stages.evaluation import SimilarQueriesParams
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

if TYPE_CHECKING:
    from tandem.retrieval.pair_scores import PairScores

SCHEMA = pa.schema([
    ("train_query_id", pa.string()), ("other_query_id", pa.string()), ("split", pa.string()), ("score", pa.float32()),
    ("similar", pa.bool_()), ("same", pa.bool_()), ("proposal", pa.float32()),
])  # fmt: skip
BINS, EXAMPLES, CHARACTERS = 20, 12, 300


@dataclass(frozen=True)
class Pairs:
    """Proposed pairs; every array has the shape (pairs,)."""

    other: Array  # position among the dev and test queries
    train: Array  # position among the training queries
    proposal: Array  # similarity by which they were proposed
    score: Array  # similarity that decides: the judge's, else the proposal
    same: Array  # whether both are the same words
    threshold: float  # a pair is similar above it, or where both are the same words

    @property
    def similar(self) -> Array:
        """Which pairs count as similar."""
        return np.asarray((self.score.astype(np.float64) > self.threshold) | self.same)


def run(job: Job[SimilarQueriesParams]) -> None:
    """Propose pairs of queries, decide which are similar, and write what follows from it.

    Inputs: dataset; `vectors.<split>` (embeddings of the queries of train and every other split), without which words
    propose; `judge.<i>` and `judge_tokens.<i>` (cross-encoders), without which the proposal's own similarity decides.
    Writes pairs.parquet (all proposals), queries.parquet (dev and test queries with a similar training query),
    train.parquet (those training queries), summary.json and examples.json.
    """
    params = job.params
    train, others = similarity.read_sides(Collection(job.inputs["dataset"]), params.splits)
    by_vectors = any(role.startswith("vectors.") for role in job.inputs) and len(train) and len(others)
    proposer = open_vectors(job, others, train) if by_vectors else similarity.WordCosine(others.texts, train.texts)
    pairs = decided(job, others, train, proposer)
    judges = [model.key for model in job.many("judge")]
    decided_by = f"mean probability of {len(judges)} cross-encoder(s)" if judges else proposer.name
    with writing(job) as draft:
        rows = table(pairs, others, train)
        pq.write_table(rows, draft.path("pairs.parquet"))
        similar = rows.filter(rows["similar"])
        tested = similar.select(["other_query_id", "split"]).rename_columns(["query_id", "split"])
        pq.write_table(_once(tested), draft.path("queries.parquet"))
        learned = similar.select(["train_query_id"]).rename_columns(["query_id"])
        pq.write_table(_once(learned.sort_by("query_id")), draft.path("train.parquet"))
        counts = count(pairs, others, train, params.depth)
        how = {"proposed_by": proposer.name, "decided_by": decided_by, "judges": judges}
        write_json(draft.path("summary.json"), {**how, "threshold": params.threshold, "depth": params.depth, **counts})
        write_json(draft.path("examples.json"), examples(pairs, others, train))
        train_similar = len(np.unique(pairs.train[pairs.similar]))
        draft.facts |= {"pairs": len(rows), "train_similar": train_similar, "decided_by": decided_by}


def _once(rows: pa.Table) -> pa.Table:
    """The rows that name a query for the first time, in order."""
    _, first = np.unique(np.asarray(rows["query_id"].to_pylist(), object), return_index=True)
    return rows.take(pa.array(np.sort(first), pa.int64()))


def decided(job: Job[SimilarQueriesParams], others: Queries, train: Queries, proposer: Proposer) -> Pairs:
    """The nearest pairs and pairs of the same words, scored by the judges, else by the proposing similarity."""
    near = similarity.nearest(proposer, len(others), len(train), job.params.depth, f"similar_queries {job.key}")
    width = max(1, len(train))
    close, equal = (other * width + at for other, at in (near, similarity.same(others, train)))
    keys = np.union1d(close, equal)
    other, at = np.divmod(keys, width)
    proposal = similarity.in_parts(proposer, other, at)
    score = judged(job, others.rows[other], train.rows[at]) if job.many("judge") else proposal
    return Pairs(other, at, proposal, score, np.isin(keys, equal), job.params.threshold)


def open_vectors(job: Job, others: Queries, train: Queries) -> similarity.VectorCosine:
    """The similarity by the inputs `vectors.<split>`, which must be of the dataset's queries and of one model."""
    splits, opened = list(dict.fromkeys(others.splits)), dict[str, Embeddings]()
    for split in (similarity.TRAIN, *splits):
        if (role := f"vectors.{split}") not in job.inputs:
            present = ", ".join(sorted(name for name in job.inputs if name.startswith("vectors.")))
            problem = f"similar_queries: {role} is missing (given: {present})"
            raise UserError(f"{problem}; give vectors of every split or none")
        require_dataset(job, role)
        opened[split] = Embeddings(job.inputs[role], "queries")
    models = {split: Path(part.artifact.upstream["model"]).name for split, part in opened.items()}
    if len(set(models.values())) > 1:
        listed = ", ".join(f"{split} with {model}" for split, model in models.items())
        raise UserError(f"similar_queries: queries were embedded by several models ({listed}); use one")
    for queries, parts in ((train, [similarity.TRAIN]), (others, splits)):
        artifacts = [opened[split].artifact for split in parts]
        ids = [pq.read_table(artifact.path("ids.parquet"))["query_id"].to_pylist() for artifact in artifacts]
        if list(chain(*ids)) != queries.ids:
            folders = ", ".join(str(artifact.folder) for artifact in artifacts)
            raise UserError(f"{folders}: not the queries of {job.inputs['dataset'].folder}; encode them again")
    return similarity.VectorCosine([opened[split] for split in splits], opened[similarity.TRAIN])


def judged(job: Job[SimilarQueriesParams], others: Array, train: Array) -> Array:
    """Mean probability of the inputs `judge.<i>` that one query answers for the other; shape (pairs,), float32.

    `others` and `train` are the rows of each pair's queries.
    """
    # The judges bring torch, which takes seconds to import.
    from tandem.models.device import use_workers
    from tandem.retrieval.pair_scores import average_probabilities

    models, tokens = job.many("judge"), job.many("judge_tokens")
    require_dataset(job, *(f"judge_tokens.{i}" for i in range(len(models))))
    use_workers(job.execution.workers)
    judges = [query_pairs(*pair, job.params) for pair in zip(models, tokens, strict=True)]
    with Progress(f"similar_queries {job.key}", len(others) * len(judges), "pairs") as progress:
        return average_probabilities(judges, others, train, progress)


def query_pairs(model: Artifact, tokens: Artifact, scoring: Inference) -> "PairScores":
    """A cross-encoder's logits for pairs of queries: the second query takes the passage's place.

    They are stored beside its scores of queries with passages, for whichever threshold or depth asks again.
    """
    from tandem.retrieval.pair_scores import PairScores
    from tandem.retrieval.pair_store import PairStore

    scores = PairScores(model, tokens, scoring.precision, scoring.batch_tokens)
    scores.tokens = replace(scores.tokens, passages=scores.tokens.queries)
    scores.lengths = (scores.lengths[0], scores.lengths[0])
    scores.store = PairStore(scores.store.folder / "queries")
    return scores


def table(pairs: Pairs, others: Queries, train: Queries) -> pa.Table:
    """Rows of `SCHEMA` by split, other query, falling score and training query."""
    trained = [train.ids[at] for at in pairs.train]
    other, splits = ([column[at] for at in pairs.other] for column in (others.ids, others.splits))
    columns = (trained, other, splits, pairs.score, pairs.similar, pairs.same, pairs.proposal)
    rows = pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)
    keys = [(sort_key(split), *key) for split, *key in zip(splits, other, -pairs.score, trained, strict=True)]
    return rows.take(pa.array(sorted(range(len(keys)), key=keys.__getitem__), pa.int64()))


def count(pairs: Pairs, others: Queries, train: Queries, depth: int) -> dict[str, object]:
    """How many training queries are similar to how many of the others, as DuReader-retrieval §2.3 counts.

    `saturated` counts the other queries with `depth` similar training queries or more: a greater depth may find more.
    """
    similar = pairs.similar
    number = np.bincount(pairs.other[similar], minlength=len(others))
    splits = np.array(others.splits, object)
    by_split = {}
    for split in dict.fromkeys(others.splits):
        own = splits == split
        known = np.unique(pairs.train[similar & own[pairs.other]])
        by_split[split] = {**_share(int((number[own] > 0).sum()), int(own.sum())), "train_similar": len(known)}
    return {
        "train": _share(len(np.unique(pairs.train[similar])), len(train)),
        "others": _share(int((number > 0).sum()), len(others)),
        "splits": by_split,
        "pairs": {"proposed": len(similar), "similar": int(similar.sum()), "same": int(pairs.same.sum())},
        "saturated": int((number >= depth).sum()),
        "histogram": {
            "edges": [round(at / BINS, 6) for at in range(BINS + 1)],
            "pairs": np.histogram(pairs.score, BINS, (0, 1))[0].tolist(),
        },
    }


def _share(similar: int, queries: int) -> dict[str, float | None]:
    return {"queries": queries, "similar": similar, "percent": round(100 * similar / queries, 2) if queries else None}


def examples(pairs: Pairs, others: Queries, train: Queries) -> dict[str, list[dict[str, object]]]:
    """Pairs to look at: the most similar that are not the same words, and those on either side of the threshold."""

    def example(at: int) -> dict[str, object]:
        """A pair as the report shows it."""
        other, trained = pairs.other[at], pairs.train[at]
        return {
            "split": others.splits[other],
            "other_query_id": others.ids[other],
            "other": others.texts[other][:CHARACTERS],
            "train_query_id": train.ids[trained],
            "train": train.texts[trained][:CHARACTERS],
            "score": round(float(pairs.score[at]), 4),
        }

    ranked = np.lexsort((pairs.train, pairs.other, -pairs.score))
    ranked = ranked[~pairs.same[ranked]]
    above, below = ranked[pairs.similar[ranked]], ranked[~pairs.similar[ranked]]
    chosen = {"most similar": above[:EXAMPLES], "just similar": above[-EXAMPLES:], "just not": below[:EXAMPLES]}
    return {name: list(map(example, rows)) for name, rows in chosen.items()}
