"""Scores of runs; audits of collections."""

from operator import not_
from pathlib import Path
from typing import Literal

from pydantic import Field

from tandem.config.base import Model
from tandem.config.datasets import AnswerMatch
from tandem.config.language_models import Grading
from tandem.config.references import parameters_of
from tandem.config.retrieval import Inference
from tandem.config.settings import FalseNegativesAudit, NoiseAudit, SimilarQueries
from tandem.stages.base import Kind, Params
from tandem.stages.retrieval import LlmParams

# Measures whose values follow from the top k alone; the others ask how many passages are relevant anywhere.
OF_THE_TOP = ("Success", "RR", "P")


class ScoreParams(Params):
    """What is measured; a group of datasets has `members` instead of a run."""

    measures: tuple[str, ...] = Field(min_length=1, description="names of ir_measures, such as RR@10")
    split: str = Field("", description="whose queries are scored; a group's members have their own")
    ignore_identical_ids: bool = Field(False, description="drop the result whose document id is the query's (BEIR)")
    members: tuple[str, ...] | None = Field(None, description="datasets of a group, whose means are averaged")


class AverageRankParams(Params):
    """The mean rank of relevant passages in a small collection."""

    split: str = Field(description="whose queries are ranked")
    ignore_identical_ids: bool = Field(False, exclude_if=not_, description="as for the score")


class MatchParams(Params):
    """Relevance by answers found in the passages of a run."""

    split: str = Field(description="whose questions are matched")
    match: AnswerMatch = Field(description="what counts as an answer in a passage")
    depth: int = Field(ge=1, description="passages per question")
    title: bool = Field(description="search in `title . text`, else in the text alone")


class Shingle(Model):
    """What a text is cut into when it is compared with others."""

    unit: Literal["words", "characters"] = Field(description="characters for languages without spaces")
    size: int = Field(ge=1, description="units of a shingle")


class NoiseParams(NoiseAudit, Params):
    """Duplicates, faults of the labels, overlap of splits, unjudged results."""

    shingle: Shingle = Field(description="how texts are cut")
    seed: int = Field(description="of the permutations")
    split: str | None = Field(None, description="of the runs; null where there are none")


@parameters_of
class SimilarQueriesParams(SimilarQueries, Inference, Params):
    """Training queries that are similar to queries of other splits."""

    splits: tuple[str, ...] | None = Field(None, description="compared with train; null: all")


@parameters_of
class FalseNegativesParams(FalseNegativesAudit, Inference, Params):
    """Unlabelled passages that may be relevant."""

    split: str = Field(description="of the runs")


def list_decisive_files(folder: Path) -> list[Path]:
    """Return the files of a folder of annotators' packages that decide its labels: all but what is being worked on."""
    return [*folder.glob("annotation.json"), *folder.glob("submitted/*.csv"), *folder.glob("reviews/*.csv")]


class RelabelParams(Params):
    """Judgements with the labels of annotators, or of the judges. What is null is the pool's."""

    split: str | None = Field(None, description="of the pool")
    threshold: float | None = Field(None, ge=0, le=1, description="the judges' verdict is positive above it")
    fingerprint: str | None = Field(None, description="of the filled sheet, or of the reviewed packages")


class JudgeLlmParams(Grading, LlmParams):
    """Grades of a language model, and judgements with them."""

    split: str = Field(description="of the pool and the runs")
    seed: int = Field(description="of the sample of judged pairs")


KINDS = (
    Kind("score", "evaluation.scores:run", ScoreParams, box="Scores", holds="scores", is_packed=True, verb="scoring"),
    Kind("average_rank", "retrieval.retrieve:run_average_rank", AverageRankParams, version=2, env="search",
        threads="all", box="Scores", lower_is_better=True),
    Kind("match", "evaluation.matching:run", MatchParams, threads="all", box="Scores", is_packed=True),
    Kind("noise", "extras.audits.noise:run", NoiseParams, version=2, threads="all", box="Audits"),
    Kind("similar_queries", "extras.audits.similar_queries:run", SimilarQueriesParams, env="models", threads="all",
        gpu=("judge",), box="Audits"),
    Kind("false_negatives", "extras.audits.false_negatives:run", FalseNegativesParams, env="models", threads="all",
        gpu=("judge",), box="Audits"),
    Kind("relabel", "extras.audits.relabel:run", RelabelParams, box="Audits"),
    Kind("judge_llm", "extras.audits.llm_judge:run", JudgeLlmParams, version=4, env="models", threads="all",
        gpu=("pool",), box="Audits"),
)  # fmt: skip
