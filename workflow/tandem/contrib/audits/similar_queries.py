"""Stage `similar_queries`: which training queries are similar to queries of the other splits.

Through such queries a model can memorise what it is tested on. DuReader-retrieval §2.3: vectors or words propose
candidate pairs, and a judge decides (similar above 0.5).
"""

from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress, warn
from tandem.config.retrieval import Inference
from tandem.contrib.audits import query_similarity as similarity
from tandem.contrib.audits.options import SimilarQueriesParams
from tandem.contrib.audits.query_similarity import Proposer, SplitQueries
from tandem.data.collection import Collection
from tandem.data.splits import sort_key
from tandem.errors import UserError
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import require_dataset
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

if TYPE_CHECKING:
    from tandem.retrieval.pair_scores import PairScores

_PAIRS_SCHEMA = pa.schema([
    ("train_query_id", pa.string()), ("other_query_id", pa.string()), ("split", pa.string()), ("score", pa.float32()),
    ("similar", pa.bool_()), ("same", pa.bool_()), ("proposal", pa.float32()),
])  # fmt: skip
_BINS = 20  # of the histogram of scores
_EXAMPLES = 12
_MOST_SIMILAR = 0.5  # share of similar training queries above which the decision is doubtful
_CHARACTERS_PER_EXAMPLE = 300


@dataclass(frozen=True)
class ProposedPairs:
    """Proposed pairs; every array has the shape (pairs,)."""

    other: Array  # position among the dev and test queries
    train: Array  # position among the training queries
    proposal: Array  # similarity by which they were proposed
    score: Array  # similarity that decides: the judge's, else the proposal
    same: Array  # whether both have the same words
    threshold: float  # a pair is similar above it, or if both have the same words

    @property
    def similar(self) -> Array:
        """Return a mask of the pairs that count as similar."""
        return np.asarray((self.score.astype(np.float64) > self.threshold) | self.same)


def run(job: Job[SimilarQueriesParams]) -> None:
    """Propose pairs of queries, decide which are similar, and write the consequences.

    Inputs: dataset; `vectors.<split>` (embeddings of the queries of train and every other split), without which words
    propose pairs; `judge.<i>` and `judge_tokens.<i>` (cross-encoders), without which the proposing similarity decides.
    Writes pairs.parquet (all proposals), queries.parquet (dev and test queries with a similar training query),
    train.parquet (those training queries), summary.json and examples.json.
    """
    params = job.params
    train, others = similarity.read_sides(Collection(job.inputs["dataset"]), params.splits)
    has_vectors = any(role.startswith("vectors.") for role in job.inputs)
    if has_vectors and len(train) and len(others):
        proposer: Proposer = open_vectors(job, others, train)
    else:
        proposer = similarity.WordCosine(others.texts, train.texts)

    pairs = decide_pairs(job, others, train, proposer)
    judges = [model.key for model in job.many("judge")]
    decided_by = f"mean probability of {len(judges)} cross-encoder(s)" if judges else proposer.name
    with writing(job) as draft:
        rows = list_proposed_pairs(pairs, others, train)
        pq.write_table(rows, draft.path("pairs.parquet"))

        similar = rows.filter(rows["similar"])
        tested = similar.select(["other_query_id", "split"]).rename_columns(["query_id", "split"])
        pq.write_table(_keep_first(tested), draft.path("queries.parquet"))
        learned = similar.select(["train_query_id"]).rename_columns(["query_id"])
        pq.write_table(_keep_first(learned.sort_by("query_id")), draft.path("train.parquet"))

        summary = {
            "proposed_by": proposer.name,
            "decided_by": decided_by,
            "judges": judges,
            "threshold": params.threshold,
            "depth": params.depth,
            **count_similar(pairs, others, train, params.depth),
        }
        write_json(draft.path("summary.json"), summary)
        write_json(draft.path("examples.json"), choose_examples(pairs, others, train))
        train_similar = len(np.unique(pairs.train[pairs.similar]))
        if train_similar > _MOST_SIMILAR * len(train):
            share = f"{train_similar:,} of {len(train):,} training queries count as similar"
            warn(
                job,
                draft,
                f"{share} ({decided_by} above {params.threshold:g}): what decides may say little",
            )
        draft.facts |= {
            "pairs": len(rows),
            "train_similar": train_similar,
            "decided_by": decided_by,
        }


