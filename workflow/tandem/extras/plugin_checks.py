"""Check what a user's plugin registers and where it fails, and name what is wrong in a line."""

import inspect
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError, create_model

from tandem.config.datasets import entry_model
from tandem.config.indexes import AnyIndex, Index
from tandem.config.models import DualModel
from tandem.config.representations import Representation
from tandem.errors import UserError, nearest, shortened
from tandem.extras.plugin_results import wrap_entry
from tandem.plugins import Plugin, list_loaded_plugins
from tandem.registry import options_of
from tandem.stages import KINDS

if TYPE_CHECKING:
    from torch import Tensor

_NEEDED = "a tensor of one number is needed, the sum over queries"
_LOSSES = ("supervision", "distillation")  # decorators
# decorator → the arguments of its functions, by position
_CALLED_WITH = {
    "supervision": ("scores", "mask"),
    "distillation": ("scores", "teacher", "mask"),
    "pair_scorer": ("query", "passages"),
}
# types of values that `loss_options` can hold; Any where an option has no annotation
_SCALARS = (bool, int, float, str, NoneType, Any, object)


def check_entry(decorator: str, name: str, entry: Any, plans: str = "") -> Any:
    """Refuse what a plugin registers if no configuration can use it; return it, with a check of its results.

    Args:
        decorator: the registry's: `supervision`, `dataset_format`.
        name: the name under which it is registered.
        plans: for a function that plans one stage, the arguments that it is called with: `ctx, name, entry`.
    """
    if decorator == "dataset_format":
        _require_source(name, entry)
    elif inspect.isfunction(entry):
        _require_readable_options(entry)
        _require_positions(entry, _CALLED_WITH.get(decorator, ()))
        if decorator in _LOSSES:
            _require_scalar_options(entry)
    return wrap_entry(decorator, name, entry, plans)


def _require_positions(entry: Callable[..., Any], names: tuple[str, ...]) -> None:
    """Refuse a function that cannot be called as its stage calls it: the call may come hours later."""
    parameters = inspect.signature(entry).parameters.values()
    options = {each.name: None for each in parameters if each.kind is each.KEYWORD_ONLY}
    try:
        if names:
            inspect.signature(entry).bind(*names, **options)
    except TypeError as error:
        called = f"it is called with {', '.join(names)} by position; options stand behind *"
        raise UserError(f"{entry.__name__}: {error}; {called}") from None


def check_index_types(*models: type[Any]) -> None:
    """Refuse types of `indexes` that lack the attributes by which their stages are found."""
    for model in models:
        if not (isinstance(model, type) and issubclass(model, AnyIndex)):
            raise UserError(f"index {_name(model)}: it is not a subclass of Index")
        _require_literal("index", model)
        is_of_vectors = issubclass(model, Index)
        for name in ("built_by", "searched_by") if is_of_vectors else ("searches",):
            if not isinstance(getattr(model, name, None), str):
                needed = "the name of a kind of stage" if is_of_vectors else "what it searches"
                raise UserError(
                    f"index {model.__name__}: has no {name}; add {name}: ClassVar[str], {needed}"
                )


def require_index_stages(name: str, entry: Index) -> None:
    """Refuse an entry of `indexes` whose type names a kind of stage that nothing registers."""
    for word in ("built_by", "searched_by"):
        kind = getattr(entry, word)
        if kind not in KINDS:
            problem = f"{word} of {type(entry).__name__} is {kind}, which is not a stage"
            raise UserError(f"indexes.{name}: {problem}{nearest(kind, KINDS)}")


def check_representation(model: type[Any]) -> None:
    """Refuse the options of a representation that no model can have."""
    if not (isinstance(model, type) and issubclass(model, Representation)):
        raise UserError(f"representation {_name(model)}: it is not a subclass of Representation")
    for key, value in model.usual.items():
        field = DualModel.model_fields.get(key)
        if field is None:
            problem = f"usual has {key}, which is not a key of a dual encoder"
            raise UserError(
                f"representation {model.__name__}: {problem}{nearest(key, DualModel.model_fields)}"
            )
        annotation: Any = field.annotation
        try:
            TypeAdapter(annotation).validate_python(value)
        except ValidationError as error:
            said = error.errors()[0]["msg"]
            raise UserError(
                f"representation {model.__name__}: usual.{key} is {value!r}: {said}"
            ) from None


def _name(value: Any) -> str:
    return getattr(value, "__name__", None) or shortened(repr(value))


def _require_literal(what: str, model: type[BaseModel]) -> None:
    annotation = model.model_fields["type"].annotation
    if get_origin(annotation) is not Literal:
        raise UserError(
            f"{what} {model.__name__}: its type is {inspect.formatannotation(annotation)}; "
            f'annotate it with a Literal of its name, such as Literal["{model.__name__.lower()}"]'
        )


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
            # strings are evaluated in the module of the function
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
    """Return whether a type is that of a single value, or a union of such types."""
    if get_origin(annotation) in (Union, UnionType):
        return all(map(_is_scalar, get_args(annotation)))
    if get_origin(annotation) is Annotated:
        return _is_scalar(get_args(annotation)[0])
    return get_origin(annotation) is Literal or annotation in _SCALARS


def check_results(name: str, loss: "Callable[..., Tensor]") -> "Callable[..., Tensor]":
    """Return the loss, wrapped so that it raises a `UserError` where it does not return a scalar."""

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
    """Return an error of a plugin's import, with a hint to use a package if it imports a module next to its file."""
    said = f"{type(error).__name__}: {error}"
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return said
    neighbour = path.parent / f"{error.name.partition('.')[0]}.py"
    if not neighbour.is_file():
        return said
    return f"{said}; {neighbour.name} is beside it: a plugin of several files is an installed package (CONTRIBUTING.md)"


def format_traceback(error: BaseException, plugins: Iterable[Plugin] | None = None) -> str:
    """Return an unexpected error's traceback; if it was raised in a plugin, the message names the plugin's line.

    `KeyError: 'oh' (my_losses.py:7)`; in a message of several lines, the first line names it.

    Args:
        plugins: the plugins that are looked for; None: all loaded ones.
    """
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    place = _find_line(error, list_loaded_plugins() if plugins is None else list(plugins))
    message = "".join(traceback.format_exception_only(error)).rstrip("\n")
    first, *others = message.splitlines()
    if not others or isinstance(error, SyntaxError):  # a SyntaxError's message is its last line
        return f"{text}{place}\n"
    return "\n".join([text.removesuffix(message) + first + place, *others, ""])


def _find_line(error: BaseException, plugins: list[Plugin]) -> str:
    """Return an error's innermost line that is in a plugin, as ` (<file>:<line>)`; empty without one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        for plugin in plugins:
            is_package = plugin.path.name == "__init__.py"
            if path == plugin.path or (is_package and path.is_relative_to(plugin.path.parent)):
                root = plugin.path.parent.parent if is_package else plugin.path.parent
                return f" ({path.relative_to(root)}:{frame.lineno})"
    return ""
