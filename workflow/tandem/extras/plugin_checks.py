"""Look at what a user's plugin registers and where it fails, and say what is wrong in a line."""

import inspect
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import PydanticUserError, create_model

from tandem.config.datasets import entry_model
from tandem.errors import UserError, shortened
from tandem.plugins import Plugin, list_loaded_plugins
from tandem.registry import options_of

if TYPE_CHECKING:
    from torch import Tensor

_NEEDED = "a tensor of one number is needed, the sum over queries"
_LOSSES = ("loss", "distillation loss")
# types of values that `loss_options` can hold; Any where an option has no annotation
_SCALARS = (bool, int, float, str, NoneType, Any, object)


def check_entry(what: str, name: str, entry: Any) -> None:
    """Refuse what a plugin registers if no configuration can use it.

    Args:
        what: the registry's singular: `loss`, `dataset format`.
        name: under which it is registered.
    """
    if what == "dataset format":
        _require_source(name, entry)
    elif inspect.isfunction(entry):
        _require_readable_options(entry)
        if what in _LOSSES:
            _require_scalar_options(entry)


def _require_source(name: str, source: type[Any]) -> None:
    model = entry_model(source)
    annotation = model.model_fields["source"].annotation
    if get_origin(annotation) is Literal and name not in get_args(annotation):
        raise UserError(
            f"dataset format {name}: `source` of {model.__name__} is {inspect.formatannotation(annotation)}; "
            f'write Literal["{name}"], or register the format under that name'
        )


def _require_readable_options(function: Callable[..., Any]) -> None:
    """Refuse an option whose annotation is undefined, or not a type that pydantic knows."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.annotation is parameter.empty:
            continue
        annotation = parameter.annotation
        try:
            # strings are evaluated in the function's module
            fields: dict[str, Any] = {name: (annotation, ...)}
            create_model("options", __module__=function.__module__, **fields).model_rebuild()
        except (PydanticUserError, NameError):
            shown = (
                annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            )
            raise UserError(
                f"{function.__name__}: option {name} is annotated with {shown}, which no value of a configuration is; "
                "annotate it with a type such as float or str"
            ) from None


def _require_scalar_options(loss: Callable[..., Any]) -> None:
    for name, field in options_of(loss).model_fields.items():
        if not _is_scalar(field.annotation):
            shown = inspect.formatannotation(field.annotation)
            raise UserError(
                f"{loss.__name__}: option {name} is annotated with {shown}; allowed: "
                "bool, int, float, str, a Literal of these, and None beside them"
            )


def _is_scalar(annotation: Any) -> bool:
    """Return whether a type is one of a single value, or a union of such."""
    if get_origin(annotation) in (Union, UnionType):
        return all(map(_is_scalar, get_args(annotation)))
    if get_origin(annotation) is Annotated:
        return _is_scalar(get_args(annotation)[0])
    return get_origin(annotation) is Literal or annotation in _SCALARS


def check_results(name: str, loss: "Callable[..., Tensor]") -> "Callable[..., Tensor]":
    """Return the loss, which is a `UserError` where it does not return a scalar."""

    def compute(*tensors: "Tensor") -> "Tensor":
        """Return the loss of a batch."""
        result = loss(*tensors)
        _require_scalar(name, result)
        return result

    return compute


def _require_scalar(name: str, result: object) -> None:
    from torch import Tensor  # planning, which loads plugins too, needs no torch

    if not isinstance(result, Tensor):
        raise UserError(f"{name} returned {shortened(repr(result))}; {_NEEDED}")
    if result.dim():
        shape = tuple(result.shape)
        raise UserError(f"{name} returned a tensor of shape {shape}; {_NEEDED}")


def describe_import_error(error: BaseException, path: Path) -> str:
    """Return an error of a plugin's import, and how it may have several modules if it imports one beside its file."""
    said = f"{type(error).__name__}: {error}"
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return said
    neighbour = path.parent / f"{error.name.partition('.')[0]}.py"
    if not neighbour.is_file():
        return said
    return f"{said}; {neighbour.name} is beside it: a plugin of several files is an installed package (CONTRIBUTING.md)"


def format_traceback(error: BaseException, plugins: Iterable[Plugin] | None = None) -> str:
    """Return an unexpected error's traceback; where it was raised below a plugin, its last line names the plugin's.

    `KeyError: 'oh' (my_losses.py:7)`

    Args:
        plugins: those that are looked for; None: all that are loaded.
    """
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    return (
        f"{text}{_find_line(error, list_loaded_plugins() if plugins is None else list(plugins))}\n"
    )


def _find_line(error: BaseException, plugins: list[Plugin]) -> str:
    """Return the innermost line of an error that is in a plugin, as ` (<file>:<line>)`; empty without one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        for plugin in plugins:
            is_package = plugin.path.name == "__init__.py"
            if path == plugin.path or (is_package and path.is_relative_to(plugin.path.parent)):
                root = plugin.path.parent.parent if is_package else plugin.path.parent
                return f" ({path.relative_to(root)}:{frame.lineno})"
    return ""