def _keep_first(rows: pa.Table) -> pa.Table:
    """Return the rows that name a query for the first time, in order."""
    _, first = np.unique(np.asarray(rows["query_id"].to_pylist(), object), return_index=True)
    return rows.take(pa.array(np.sort(first), pa.int64()))


def decide_pairs(
    job: Job[SimilarQueriesParams], others: SplitQueries, train: SplitQueries, proposer: Proposer
) -> ProposedPairs:
    """Score the nearest pairs and pairs of the same words, by the judges or else by the proposing similarity."""
    near = similarity.find_nearest(
        proposer, len(others), len(train), job.params.depth, f"similar_queries {job.key}"
    )
    same = similarity.match_same_words(others, train)
    # A pair as one number, sorted by the other query and then the training query; this unites both lists of pairs.
    width = max(1, len(train))
    near_numbers, same_numbers = (other * width + trained for other, trained in (near, same))
    numbers = np.union1d(near_numbers, same_numbers)
    other, trained = np.divmod(numbers, width)

    proposal = similarity.score_in_parts(proposer, other, trained)
    score = (
        judge_pairs(job, others.rows[other], train.rows[trained]) if job.many("judge") else proposal
    )
    is_same = np.isin(numbers, same_numbers)
    return ProposedPairs(other, trained, proposal, score, is_same, job.params.threshold)


def open_vectors(job: Job, others: SplitQueries, train: SplitQueries) -> similarity.VectorCosine:
    """Open the similarity by the inputs `vectors.<split>`, which must be of the dataset's queries and of one model."""
    splits, opened = list(dict.fromkeys(others.splits)), dict[str, Embeddings]()
    for split in (similarity.TRAIN, *splits):
        role = f"vectors.{split}"
        if role not in job.inputs:
            present = ", ".join(sorted(name for name in job.inputs if name.startswith("vectors.")))
            problem = f"similar_queries: {role} is missing (given: {present})"
            raise UserError(f"{problem}; give vectors of every split or none")
        require_dataset(job, role)
        opened[split] = Embeddings(job.inputs[role], "queries")

    models = {split: Path(part.artifact.upstream["model"]).name for split, part in opened.items()}
    if len(set(models.values())) > 1:
        listed = ", ".join(f"{split} with {model}" for split, model in models.items())
        raise UserError(
            f"similar_queries: queries were embedded by several models ({listed}); use one"
        )

    for queries, parts in ((train, [similarity.TRAIN]), (others, splits)):
        artifacts = [opened[split].artifact for split in parts]
        ids = [
            pq.read_table(artifact.path("ids.parquet"))["query_id"].to_pylist()
            for artifact in artifacts
        ]
        if list(chain(*ids)) != queries.ids:
            folders = ", ".join(str(artifact.folder) for artifact in artifacts)
            raise UserError(
                f"{folders}: not the queries of {job.inputs['dataset'].folder}; encode them again"
            )

    return similarity.VectorCosine([opened[split] for split in splits], opened[similarity.TRAIN])


def judge_pairs(job: Job[SimilarQueriesParams], others: Array, train: Array) -> Array:
    """Return the judges' mean probability that two queries have the same answer; shape (pairs,), float32.

    `others` and `train` are the rows of each pair's queries.
    """
    # The judges bring torch, which takes seconds to import.
    from tandem.models.device import use_workers
    from tandem.retrieval.pair_scores import average_probabilities

    models, tokens = job.many("judge"), job.many("judge_tokens")
    require_dataset(job, *(f"judge_tokens.{i}" for i in range(len(models))))
    use_workers(job.execution.workers)
    judges = [
        open_query_judge(model, own_tokens, job.params)
        for model, own_tokens in zip(models, tokens, strict=True)
    ]
    with Progress(f"similar_queries {job.key}", len(others) * len(judges), "pairs") as progress:
        return average_probabilities(judges, others, train, progress)


