"""Check which keys of a training go together with a teacher's scores, and define parameters of the stage `teacher`."""

from operator import not_

from pydantic import Field

from tandem.config.base import equals, problem
from tandem.config.retrieval import Normalization
from tandem.config.training import SingleTrain
from tandem.contrib.distillation.read_scores import find_what_is_read, list_losses
from tandem.stages.base import Params
from tandem.stages.retrieval import ScoringParams


class GivenScoresParams(Params):
    """The scores in a dataset's own training lists."""

    split: str = Field("train", description="whose queries")
    as_logits: bool = Field(
        False, exclude_if=not_, description="a loss reads them as logits: probabilities are refused"
    )


class TeacherParams(ScoringParams):
    """The scores of training lists by a teacher, or the weighted mean of several teachers' scores."""

    weights: tuple[float, ...] = Field(
        (), exclude_if=not_, description="weights of several: the judges', then the runs'"
    )
    normalize: Normalization = Field(
        "none", exclude_if=equals("none"), description="scaling of each one's scores within a list"
    )


def check_teaching(train: SingleTrain) -> None:
    """Refuse to draw lists by a teacher's scores without a teacher, or together with keys that draw them otherwise."""
    if train.margin_bins and (train.distil is None or train.instance != "query"):
        raise problem(
            f".margin_bins is {train.margin_bins}, which needs a teacher (distil) and instance: query"
        )
    check_groups(train)


def check_groups(train: SingleTrain) -> None:
    """Refuse groups of ranks that do not fit the lists, or whose order the teacher's loss does not learn."""
    if not train.groups:
        return
    fits = train.instance == "query" and train.positives == 1 and train.sizes == "given"
    if train.distil is None or not fits or train.margin_bins:
        hint = "instance: query, one positive, sizes: given, and no margin_bins"
        raise problem(f".groups need a teacher (distil), {hint}")
    loss = train.distil.loss
    if find_what_is_read(loss) not in ("pairs", ""):
        allowed = ", ".join(list_losses("pairs"))
        raise problem(
            f".groups give an order and no scores, but distil.loss is {loss}; allowed: {allowed}"
        )
    ends = [group.last_rank for group in train.groups]
    sizes = [group.passages for group in train.groups]
    ranks = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    if sizes[0] != ranks[0] or any(size > count for size, count in zip(sizes, ranks, strict=True)):
        raise problem(
            f".groups draw {sizes} of {ranks} ranks; of the first all, of others no more than there are"
        )
    if sum(sizes) != train.list_size:
        raise problem(
            f".groups have {sum(sizes)} passages, but list_size is {train.list_size}; make them equal"
        )
