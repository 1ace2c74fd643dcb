"""The registries of losses, and the options that each loss takes: known without importing the losses, which need torch.

A plugin registers its own by the same decorators: `@supervision("<name>")`, `@distillation("<name>")`.
"""

import ast
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from tandem.registry import Registry

FOLDER = Path(__file__).parents[1] / "training" / "losses"

supervision: Registry[Any] = Registry("loss", "supervision", "training.losses")
distillation: Registry[Any] = Registry("distillation loss", "distillation", "training.losses")
regulariser: Registry[Any] = Registry("regulariser", "regulariser", "training.losses")


def option_takers() -> dict[str, list[str]]:
    """Every option, a keyword-only parameter of a loss, and the names of the losses that take it."""
    takers = {option: list(losses) for option, losses in _own_option_takers().items()}
    for registry in (supervision, distillation):
        for name in filter(registry.plugin, registry):
            for parameter in signature(registry[name]).parameters.values():
                if parameter.kind is Parameter.KEYWORD_ONLY:
                    takers.setdefault(parameter.name, []).append(name)
    return {option: list(dict.fromkeys(losses)) for option, losses in takers.items()}


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
