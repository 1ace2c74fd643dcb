"""Options of windows of long documents and of runs that are aggregated to documents, and the stages' parameters."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field

from tandem.config.base import Choice, Section
from tandem.config.datasets import UNSPACED, CutDocuments
from tandem.config.references import CrossEncoderRef, DatasetRef, RunRef
from tandem.config.retrieval import aggregation
from tandem.errors import UserError
from tandem.stages.retrieval import RerankParams, RunParams

PARADE_POOLINGS = ("cls", "mean", "max")  # of a window's states


class Windows(CutDocuments):
    """The documents of a dataset, cut into windows."""

    source: Literal["windows"]
    length: int = Field(150, ge=1, description="units of a window")
    stride: int = Field(
        75,
        ge=1,
        description="units from one window's beginning to the next one's, at most `length`",
    )
    unit: Literal["words", "characters"] | None = Field(
        None, description="null: words in languages written with spaces, else characters"
    )
    most: int | None = Field(
        None, ge=1, description="at most this many windows from a document's beginning; null: all"
    )
    titles: Literal["repeat", "first"] = Field(
        "repeat", description="before every window, or only before a document's first"
    )
    label: Literal["all", "first"] = Field(
        "all", description="windows that get the document's label; others are unjudged"
    )

    def complete(self, name: str, update: dict[str, Any]) -> Self:
        """Return the entry with the unit of its language; refuse a stride that skips text between windows."""
        spaced = update.get("language", self.language) not in UNSPACED
        unit = self.unit or ("words" if spaced else "characters")
        if self.stride > self.length:
            raise UserError(
                f"datasets.{name}.stride is {self.stride}, which skips {unit} between windows of length {self.length}; "
                f"allowed: ≤ {self.length}"
            )
        return super().complete(name, {**update, "unit": unit})


class Aggregation(Section):
    """A run over windows of long documents, aggregated to the documents; an entry of `aggregations`.

    `missing`: the score in sum and kmax of a window that the run does not list: the query's lowest score, or 0.
    """

    windows: DatasetRef = Field(description="a dataset of source windows")
    of: RunRef = Field(
        description="the run over the windows that is aggregated; with `by`: a run over the documents"
    )
    by: CrossEncoderRef | None = Field(
        None, description="cross-encoder or ensemble that scores the windows of the top documents"
    )
    method: Annotated[str, Choice(aggregation)] = Field(
        "max", description="FirstP, MaxP, SumP, or the mean of the k best"
    )
    k: int = Field(3, ge=1, description="of kmax")
    scores: Literal["raw", "probability"] | None = Field(
        None, description="of `by`; null: probability for sum, else raw"
    )
    missing: Literal["lowest", "zero"] | None = Field(
        None, description="score of a window that the run lacks; null: zero for sum, else lowest"
    )


class ParadeOptions(Section):
    """How a cross-encoder reads long documents: first each window, then the windows' vectors (PARADE)."""

    windows: DatasetRef = Field(
        description="a dataset of source windows, cut from the dataset that the model is trained on"
    )
    aggregate: Literal["mean", "max", "sum", "attention", "transformer"] = Field(
        "transformer", description="how the vectors of a document's windows become one"
    )
    layers: int = Field(2, ge=1, description="of transformer: the number of layers")


class RerankWindowsParams(RerankParams):
    """Re-ranking of documents by the scores of their windows."""

    method: str = Field("max", description="how windows' scores become a document's")
    k: int = Field(1, ge=1, description="of kmax: windows that count")
    split: str = Field("test", description="whose queries are re-ranked")
    scores: Literal["raw", "probability"] = Field(
        "raw", description="which score of a window is aggregated"
    )


class AggregateParams(RunParams):
    """A run over windows, aggregated to a run over documents."""

    method: str = Field("max", description="how windows' scores become a document's")
    k: int = Field(1, ge=1, description="of kmax: windows that count")
    missing: Literal["lowest", "zero"] = Field(
        "zero", description="of sum and kmax: score of a window not retrieved"
    )
