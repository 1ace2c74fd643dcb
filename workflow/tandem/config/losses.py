"""The keys of losses, the registries, and the options that each loss takes: known without importing torch.

A plugin registers its own by the same decorators: `@supervision("<name>")`, `@distillation("<name>")`.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from tandem.config.base import Choice, IfSet, Items, Names, Section, problem
from tandem.config.parsing import read
from tandem.config.references import Input, Reference
from tandem.config.representations import Representation
from tandem.errors import UserError, printable
from tandem.plugins import Declarations, name_plugin
from tandem.registry import Registry, options_of

if TYPE_CHECKING:  # declarations import no torch
    from torch import Tensor

# options that are keys themselves; all others are keys of `loss_options`
KEYED = ("margin", "temperature")
# distillation loss → what it declares that it reads of a teacher's scores
READS: dict[str, str] = {}


class DistillationLosses(Registry["Callable[..., Tensor]"]):
    """Hold losses on a teacher's scores; each declares what it reads: `@distillation("ranknet", reads="pairs")`.

    `scores`: the scores' distances within a list, in any unit; `scale`: the same, in the unit of the model's scores;
    `logits`: logits of a cross-encoder; `order`: only their order; `pairs`: the same, except that ties form no pair.
    """

    def __call__(
        self, name: str, reads: str = ""
    ) -> "Callable[[Callable[..., Tensor]], Callable[..., Tensor]]":
        """Return a decorator that registers a loss under a name, and note what it reads; empty: that is unknown."""
        READS[name] = reads
        return super().__call__(name)


supervision: "Registry[Callable[..., Tensor]]" = Registry("loss", "supervision", "training.losses")
distillation = DistillationLosses("distillation loss", "distillation", "training.losses")
regulariser: "Registry[Callable[..., Tensor]]" = Registry(
    "regulariser", "regulariser", "training.losses"
)


@dataclass(frozen=True)
class OwnLoss:
    """Describe a loss of a dual encoder that reads only the positives of lists.

    Attributes:
        objective: the class that computes it, a `training.objectives.dual.DualObjective`, or `module:class` of it.
        learns: what it teaches, for messages.
        needs: the representation that it requires, with the options that this must have.
        requirement: the same, for messages: `…; set representation: …`.
    """

    objective: str | Callable[..., Any]
    learns: str
    needs: Representation
    requirement: str

    def fits(self, chosen: Representation) -> bool:
        """Return whether a representation is the one that it needs, whatever its other options are."""
        options = self.needs.model_fields_set
        return type(chosen) is type(self.needs) and all(
            getattr(chosen, name) == getattr(self.needs, name) for name in options
        )


OWN_LOSSES: Declarations[OwnLoss] = Declarations()


def register_own_loss(name: str, loss: OwnLoss) -> None:
    """Add a loss of a dual encoder that reads only the positives of lists; a `UserError` if the name is taken."""
    if name in OWN_LOSSES or name in supervision:
        raise UserError(f"loss {name} is registered twice; rename one of them")
    OWN_LOSSES[name] = loss
    name_plugin(name)


Supervision = Annotated[str, Choice(supervision)]
Distillation = Annotated[str, Choice(distillation)]


def option_takers() -> dict[str, list[str]]:
    """Return each option that is a key itself, and the names of the losses that take it."""
    takers = {option: list(losses) for option, losses in _own_option_takers().items()}
    for registry in (supervision, distillation):
        for name in filter(registry.plugin, registry):
            for option in options_of(registry[name]).model_fields.keys() & set(KEYED):
                takers.setdefault(option, []).append(name)
    return {option: list(dict.fromkeys(losses)) for option, losses in takers.items()}


def read_options(loss: Callable[..., Any], section: BaseModel) -> dict[str, Any]:
    """Return the values of a loss's options from a section's keys `margin` and `temperature` and its `loss_options`.

    Raises:
        UserError: a value is missing or of the wrong type; each line begins with `loss_options` and the option.
    """
    model, keys = options_of(loss), dict(section)
    values = {
        **keys.get("loss_options", {}),
        **{name: keys[name] for name in KEYED if name in keys},
    }
    own = {name: value for name, value in values.items() if name in model.model_fields}
    return dict(read(model, own, "loss_options"))


@cache
def _own_option_takers() -> dict[str, list[str]]:
    """Return `option_takers` of Tandem's own losses, read from their sources."""
    takers: dict[str, list[str]] = {}
    sources = [*supervision.own_sources.values(), *distillation.own_sources.values()]
    for source in sorted(set(sources)):
        body = ast.parse(source.read_text(encoding="utf-8"), str(source)).body
        for function in (node for node in body if isinstance(node, ast.FunctionDef)):
            for decorator in function.decorator_list:
                match decorator:
                    case ast.Call(
                        ast.Name("supervision" | "distillation"), [ast.Constant(str(name))]
                    ):
                        for option in function.args.kwonlyargs:
                            takers.setdefault(option.arg, []).append(name)
    return takers


