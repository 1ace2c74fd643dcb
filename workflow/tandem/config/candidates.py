"""Training lists: which passages of a run they are drawn from, and which of those a judge or a positive removes."""

from operator import not_
from typing import Literal, Self

from pydantic import Field, model_validator

from tandem.config.base import Items, Names, Section, is_one, problem


def _require_ranks(first_rank: int, depth: int) -> None:
    if depth < first_rank:
        raise problem(f".depth is {depth}, before first_rank ({first_rank}); allowed: ≥ {first_rank}")


class Backfill(Section):
    """Unjudged passages that fill up lists which denoising leaves too short."""

    first_rank: int = Field(ge=1, description="the first rank that they are taken from")
    depth: int = Field(ge=1, description="the last rank that they are taken from")

    @model_validator(mode="after")
    def _forwards(self) -> Self:
        _require_ranks(self.first_rank, self.depth)
        return self


class Denoising(Section):
    """What a judge's probability makes of a passage."""

    negative_below: float = Field(
        0.1, ge=0, le=1, description="a passage is a negative only if its probability is below"
    )
    positive_above: float | None = Field(
        0.9, ge=0, le=1, description="unlabelled passages above it become positives; null: none"
    )
    hybrid: bool = Field(False, description="mix denoised and undenoised negatives, as RocketQAv2 §3.3")
    calibrate: Literal["dev"] | None = Field(
        None,
        exclude_if=not_,
        description="dev: a probability is fitted to the judge's scores of dev's known positives and other candidates",
    )
    backfill: Backfill | None = Field(None, description="fill up short lists with unjudged passages of these ranks")

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.positive_above is not None and self.positive_above < self.negative_below:
            both = f"negative_below is {self.negative_below:g}, above positive_above ({self.positive_above:g})"
            raise problem(f".{both}: a passage between them would be both; lower it, or set positive_above")
        return self


class Denoise(Denoising):
    """Denoising of training lists by cross-encoders."""

    by: Names = Field(description="a cross-encoder, or several whose probabilities are averaged")


class Below(Section):
    """How far below the positive of its query a negative must score: positive-aware mining (NV-Retriever).

    Of several positives the lowest score counts. Either `share` or `margin`.
    """

    share: float | None = Field(
        None, gt=0, le=1, description="at most this share of the positive's score (TopK-PercPos; the paper's is 0.95)"
    )
    margin: float | None = Field(
        None, ge=0, description="at least so much under it, in the unit of the scores (TopK-MarginPos)"
    )

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.share is None) == (self.margin is None):
            raise problem(f" has {'neither' if self.share is None else 'both'} of share and margin; say one of them")
        return self


class BelowPositive(Below):
    """Positive-aware mining, by the scores of the run or of cross-encoders."""

    by: Names | None = Field(
        None, description="cross-encoders whose mean probability is compared; null: the scores of the run `from`"
    )


class Draw(Section):
    """Which passages of a run, or of the corpus, become training lists."""

    split: str = Field("train", description="the queries' split; `unlabelled` of datasets of that source")
    labels: Literal["qrels", "answers", "judge"] = Field("qrels", description="what makes a positive")
    bar_answers: bool = Field(False, description="passages with an answer are no negatives")
    take: Literal["random", "first"] = Field("random", description="which, of more than `negatives`")
    negatives_per: Literal["query", "positive"] = Field("query", description="what `negatives` counts for")
    near_duplicates: float | None = Field(
        None,
        gt=0,
        le=1,
        description="no negative shares so many token trigrams (Jaccard) with a positive; null: equal text",
    )
    least_grade: int = Field(
        1, ge=1, exclude_if=is_one, description="grade from which a label is a positive; lower ones are no negatives"
    )
    first_rank: int = Field(1, ge=1, description="first rank of the window that negatives are drawn from")
    depth: int = Field(50, ge=1, description="last rank of the window")
    negatives: int | None = Field(None, ge=1, description="negatives in a list; null: all of the window")
    queries: int | None = Field(None, ge=1, description="draw lists for this many queries only; null: all")

    @model_validator(mode="after")
    def _forwards(self) -> Self:
        _require_ranks(self.first_rank, self.depth)
        return self


class Candidates(Draw):
    """Where the training lists come from.

    A positive has a label (qrels), is the first of the window that holds an answer (answers), or is the judge's best if
    above `positive_above` (judge). Where answers label, passages with an answer are never negatives.
    """

    from_: str = Field(alias="from", description="run that lists are drawn from, or random: `depth` of the corpus")
    also: "Items[Candidates]" = Field((), description="further lists that are joined to these, each by its own rules")
    seed: int | None = Field(None, ge=0, description="null: the configuration's")
    denoise: Denoise | None = Field(None, description="which passages a cross-encoder removes from the lists")
    below_positive: BelowPositive | None = Field(None, description="which passages score too near a positive")

    @property
    def judges(self) -> tuple[str, ...]:
        """The cross-encoders that score the window, for denoising or beside a positive."""
        below = self.below_positive.by if self.below_positive else None
        return self.denoise.by if self.denoise else below or ()


class Topics(Section):
    """Clusters of the training queries, for batches whose queries are about the same (TAS)."""

    by: str = Field("encoder", description="the dual encoder whose vectors of queries are clustered")
    clusters: int = Field(2000, ge=2, description="how many (k-means)")
