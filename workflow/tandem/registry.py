"""Names that a configuration may use, and what stands behind them; plugins add theirs by the same calls.

    @supervision("listwise")
    def listwise(scores, mask): …

A registry knows its names without importing the modules that register them, since those may need torch: it reads the
decorators in their sources. A plugin is a file of the user's that a configuration names under `plugins:`.
"""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, create_model

from tandem.errors import UserError

T = TypeVar("T")
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Plugin:
    """A loaded plugin: its file and the first 16 hex digits of its source's sha256."""

    path: Path
    digest: str


class Registry(Generic[T]):
    """What is registered under names.

    Args:
        what: the singular, for messages: `loss`.
        decorator: the name of the decorator in sources.
        package: the module or package below `tandem` whose modules register; imported at the first look-up.
    """

    def __init__(self, what: str, decorator: str, package: str) -> None:
        self.what, self._decorator, self._package = what, decorator, package
        self._entries: dict[str, T] = {}
        self._plugins: dict[str, Plugin] = {}
        self._own: list[str] | None = None

    def __call__(self, name: str) -> Callable[[T], T]:
        """Register what is decorated under a name; a `UserError` if the name is taken."""

        def register(entry: T) -> T:
            if name in self._entries or (_loading and name in self.own()):
                raise UserError(f"{self.what} {name} is registered twice; rename one of them")
            self._entries[name] = entry
            if _loading:
                self._plugins[name] = _named[name] = _loading[-1]
            return entry

        return register

    def __getitem__(self, name: str) -> T:
        """What is registered under a name; a KeyError for an unknown one."""
        if name not in self._entries:  # only its own module: others may need libraries that look for a home
            for source, module in zip(self._sources, self._modules(), strict=True):
                if name in _registered(self._decorator, (source,)):
                    importlib.import_module(module)
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """The names, without importing what is registered."""
        return iter(dict.fromkeys([*self.own(), *self._entries]))

    def __contains__(self, name: object) -> bool:
        """Whether a name is registered."""
        return name in list(self)

    def own(self) -> tuple[str, ...]:
        """The names that Tandem's own modules register, read from their sources."""
        return _registered(self._decorator, self._sources)

    def plugin(self, name: str) -> Plugin | None:
        """The plugin that registered a name; None for Tandem's own."""
        return self._plugins.get(name)

    @cached_property
    def _sources(self) -> tuple[Path, ...]:
        path = HERE.joinpath(*self._package.split("."))
        return tuple(sorted(path.rglob("*.py"))) if path.is_dir() else (path.with_suffix(".py"),)

    def _modules(self) -> list[str]:
        names = [".".join(["tandem", *s.relative_to(HERE).with_suffix("").parts]) for s in self._sources]
        return [name.removesuffix(".__init__") for name in names]


@cache
def _registered(decorator: str, sources: tuple[Path, ...]) -> tuple[str, ...]:
    """The names that sources register by a decorator; read once."""
    pattern = re.compile(rf'^@{decorator}\("([^"]+)"\)', re.MULTILINE)
    return tuple(name for source in sources for name in pattern.findall(source.read_text(encoding="utf-8")))


_loading: list[Plugin] = []  # the plugin whose file is being imported
_loaded: dict[Path, Plugin] = {}
_named: dict[str, Plugin] = {}  # every name that a plugin has registered


def load_plugins(paths: Iterable[str]) -> list[Plugin]:
    """Import the user's own files, each once.

    Raises:
        UserError: a file does not exist, or its import fails; names the file and the line.
    """
    return [_load(Path(path)) for path in paths]


def _load(path: Path) -> Plugin:
    where = path.expanduser().resolve()
    if where in _loaded:
        return _loaded[where]
    if not where.is_file():
        raise UserError(f"plugins: {path} does not exist; allowed: Python files")
    plugin = Plugin(where, hashlib.sha256(where.read_bytes()).hexdigest()[:16])
    name = f"tandem_plugin_{plugin.digest}"
    spec = importlib.util.spec_from_file_location(name, where)
    if spec is None or spec.loader is None:
        raise UserError(f"plugins: {path} is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _loading.append(plugin)
    try:
        spec.loader.exec_module(module)
    except UserError as error:
        raise UserError(f"plugins: {path}: {error}") from None
    except Exception as error:
        raise UserError(f"plugins: {path}{_line(error, where)}: {type(error).__name__}: {error}") from None
    finally:
        _loading.pop()
    return _loaded.setdefault(where, plugin)


def _line(error: BaseException, path: Path) -> str:
    """`:<line>` of the innermost frame of an error that is in a file; of a syntax error its own line."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    lines, at = [], error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == str(path):
            lines.append(at.tb_lineno)
        at = at.tb_next
    return f":{lines[-1]}" if lines else ""


def _only(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function of the same module with one of its annotations."""
    copy = types.FunctionType(function.__code__, function.__globals__)
    copy.__annotations__ = {name: function.__annotations__[name]}
    return copy


def options_of(function: Callable[..., Any]) -> type[BaseModel]:
    """The options of a registered function, its keyword-only parameters, as a model: types and defaults."""
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
            if isinstance(annotation, str):  # others may name types that only a type checker imports
                annotation = inspect.get_annotations(_only(function, name), eval_str=True)[name]
            fields[name] = (annotation, ... if parameter.default is parameter.empty else parameter.default)
    return create_model(f"{function.__name__}_options", __config__=ConfigDict(extra="forbid"), **fields)


def name_plugin(name: str) -> None:
    """Note that the plugin that is being loaded, if any, registers a name."""
    if _loading:
        _named[name] = _loading[-1]


def plugins_behind(values: Iterable[object]) -> list[Plugin]:
    """The plugins that registered any of some names: their digests are part of the key of a stage that uses them."""
    plugins = {_named[value] for value in values if isinstance(value, str) and value in _named}
    return sorted(plugins, key=lambda plugin: plugin.path.name)
