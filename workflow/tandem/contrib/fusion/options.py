"""Options of fusions, the entries of `fusions`, and the parameters of their stages."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from tandem.config.base import Choice, Items, Section
from tandem.config.references import RunRef
from tandem.config.retrieval import Choosing, Normalization, Weight
from tandem.registry import Registry
from tandem.stages.retrieval import RunParams, fusion

FusionMethod = Annotated[str, Choice(fusion)]
# `(number of runs, parameters) -> settings`: the settings that tuning a fusion tries, the preferred one first.
fusion_grid: Registry[Callable[..., Any]] = Registry(
    "grid of a fusion", "fusion_grid", "contrib.fusion"
)


class FusionTuning(Section):
    """How a fusion's parameters are chosen if they are null."""

    split: str = Field("dev", description="whose queries decide")
    measure: str = Field("RR@10", description="the measure that is maximised")
    step: float = Field(
        0.1, gt=0, le=0.5, description="between two weights of a run; weights sum to 1"
    )
    k: Items[Weight] = Field(
        (60.0, 30.0, 10.0, 5.0, 100.0), min_length=1, description="values to try"
    )


class Method(NamedTuple):
    """Keys of a method of fusion: the key that is tuned if it is null, its key of `tune`, and the other keys."""

    tuned: str = ""
    candidates: str = ""
    others: tuple[str, ...] = ()


# other methods have no keys
METHODS = {"rrf": Method("k", "k"), "weighted": Method("weights", "step", ("normalize",))}


class Fusion(Choosing):
    """Several runs fused to one; an entry of `fusions`."""

    of: Items[RunRef] = Field(description="two or more runs, fusions among them")
    method: FusionMethod = Field(
        "rrf", description="rrf: by ranks; weighted: a weighted sum of scores"
    )
    k: float | None = Field(60.0, ge=0, description="of rrf; null: tuned")
    normalize: Normalization = Field("min_max", description="weighted: scores per query")
    weights: Items[Weight] | None = Field(None, description="of weighted, one per run; null: tuned")
    depth: int | None = Field(
        None, ge=1, description="passages per query; null: as deep as runs on the split go"
    )
    tune: FusionTuning = Field(
        FusionTuning(), description="how parameters that are null are chosen"
    )

    @property
    def method_keys(self) -> Method:
        """Return the keys that its method reads."""
        return METHODS.get(self.method, Method())

    @property
    def is_tuned(self) -> bool:
        """Return whether its setting is chosen on a split with labels."""
        key = self.method_keys.tuned
        return bool(key) and getattr(self, key) is None

    @property
    def chosen_on(self) -> str | None:
        """See `Choosing`."""
        return self.tune.split if self.is_tuned else None

    @property
    def chosen_by(self) -> dict[str, str]:
        """See `Choosing`."""
        return {"tune.measure": self.tune.measure}


class FuseParams(RunParams):
    """Fusion of several runs."""

    method: str = Field("rrf", description="rrf: by ranks; weighted: a weighted sum of scores")
    k: float | None = Field(None, ge=0, description="of rrf; null: tuned")
    normalize: Normalization = Field(
        "min_max", description="of weighted: each run's scores, per query"
    )
    weights: tuple[float, ...] | None = Field(
        None, description="of weighted, one per run; null: tuned"
    )


class TuneFusionParams(RunParams):
    """Choice of a fusion's settings on a split with labels."""

    method: str = Field("rrf", description="see `fuse`")
    normalize: Normalization = Field(
        "min_max", description="of weighted: each run's scores, per query"
    )
    measure: str = Field("RR@10", description="what is maximised")
    k: tuple[float, ...] = Field(
        (), description="of rrf: the values that are tried, the preferred one first"
    )
    step: float | None = Field(
        None, gt=0, le=0.5, description="of weighted: between two weights of a run"
    )
    ignore_identical_ids: bool = Field(
        False, description="leave out the document whose id is the query's"
    )
