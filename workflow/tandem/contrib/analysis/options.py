"""The key `analysis`, and the parameters of the stages behind the notebooks."""

from operator import not_

from pydantic import Field

from tandem.config.base import Distinct, Items, Section, is_one
from tandem.config.references import CrossEncoderRef, RunRef
from tandem.config.retrieval import Inference
from tandem.stages.base import Params

# Files of the stages. Notebooks read them without importing the stages, since these import torch.
DYNAMICS_FILE, NEGATIVES_FILE = "dynamics.parquet", "negatives.parquet"


class ErrorAnalysis(Section):
    """Wrong results of a run."""

    system: RunRef | None = Field(
        None,
        description="the run; null: `de_bm25neg+ce_deneg`, else the configuration's first own run that re-ranks",
    )
    top: int = Field(
        5,
        ge=1,
        description="sampled queries have no positive up to this rank; as many passages of each are shown",
    )
    queries: int = Field(100, ge=1, description="at most this many queries, by their ids' hash")
    sheet: str | None = Field(
        None, description="the annotators' filled sheet, for DuReader-retrieval's Table 10"
    )


class DynamicsAnalysis(Section):
    """How the two sides of a joint training approach each other."""

    model: str | None = Field(
        None,
        description="joint model: each of its train.checkpoints, else start and end; null: `rocketqav2`, else the first"
        " of the configuration's own",
    )
    queries: int = Field(
        100, ge=1, description="at most this many training lists, by their queries' hash"
    )


class NegativesAnalysis(Section):
    """Negatives of training lists."""

    of: Distinct[str] = Field(
        ("ce_bm25neg", "ce_deneg", "rocketqav2"),
        description="models to compare; default, if none of these exists: those of the configuration's own runs",
    )
    judges: Items[CrossEncoderRef] = Field(
        ("ce_deneg",), description="cross-encoders whose mean score finds false negatives"
    )
    threshold: float = Field(0.5, ge=0, le=1, description="a negative above it counts as false")
    queries: int = Field(
        50, ge=1, description="this many lists of each model, by their queries' hash"
    )


class Analysis(Section):
    """What `snakemake notebooks` analyses."""

    errors: ErrorAnalysis = Field(ErrorAnalysis(), description="wrong results of a run")
    dynamics: DynamicsAnalysis = Field(
        DynamicsAnalysis(), description="a joint training from start to end"
    )
    negatives: NegativesAnalysis = Field(
        NegativesAnalysis(), description="negatives of training lists"
    )


class ErrorsParams(Params):
    """Queries whose first results contain no positive."""

    split: str = Field(description="of the run")
    top: int = Field(
        ge=1, description="a query is wrong if none of its first `top` results is relevant"
    )
    queries: int = Field(ge=1, description="wrong queries that are sampled, by their ids' hash")
    ignore_identical_ids: bool = Field(False, exclude_if=not_, description="as for the score")


class DynamicsParams(Inference, Params):
    """A joint model's score distributions over training steps."""

    queries: int = Field(ge=1, description="training lists, by their queries' hash")
    list_size: int | None = Field(
        ge=1, description="passages of a list, as in the training; null: derived from its data"
    )
    positives: int = Field(
        1, ge=1, exclude_if=is_one, description="positives of a list, as in the training"
    )
    set_apart: int | None = Field(
        None, exclude_if=not_, description="most queries that are set apart for validation"
    )
    seed: int = Field(description="of the training's lists")
    encode: Inference = Field(description="how the dual encoder encodes")


class HardnessParams(Inference, Params):
    """Negatives of some models' training lists."""

    models: tuple[str, ...] = Field(description="the model of each of the inputs `candidates.<i>`")
    drawn_from: tuple[str, ...] = Field(
        description="the run from which each was drawn, or `random`"
    )
    queries: int = Field(ge=1, description="queries of each model's lists, by their ids' hash")
    threshold: float = Field(
        ge=0, le=1, description="a negative that the judges score above it counts as false"
    )
