"""The base of every typed model: of configurations, stage parameters and execution options."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, reduce
from itertools import chain
from operator import not_, or_
from typing import Annotated, Any, Literal, TypeVar, get_args

from annotated_types import GroupedMetadata
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    TypeAdapter,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

Precision = Literal["auto", "fp32", "bf16"]
Analyzer = Literal["default", "porter", "krovetz", "none", "whitespace", "jieba"]
Pooling = Literal["cls", "mean", "max", "weightedmean", "lasttoken"]
PairPooling = Literal[Pooling, "segments", "classifier", "decoder"]


class Model(BaseModel):
    """A record of typed fields. Unknown keys are refused and values never change after validation."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        serialize_by_alias=True,
        protected_namespaces=(),
        defer_build=True,
    )


class Section(Model):
    """A part of what a user writes: types are exact, so that `true` is not 1; an integer is a number too."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


Sections = tuple[type[Section], ...]


class Extensible(Section):
    """A section with several classes, to which plugins add more; a field of the base class may hold any of them."""

    @classmethod
    def list_classes(cls) -> Sections:
        """Return the classes that a field of this class may hold."""
        return (cls,)


class ByType:
    """Validates a section by the registered class of its `type`, so that mistakes name the keys of that class.

    Args:
        classes: type → class.
        prepare: returns the section as a mapping, and refuses a type that is not known.
        others: types of other values that may be written instead.
    """

    def __init__(
        self,
        classes: Mapping[str, type[Section]],
        prepare: Callable[[Any], Any],
        *others: Any,
    ) -> None:
        self._classes, self._prepare, self._others = classes, prepare, others

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(_adapt(*self._others, *self._classes.values()).core_schema)

    def _read(self, value: Any) -> Any:
        return _adapt(*self._classes.values()).validate_python(self._prepare(value))


@cache
def _adapt(*types: Any) -> TypeAdapter[Any]:
    """Return a validator for any of some types."""
    union: Any = reduce(or_, types) if types else Section
    return TypeAdapter(union)


_T = TypeVar("_T")
_S = TypeVar("_S", bound=Section)
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Items = Annotated[tuple[_T, ...], Strict(False)]
"""A list in YAML; a tuple in code, since models never change."""
IfSet = Annotated[_T, Field(exclude_if=not_)]
"""A value that is not part of a key where it is empty."""


def by_value(key: str, *sections: type[_S]) -> dict[str, type[_S]]:
    """Return value → section, for sections that the literal values of a key distinguish."""
    return {
        value: section
        for section in sections
        for value in get_args(section.model_fields[key].annotation)
    }


def problem(message: str) -> PydanticCustomError:
    """Return an error of a validator, to be raised.

    The message continues the dotted path of what is validated: `.list_size is 1, but …` names a key of a section, and
    ` is bm25, but …` the value itself.
    """
    return PydanticCustomError("problem", "{message}", {"message": message})


def not_empty(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse a mapping without entries, as a validator."""
    if not value:
        raise problem(" is empty; name at least one")
    return value


def _as_names(value: Any) -> Any:
    if isinstance(value, str | list | tuple):
        return (value,) if isinstance(value, str) else value
    raise PydanticCustomError("allowed", "string or list", {"allowed": "string or list"})


Names = Annotated[
    Items[str],
    Field(min_length=1),
    BeforeValidator(_as_names, json_schema_input_type=str | list[str]),
]
"""One name or a list of names."""


def _once(values: tuple[_T, ...]) -> tuple[_T, ...]:
    if len(set(values)) < len(values):
        raise problem(" names a value twice; list each once")
    return values


Distinct = Annotated[Items[_T], Field(min_length=1), AfterValidator(_once)]
"""A list of different values, at least one."""


def equals(default: object) -> Callable[[object], bool]:
    """Return a test for `exclude_if`: whether a value is this default, which is left out of keys."""
    return lambda value: value == default


is_one = equals(1)


def add_key(model: type[Model], name: str, annotation: Any, description: str) -> None:
    """Add a key to a model, also where it is a field of other models; unset it is null and in no stage's key."""
    key = Field(None, exclude_if=not_, description=description)
    model.model_fields[name] = FieldInfo.from_annotated_attribute(annotation | None, key)
    if model.__pydantic_complete__:  # else it is built when it is first needed
        model.model_rebuild(force=True)


class _Enumeration:
    """Makes a JSON schema list the values that a choice allows at the time when the schema is written."""

    def __init__(self, choice: "Choice") -> None:
        self._choice = choice

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "enum": self._choice.values}


class Choice(GroupedMetadata):
    """Annotates a text whose allowed values are all `names`; these may grow: a plugin adds its own."""

    def __init__(self, *names: Iterable[str]) -> None:
        self._names = names

    def __iter__(self) -> Iterator[object]:
        yield AfterValidator(self._known)
        yield _Enumeration(self)

    @property
    def values(self) -> list[str]:
        """The values that are allowed now."""
        return list(chain(*self._names))

    def _known(self, value: str) -> str:
        if value not in self.values:
            raise PydanticCustomError("allowed", "{allowed}", {"allowed": ", ".join(self.values)})
        return value
