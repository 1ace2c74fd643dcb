"""Scores of runs; audits of collections; analyses of models."""

from typing import Annotated, Literal

from pydantic import Field

from tandem.config.base import Model, Precision
from tandem.stages.base import Kind, Params


class ScoreParams(Params):
    """What is measured; a group of datasets has `members` instead of a run."""

    measures: tuple[str, ...] = Field(min_length=1, description="names of ir_measures, such as RR@10")
    split: str = Field("", description="whose queries are scored; a group's members have their own")
    ignore_identical_ids: bool = Field(False, description="drop the result whose document id is the query's (BEIR)")
    members: tuple[str, ...] | None = Field(None, description="datasets of a group, whose means are averaged")


class AverageRankParams(Params):
    """The mean rank of relevant passages in a small collection."""

    split: str = Field(description="whose queries are ranked")


class MatchParams(Params):
    """Relevance by answers found in the passages of a run."""

    split: str = Field(description="whose questions are matched")
    match: Literal["string", "regex", "kilt"] = Field(description="what counts as an answer in a passage")
    depth: int = Field(ge=1, description="passages per question")
    title: bool = Field(description="search in `title . text`, else in the text alone")


SCORE = Kind(name="score", run="evaluation.scores:run", params=ScoreParams, env="data", box="Scores")
AVERAGE_RANK = Kind(
    name="average_rank", run="retrieval.average_rank:run", params=AverageRankParams, env="search", threads="all",
    box="Scores",
)  # fmt: skip
MATCH = Kind(name="match", run="evaluation.matching:run", params=MatchParams, env="data", threads="all", box="Scores")


Rank = Annotated[int, Field(ge=1)]


class Inference(Model):
    """How an encoder's forward passes are computed: a cross-encoder's, unless said otherwise."""

    precision: Precision = Field("auto", description="of the computation")
    batch_tokens: int = Field(4096, ge=64, description="tokens of a batch")


class Shingle(Model):
    """What a text is cut into when it is compared with others."""

    unit: Literal["words", "characters"] = Field(description="characters for languages without spaces")
    size: int = Field(ge=1, description="units of a shingle")


class NoiseParams(Params):
    """Duplicates, faults of the labels, overlap of splits, unjudged results."""

    threshold: float = Field(gt=0, le=1, description="Jaccard similarity from which texts are near-duplicates")
    permutations: int = Field(ge=2, description="values of a MinHash signature")
    shingle: Shingle = Field(description="how texts are cut")
    seed: int = Field(description="of the permutations")
    depths: list[Rank] = Field(min_length=1, description="cutoffs of the shares of unjudged results")
    split: str | None = Field(None, description="of the runs; null where there are none")


class SimilarQueriesParams(Params, Inference):
    """Training queries that are similar to queries of other splits."""

    depth: int = Field(ge=1, description="training queries proposed for each other query")
    threshold: float = Field(ge=0, le=1, description="pairs above it are similar")
    splits: tuple[str, ...] | None = Field(None, description="compared with train; null: all")


class FalseNegativesParams(Params, Inference):
    """Unlabelled passages that may be relevant."""

    split: str = Field(description="of the runs")
    depth: int = Field(ge=1, description="results per system and query that are pooled")
    top: int = Field(ge=1, description="unlabelled passages per query that annotators see")
    threshold: float = Field(ge=0, le=1, description="the judges' verdict is positive above it")
    queries: int | None = Field(None, ge=1, description="queries of the split, by their ids' hash; null: all")


class RelabelParams(Params):
    """Judgements with the positives of a filled sheet, or of the judges. What is null is the pool's."""

    split: str | None = Field(None, description="of the pool")
    threshold: float | None = Field(None, ge=0, le=1, description="the judges' verdict is positive above it")
    fingerprint: str | None = Field(None, description="of the filled sheet")


class ErrorsParams(Params):
    """Queries whose first results hold no positive."""

    split: str = Field(description="of the run")
    top: int = Field(ge=1, description="a query is wrong if none of so many results is relevant")
    queries: int = Field(ge=1, description="wrong queries that are sampled, by their ids' hash")


class DynamicsParams(Params, Inference):
    """A joint model's score distributions over training steps."""

    queries: int = Field(ge=1, description="training lists, by their queries' hash")
    list_size: int = Field(ge=1, description="passages of a list, as in the training")
    seed: int = Field(description="of the training's lists")
    encode: Inference = Field(description="how the dual encoder encodes")


class HardnessParams(Params, Inference):
    """Negatives of some models' training lists."""

    models: tuple[str, ...] = Field(description="the model of each of the inputs `candidates.<i>`")
    drawn_from: tuple[str, ...] = Field(description="the run that each was drawn from, or `random`")
    queries: int = Field(ge=1, description="queries of each model's lists, by their ids' hash")
    threshold: float = Field(ge=0, le=1, description="a negative that the judges score above it counts as false")


NOISE = Kind(name="noise", run="extras.audits.noise:run", params=NoiseParams, threads="all", box="Audits")
SIMILAR_QUERIES = Kind(
    name="similar_queries", run="extras.audits.similar_queries:run", params=SimilarQueriesParams, env="models",
    threads="all", gpu=("judge",), box="Audits",
)  # fmt: skip
FALSE_NEGATIVES = Kind(
    name="false_negatives", run="extras.audits.false_negatives:run", params=FalseNegativesParams, env="models",
    threads="all", gpu=("judge",), box="Audits",
)  # fmt: skip
RELABEL = Kind(name="relabel", run="extras.audits.false_negatives:relabel", params=RelabelParams, box="Audits")
ERRORS = Kind(name="errors", run="extras.analysis.errors:run", params=ErrorsParams, box="Scores")
DYNAMICS = Kind(
    name="dynamics", run="extras.analysis.training:dynamics", params=DynamicsParams, env="models", threads="all",
    gpu=("point", "start", "retriever", "reranker"), box="Scores",
)  # fmt: skip
HARDNESS = Kind(
    name="hardness", run="extras.analysis.training:hardness", params=HardnessParams, env="models", threads="all",
    gpu=("judge",), box="Scores",
)  # fmt: skip

AUDITS = (NOISE, SIMILAR_QUERIES, FALSE_NEGATIVES, RELABEL, ERRORS, DYNAMICS, HARDNESS)
KINDS = (SCORE, AVERAGE_RANK, MATCH, *AUDITS)