class TakesLosses(Section):
    """A section that names losses: the options of a plugin's loss that have no key of their own."""

    losses: ClassVar[tuple[tuple[str, Registry[Any]], ...]] = ()

    loss_options: dict[str, bool | int | float | str] = Field(
        {},
        description="option → value, of a loss that a plugin registers: its keyword-only parameters",
    )

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        names = [(registry, getattr(self, key)) for key, registry in self.losses]
        # Tandem's own losses, which need torch and are not imported here, have no options other than `KEYED`.
        plugins = [registry[name] for registry, name in names if registry.plugin(name)]
        options = {option for loss in plugins for option in options_of(loss).model_fields}
        known = options - (type(self).model_fields.keys() & set(KEYED))
        for name, value in self.loss_options.items():
            if name not in known:
                takers = " and ".join(name for _, name in names)
                allowed = ", ".join(sorted(known)) or f"none, since {takers} has no further options"
                raise problem(
                    f".loss_options.{printable(name)} is {printable(value)}; allowed: {allowed}"
                )
        try:
            for loss in plugins:
                typed = read_options(loss, self)  # one key for 2, 2.0 and the text of `--config`
                self.loss_options.update(
                    (key, typed[key]) for key in self.loss_options if key in typed
                )
        except UserError as error:
            raise problem(f".{error}") from None
        return self


class Teaching(TakesLosses):
    """How a teacher's scores are learned."""

    losses = (("loss", distillation),)

    loss: Distillation = Field(
        "paper", description="distance between the teacher's and the model's scores"
    )
    temperature: float = Field(
        1.0, gt=0, description="of both softmaxes in kl, kl_t2, kl_elementwise, kl_reverse"
    )
    margin: float = Field(1.0, ge=0, description="of hinge, in the unit of the scores")
    weight: float = Field(1.0, gt=0, description="weight of the distillation")


class InBatchTeaching(Teaching):
    """A teacher that scores every query of a batch against the passages of all its lists, as they are visited."""

    from_: Annotated[str, Reference("dual encoder", "in_batch_teacher", "in_batch_tokens")] = Field(
        alias="from", description="a dual encoder of any representation, trained or not"
    )
    teacher_temperature: float = Field(
        1.0, gt=0, description="divides the teacher's scores, before `loss`"
    )
    own_negatives: bool = Field(
        True,
        description="the list's own negatives too; false: only its positive and the other lists' passages",
    )


class Distil(Teaching):
    """Learning from teachers' scores as well: of the training lists, in batch, or both."""

    from_: Annotated[Names, Reference("teacher")] = Field(
        (),
        alias="from",
        description="cross-encoders (mean of logits), runs with scores, the lists' own given_scores, or several",
    )
    weights: Annotated[IfSet[Items[Annotated[float, Field(gt=0)]] | None], Input()] = Field(
        None,
        description="of several teachers, in the order of `from`; null: equal, each member of an ensemble counts",
    )
    normalize: Annotated[IfSet[Literal["none", "z_score", "min_max"] | None], Input()] = Field(
        None,
        description="of each teacher's scores within a list, before they are averaged; null: none, if none is a run",
    )
    teacher_temperature: IfSet[Annotated[float, Field(gt=0)] | None] = Field(
        None, description="divides the scores of `from`, before `loss`; null: 1"
    )
    in_batch: IfSet[InBatchTeaching | None] = Field(
        None, description="of dual encoders: a teacher in batch"
    )
    supervision: float = Field(1.0, ge=0, description="weight of `train.loss`; 0: only the teacher")


class VectorWeights(Section):
    """Weights of the regularisers of one side's vectors."""

    flops: float = Field(0.0, ge=0, description="weight of the FLOPS regulariser")
    l1: float = Field(0.0, ge=0, description="weight of the L1 norm")

    @model_validator(mode="after")
    def _are_registered(self) -> Self:
        for name, weight in self:
            if weight and name not in regulariser:
                raise problem(
                    f".{name}: nothing computes it; leave the key out, or load a plugin that does"
                )
        return self


class Regularise(Section):
    """Regularisers of the vectors."""

    query: VectorWeights | None = Field(None, description="of the queries' vectors")
    passage: VectorWeights | None = Field(None, description="of the passages' vectors")
    ramp: int = Field(
        0, ge=0, description="steps over which the weights grow quadratically; 0: full at once"
    )
