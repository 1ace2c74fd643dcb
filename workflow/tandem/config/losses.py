"""The registries of losses, and the options that each loss takes: known without importing the losses, which need torch.

A plugin registers its own by the same decorators: `@supervision("<name>")`, `@distillation("<name>")`.
"""

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tandem.config.validation import read
from tandem.errors import UserError
from tandem.registry import Registry, options_of

KEYED = ("margin", "temperature")  # options that are keys themselves; all others are keys of `loss_options`
FOLDER = Path(__file__).parents[1] / "training" / "losses"

supervision: Registry[Any] = Registry("loss", "supervision", "training.losses")
distillation: Registry[Any] = Registry("distillation loss", "distillation", "training.losses")
regulariser: Registry[Any] = Registry("regulariser", "regulariser", "training.losses")


def option_takers() -> dict[str, list[str]]:
    """Each option that is a key itself, and the names of the losses that take it."""
    takers = {option: list(losses) for option, losses in _own_option_takers().items()}
    for registry in (supervision, distillation):
        for name in filter(registry.plugin, registry):
            for option in options_of(registry[name]).model_fields.keys() & set(KEYED):
                takers.setdefault(option, []).append(name)
    return {option: list(dict.fromkeys(losses)) for option, losses in takers.items()}


def read_options(loss: Callable[..., Any], section: BaseModel, at: str = "loss_options") -> dict[str, Any]:
    """The values of a loss's options: of a section's keys `margin` and `temperature`, and of its `loss_options`.

    Raises:
        UserError: a value is missing or of the wrong type; each line begins with `at` and the option.
    """
    model, values = options_of(loss), dict(section)
    own = {name: values[name] for name in KEYED if name in values}
    values = {**values.get("loss_options", {}), **own}
    return dict(read(model, {name: value for name, value in values.items() if name in model.model_fields}, at))


def check_options(section: BaseModel, losses: list[tuple[Registry[Any], str]]) -> None:
    """Refuse `loss_options` that no loss of a section takes, or that do not fit.

    Tandem's own losses, which need torch and are not imported here, have no options beside `KEYED`.

    Raises:
        UserError: names the option, its value, and the allowed ones.
    """
    plugins = [registry[name] for registry, name in losses if registry.plugin(name)]
    known = {name for loss in plugins for name in options_of(loss).model_fields} - (dict(section).keys() & set(KEYED))
    for name, value in dict(section)["loss_options"].items():
        if name not in known:
            takers = " and ".join(name for _, name in losses)
            allowed = ", ".join(sorted(known)) or f"none, since {takers} has no further options"
            raise UserError(f"loss_options.{name} is {value}; allowed: {allowed}")
    for loss in plugins:
        read_options(loss, section)


@cache
def _own_option_takers() -> dict[str, list[str]]:
    """`option_takers` of Tandem's own losses, read from their sources."""
    takers: dict[str, list[str]] = {}
    for source in sorted(FOLDER.glob("*.py")):
        body = ast.parse(source.read_text(encoding="utf-8"), str(source)).body
        for function in (node for node in body if isinstance(node, ast.FunctionDef)):
            for decorator in function.decorator_list:
                match decorator:
                    case ast.Call(ast.Name("supervision" | "distillation"), [ast.Constant(str(name))]):
                        for option in function.args.kwonlyargs:
                            takers.setdefault(option.arg, []).append(name)
    return takers
