"""The key `audits`, the datasets of source `dissimilar`, and the parameters of the audits' stages."""

from operator import not_
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tandem.config.base import Count, Items, Model, Section
from tandem.config.datasets import Inheriting
from tandem.config.references import (
    CrossEncoderRef,
    DatasetRef,
    DualEncoderRef,
    Input,
    NoParameter,
    RunRef,
    parameters_of,
)
from tandem.config.retrieval import Inference
from tandem.extras.language_models.options import HostedModel, LanguageModel, LlmParams
from tandem.stages.base import Params

RULE_FILE = "annotation.json"  # of a folder of annotators' packages


class SimilarQueries(Section):
    """Training queries that are similar to dev or test queries, and who decides."""

    depth: int = Field(10, ge=1, description="neighbours of a query that are judged")
    threshold: float | None = Field(
        None,
        ge=0,
        le=1,
        description="pairs above it are similar; null: 0.5 for the judges' probability and the words' cosine, "
        "0.8 for the vectors' cosine",
    )
    judges: Items[CrossEncoderRef] | None = Field(
        None,
        description="cross-encoders of two questions, such as a question matcher; null: those of `audits.judges` that "
        "have learned absolute probabilities: published ones, and those of `loss: pointwise` without `distil`",
    )


class Review(Section):
    """How annotators' packages are reviewed (DuReader-retrieval A.3)."""

    package: int = Field(
        1000, ge=1, le=5000, description="pairs of a query and a passage in a package, at most"
    )
    reviewers: int = Field(2, ge=1, description="reviewers of a package")
    pairs: int = Field(100, ge=1, description="pairs of a package that are drawn for each reviewer")
    accuracy: float = Field(
        0.93,
        gt=0,
        le=1,
        description="share of equal verdicts, averaged over reviewers, below which a package is revised",
    )


class FalseNegativesAudit(Section):
    """Unlabelled passages that are relevant."""

    depth: int = Field(50, ge=1, description="passages per system that are pooled")
    top: int = Field(5, ge=1, description="passages per query that annotators see")
    labelled: bool = Field(
        False,
        exclude_if=not_,
        description="annotators see the first `top` passages whether labelled or not, and may correct labels",
    )
    queries: int | None = Field(100, ge=1, description="number of queries of the split; null: all")
    threshold: float = Field(
        0.5, ge=0, le=1, description="passages with a higher probability count as relevant"
    )
    sheet: Annotated[str | None, Input()] = Field(
        None,
        description="the annotators' filled sheet, or the folder of packages that `tandem annotate` writes",
    )
    review: Annotated[Review, NoParameter()] = Field(
        Review(), description="how packages are reviewed"
    )


class NoiseAudit(Section):
    """Passages that are nearly the same."""

    threshold: float = Field(
        0.8, gt=0, le=1, description="duplicates have at least this Jaccard similarity"
    )
    permutations: int = Field(64, ge=16, description="number of MinHash permutations")
    depths: Items[Count] = Field(
        (10, 50), min_length=1, description="ranks up to which duplicates are counted"
    )


class Grading(LanguageModel):
    """Grades from 0 to 3 for passages that nobody judged, and for some that people judged."""

    depth: int = Field(
        10,
        ge=1,
        description="passages at the top of each system that are graded if nobody judged them",
    )
    sample: int = Field(
        200,
        ge=0,
        description="judged pairs that are also graded, to measure the agreement of model and people",
    )
    scale: Literal["binary", "graded"] = Field(
        "binary",
        description="labels that grades become: 0 and 1, or, where people graded from 0 to 3 too, the grades",
    )
    relevant_from: int = Field(2, ge=1, le=3, description="lowest grade that counts as relevant")
    tokens: int = Field(
        64, ge=1, description="tokens of an answer, at most; models that think aloud need more"
    )


class LlmJudge(Grading, HostedModel):
    """A language model that grades passages at the top of `systems` (UMBRELA)."""


class Audits(Section):
    """Audits of a dataset."""

    retriever: DualEncoderRef | None = Field(
        "de_bm25neg", description="the dual encoder whose vectors propose pairs of queries"
    )
    judges: Items[CrossEncoderRef] = Field(
        ("ce_bm25neg",), description="cross-encoders whose mean probability decides"
    )
    in_report: bool = Field(
        False, description="the report has sections of the audits, and waits for them"
    )
    systems: Items[RunRef] = Field(
        ("bm25", "de_bm25neg"), min_length=1, description="runs that are pooled"
    )
    similar_queries: SimilarQueries = Field(
        SimilarQueries(), description="similar training queries"
    )
    false_negatives: FalseNegativesAudit = Field(
        FalseNegativesAudit(), description="relevant passages without a label"
    )
    llm_judge: LlmJudge | None = Field(
        None, description="language model that grades unjudged passages; null: none"
    )
    noise: NoiseAudit = Field(NoiseAudit(), description="passages that are nearly the same")


class Dissimilar(Inheriting):
    """A dataset without training queries that are similar to dev or test queries."""

    corpus_key = "of"
    source: Literal["dissimilar"]
    of: DatasetRef = Field(description="the dataset that these queries are removed from")


class Shingle(Model):
    """The unit and length of the pieces into which texts are cut for comparison."""

    unit: Literal["words", "characters"] = Field(
        description="characters for languages without spaces"
    )
    size: int = Field(ge=1, description="units of a shingle")


class RunsParams(Params):
    """Results that an audit leaves out of the runs that it reads."""

    ignore_identical_ids: bool = Field(
        False, exclude_if=not_, description="leave out the document whose id is the query's"
    )


class NoiseParams(NoiseAudit, RunsParams):
    """Duplicates, faults of the labels, overlap of splits, unjudged results."""

    shingle: Shingle = Field(description="how texts are cut")
    seed: int = Field(description="seed of the permutations")
    split: str | None = Field(None, description="split of the runs; null if there are none")


@parameters_of
class SimilarQueriesParams(SimilarQueries, Inference, Params):
    """Training queries that are similar to queries of other splits."""

    threshold: float = Field(0.5, ge=0, le=1, description="pairs above it are similar")
    splits: tuple[str, ...] | None = Field(
        None, description="compared with train; null: all that no model learns from"
    )


@parameters_of
class FalseNegativesParams(FalseNegativesAudit, Inference, RunsParams):
    """Unlabelled passages that may be relevant."""

    split: str = Field(description="split of the runs")
    calibrate: bool = Field(
        False,
        exclude_if=not_,
        description="the judges' scores are calibrated on the labelled positives and the other passages",
    )


class RelabelParams(Params):
    """Judgements with the labels of annotators, or of the judges. A parameter that is null has the pool's value."""

    split: str | None = Field(None, description="split of the pool")
    threshold: float | None = Field(
        None, ge=0, le=1, description="the judges' verdict is positive above it"
    )
    fingerprint: str | None = Field(
        None, description="digest of the filled sheet, or of the reviewed packages"
    )


class JudgeLlmParams(Grading, RunsParams, LlmParams):
    """Grades of a language model, and judgements with them."""

    split: str = Field(description="split of the pool and the runs")
    seed: int = Field(description="seed of the sample of judged pairs")


def list_decisive_files(folder: Path) -> list[Path]:
    """Return the files of a folder of annotators' packages that decide its labels: all except unfinished work."""
    return [
        *folder.glob(RULE_FILE),
        *folder.glob("submitted/*.csv"),
        *folder.glob("reviews/*.csv"),
    ]
