"""Types of keys that name other entries of the configuration; the other keys are the parameters of a stage.

    class Denoise(Section):
        by: CrossEncoderRefs = Field(description="judges")
        negative_below: float = Field(0.1, description="a passage below it is a negative")

In YAML such a key is a text, or a list of texts. Planning looks the names up, refuses those that do not exist or do not
fit, and makes what they name inputs of the stage (`tandem.plan.named_entries`). The rest of the section is hashed into
the stage's key; `parameters_of(Denoise)` is the model of this rest.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from types import new_class
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
)

from tandem.config.base import Model, Names
from tandem.config.parsing import branches

# Objectives of the models that have a dual encoder, and of those that have a cross-encoder.
DUAL_PARTS, CROSS_PARTS = ("dual", "joint"), ("cross", "joint")
_M = TypeVar("_M", bound=Model)
Excluded = dict[str, Any]  # field → True, or what is excluded within it: as `model_dump` takes it
# What is named: a dataset; a run; a run or a source of negatives; what a training starts from; a dual encoder, or one
# whose vectors of queries are clustered; a cross-encoder or ensemble; one of these, or a run, that teaches; texts that
# are generated for queries.
Sort = Literal[
    "dataset",
    "run",
    "negatives",
    "start",
    "dual encoder",
    "topics",
    "cross-encoder",
    "teacher",
    "texts of queries",
]


@dataclass(frozen=True)
class NoParameter:
    """Annotates a key that is not a parameter of the stage, such as where files are, or how a server is queried."""


@dataclass(frozen=True)
class Note(NoParameter):
    """Annotates a key that describes a dataset and decides nothing in it, such as its licence or its measures.

    Attributes:
        is_inherited: whether datasets that are made of this one take the key over.
    """

    is_inherited: bool = True


@dataclass(frozen=True)
class Input(NoParameter):
    """Annotates a key that concerns one of the stage's inputs."""


@dataclass(frozen=True)
class Reference(Input):
    """Annotates a key that names other entries.

    Attributes:
        to: the sort of what is named.
        role: the role of the input; empty: the key itself. Several inputs have a number behind it, `of.0`, `of.1`, ….
        tokens: the role of the token ids that a named model reads; empty: these are not an input.
        objectives: the objectives of models that fit; empty: all that the sort allows.
    """

    to: Sort
    role: str = ""
    tokens: str = ""
    objectives: tuple[str, ...] = ()


DatasetRef = Annotated[str, Reference("dataset")]
RunRef = Annotated[str, Reference("run", "run")]
DualEncoderRef = Annotated[str, Reference("dual encoder")]
CrossEncoderRef = Annotated[str, Reference("cross-encoder", "judge")]
CrossEncoderRefs = Annotated[Names, Reference("cross-encoder", "judge")]


class Name(NamedTuple):
    """A key that names entries, with its value."""

    reference: Reference
    path: str  # of the key, dotted
    section: Model  # that has the key
    names: tuple[str, ...]  # what it names, one or several
    is_list: bool

    @property
    def role(self) -> str:
        """The role of the input that is named."""
        return self.reference.role or self.path.rpartition(".")[2]


def names_in(section: Model, path: str) -> Iterator[Name]:
    """Yield every key of a section, and of the sections in it, that names entries.

    Args:
        path: of the section, dotted.
    """
    for key in _keys(type(section)):
        value = getattr(section, key.field)
        if value is None:
            continue
        if key.mark is None:
            if isinstance(value, Model):
                yield from names_in(value, f"{path}.{key.name}")
        elif isinstance(key.mark, Reference):
            is_list = not isinstance(value, str)
            names = tuple(value) if is_list else (value,)
            if names:
                yield Name(key.mark, f"{path}.{key.name}", section, names, is_list)


class _Key(NamedTuple):
    """A key of a class of sections that is not a parameter, or a section that has such keys."""

    field: str
    name: str  # in YAML
    mark: NoParameter | None  # None: the key holds a section
    excluded: Any


@cache
def _keys(section: type[Model]) -> tuple[_Key, ...]:
    keys = []
    for field_name, field in section.model_fields.items():
        name = field.alias or field_name
        if mark := _mark(field.annotation, *field.metadata):
            keys.append(_Key(field_name, name, mark, True))
        elif inner := {
            key: value
            for nested in _sections(field.annotation)
            for key, value in excluded(nested).items()
        }:
            keys.append(_Key(field_name, name, None, inner))
    return tuple(keys)


def inherited_notes(section: type[Model]) -> list[str]:
    """Return the fields of a dataset's entry that datasets made of it take over."""
    return [
        key.field for key in _keys(section) if isinstance(key.mark, Note) and key.mark.is_inherited
    ]


def excluded(section: type[Model]) -> Excluded:
    """Return the keys of a class of sections that are not parameters, as `model_dump` takes them."""
    return {key.field: key.excluded for key in _keys(section)}


def _mark(annotation: Any, *metadata: object) -> NoParameter | None:
    """Return the mark of a key, which may be that of each item of a list."""
    if get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        metadata = (*metadata, *more)
    for mark in metadata:
        if isinstance(mark, NoParameter):
            return mark
    return next(filter(None, map(_mark, get_args(annotation))), None)


def _sections(annotation: Any) -> list[type[Model]]:
    return [
        branch
        for branch in branches(annotation)
        if isinstance(branch, type) and issubclass(branch, Model)
    ]


@cache
def parameters_of(section: type[_M]) -> type[_M]:
    """Derive the model of a stage's parameters from a class of options: without the keys that are not parameters.

    The model is a subclass, so that functions take either. Neither the model nor the sections in it have those keys as
    fields any more. A class without such keys is returned as it is.
    """
    if not _keys(section):
        return section
    annotations: dict[str, Any] = {}
    namespace: dict[str, Any] = {
        "__annotations__": annotations,
        "__module__": section.__module__,
        "__doc__": section.__doc__,
    }

    def reduce_to_options(self: _M) -> tuple[Any, ...]:
        """Make pickle name the class of options, since no module has the derived class."""
        return _restore, (section, self.__getstate__())

    namespace["__reduce__"] = reduce_to_options
    for key in _keys(section):
        field = section.model_fields[key.field]
        if key.mark is None:
            annotations[key.field] = reduce(or_, map(_derived, branches(field.annotation)))
            namespace[key.field] = copy(field)
        else:  # pydantic drops a field that a subclass makes a class variable
            annotations[key.field] = ClassVar[Any]
            namespace[key.field] = None if field.is_required() else field.default
    model: type[_M] = new_class(
        section.__name__, (section,), exec_body=lambda body: body.update(namespace)
    )
    return model


def _restore(section: type[_M], state: dict[Any, Any]) -> _M:
    """Return the parameters that `__reduce__` has taken apart."""
    restored: _M = object.__new__(parameters_of(section))
    restored.__setstate__(state)
    return restored


def _derived(branch: Any) -> Any:
    """Return the parameters of a section; any other type of a union as it is."""
    is_section = isinstance(branch, type) and issubclass(branch, Model)
    return parameters_of(branch) if is_section else branch


if TYPE_CHECKING:
    Parameters = Annotated[_M, "without inputs"]
else:

    class Parameters:
        """`Parameters[Denoise]` in an annotation is `parameters_of(Denoise)`."""

        def __class_getitem__(cls, section: type[_M]) -> type[_M]:
            """Return the derived model."""
            return parameters_of(section)