def open_query_judge(model: Artifact, tokens: Artifact, scoring: Inference) -> "PairScores":
    """Open a cross-encoder's logits for pairs of queries: the second query takes the passage's place.

    They are stored next to its scores of queries with passages, for later calls with any threshold or depth.
    """
    from tandem.retrieval.pair_scores import PairScores
    from tandem.retrieval.pair_store import PairStore

    scores = PairScores(model, tokens, scoring.precision, scoring.batch_tokens)
    scores.tokens = replace(scores.tokens, passages=scores.tokens.queries)
    scores.lengths = (scores.lengths[0], scores.lengths[0])
    scores.store = PairStore(scores.store.folder / "queries")
    return scores


def list_proposed_pairs(
    pairs: ProposedPairs, others: SplitQueries, train: SplitQueries
) -> pa.Table:
    """Return rows of `_PAIRS_SCHEMA` by split, other query, falling score and training query."""
    train_ids = [train.ids[position] for position in pairs.train]
    other_ids = [others.ids[position] for position in pairs.other]
    splits = [others.splits[position] for position in pairs.other]
    columns = (train_ids, other_ids, splits, pairs.score, pairs.similar, pairs.same, pairs.proposal)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, _PAIRS_SCHEMA, strict=True)
    ]

    def make_key(row: int) -> tuple[object, ...]:
        return sort_key(splits[row]), other_ids[row], -pairs.score[row], train_ids[row]

    ranked = sorted(range(len(splits)), key=make_key)
    return pa.table(arrays, _PAIRS_SCHEMA).take(pa.array(ranked, pa.int64()))


def count_similar(
    pairs: ProposedPairs, others: SplitQueries, train: SplitQueries, depth: int
) -> dict[str, object]:
    """Count the training queries that are similar to others, and these others, as DuReader-retrieval §2.3 does.

    `saturated` counts the other queries with `depth` or more similar training queries: a greater depth may find more.
    """
    similar = pairs.similar
    similar_per_other = np.bincount(pairs.other[similar], minlength=len(others))
    splits = np.array(others.splits, object)
    by_split = {}
    for split in dict.fromkeys(others.splits):
        in_split = splits == split
        known = np.unique(pairs.train[similar & in_split[pairs.other]])
        share = _describe_share(int((similar_per_other[in_split] > 0).sum()), int(in_split.sum()))
        by_split[split] = {**share, "train_similar": len(known)}

    return {
        "train": _describe_share(len(np.unique(pairs.train[similar])), len(train)),
        "others": _describe_share(int((similar_per_other > 0).sum()), len(others)),
        "splits": by_split,
        "pairs": {
            "proposed": len(similar),
            "similar": int(similar.sum()),
            "same": int(pairs.same.sum()),
        },
        "saturated": int((similar_per_other >= depth).sum()),
        "histogram": {
            "edges": [round(bin_number / _BINS, 6) for bin_number in range(_BINS + 1)],
            "pairs": np.histogram(pairs.score, _BINS, (0, 1))[0].tolist(),
        },
    }


def _describe_share(similar: int, queries: int) -> dict[str, float | None]:
    return {
        "queries": queries,
        "similar": similar,
        "percent": round(100 * similar / queries, 2) if queries else None,
    }


def choose_examples(
    pairs: ProposedPairs, others: SplitQueries, train: SplitQueries
) -> dict[str, list[dict[str, object]]]:
    """Choose example pairs: the most similar, and those on either side of the threshold.

    None of the pairs has the same words.
    """

    def describe_pair(pair: int) -> dict[str, object]:
        """Return a pair in the report's form."""
        other, trained = pairs.other[pair], pairs.train[pair]
        return {
            "split": others.splits[other],
            "other_query_id": others.ids[other],
            "other": others.texts[other][:_CHARACTERS_PER_EXAMPLE],
            "train_query_id": train.ids[trained],
            "train": train.texts[trained][:_CHARACTERS_PER_EXAMPLE],
            "score": round(float(pairs.score[pair]), 4),
        }

    # by falling score; the last key sorts first
    ranked = np.lexsort((pairs.train, pairs.other, -pairs.score))
    ranked = ranked[~pairs.same[ranked]]
    similar, others_ranked = ranked[pairs.similar[ranked]], ranked[~pairs.similar[ranked]]
    chosen = {
        "most similar": similar[:_EXAMPLES],
        "just similar": similar[-_EXAMPLES:],
        "just not": others_ranked[:_EXAMPLES],
    }
    return {name: list(map(describe_pair, rows)) for name, rows in chosen.items()}
