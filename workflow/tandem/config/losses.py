"""The losses of `training.losses` by name, with their options, read from their sources: planning needs no torch."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "training" / "losses"


@dataclass(frozen=True)
class Loss:
    """A function that a decorator registers.

    Attributes:
        registry: the decorator: `supervision`, `distillation` or `regulariser`.
        name: its name in configurations.
        options: its keyword-only parameters, with their defaults.
    """

    registry: str
    name: str
    options: dict[str, object]


def losses_in(path: Path) -> Iterable[Loss]:
    """The losses that a Python file registers: functions under `@supervision("<name>")` and the like."""
    body = ast.parse(path.read_text(encoding="utf-8"), str(path)).body
    for node in (node for node in body if isinstance(node, ast.FunctionDef)):
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(
                    ast.Name("supervision" | "distillation" | "regulariser" as registry), [ast.Constant(str(name))]
                ):
                    pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                    yield Loss(registry, name, {arg.arg: ast.literal_eval(value) for arg, value in pairs if value})


LOSSES = [loss for path in sorted(FOLDER.glob("[a-z]*.py")) for loss in losses_in(path)]


def names(registry: str) -> list[str]:
    """The names of a registry's losses."""
    return [loss.name for loss in LOSSES if loss.registry == registry]


def options() -> dict[str, dict[str, object]]:
    """Every option: the losses that take it, with its default in each."""
    found: dict[str, dict[str, object]] = {}
    for loss in LOSSES:
        for option, default in loss.options.items():
            found.setdefault(option, {})[loss.name] = default
    return found
