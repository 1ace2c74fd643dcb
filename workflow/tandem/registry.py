"""Names that a configuration may use, and what stands behind them; plugins add theirs by the same calls.

    @supervision("listwise")
    def listwise(scores, mask): …

A registry knows its names without importing the modules that register them, since those may need torch: it reads the
decorators in their sources. A plugin is a file of the user's that a configuration names under `plugins:`, or a module
that an installed distribution offers under a name: `[project.entry-points."tandem.plugins"]`.
"""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from traceback import extract_tb
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, create_model

from tandem.errors import UserError, shortened

T = TypeVar("T")
HERE = Path(__file__).parent
GROUP = "tandem.plugins"  # of entry points


@dataclass(frozen=True)
class Plugin:
    """Describe a loaded plugin.

    Attributes:
        path: its file; of an installed one its module's.
        digest: the first 16 hex digits of the sha256 of its source: the file, or all modules of an installed package.
        name: of an installed one; empty for a file.
    """

    path: Path
    digest: str
    name: str = ""

    @property
    def source(self) -> str:
        """Return what `load_plugins` takes."""
        return self.name or str(self.path)

    @property
    def label(self) -> str:
        """Return what keys hold: `my_ideas.py@0123456789abcdef`."""
        return f"{self.name or self.path.name}@{self.digest}"


class Registry(Generic[T]):
    """Hold what is registered under names.

    Args:
        what: the singular, for messages: `loss`.
        decorator: the name of the decorator in sources.
        package: the module or package below `tandem` whose modules register; imported at the first look-up.
        decides: whether what is registered decides results, so that its plugin is part of keys.
    """

    def __init__(self, what: str, decorator: str, package: str, decides: bool = True) -> None:
        self.what, self._decorator, self._package, self._decides = what, decorator, package, decides
        self._entries: dict[str, T] = {}
        self._plugins: dict[str, Plugin] = {}

    def __call__(self, name: str) -> Callable[[T], T]:
        """Register what is decorated under a name; a `UserError` if the name is taken."""

        def register(entry: T) -> T:
            """Keep the entry under the name and return it unchanged."""
            is_own = getattr(entry, "__module__", "").startswith("tandem.")  # a plugin may be the first to import it
            plugin = _loading[-1] if _loading and not is_own else None
            if name in self._entries or (plugin and name in self._own):
                raise UserError(f"{self.what} {name} is registered twice; rename one of them")
            self._entries[name] = entry
            if plugin:
                self._plugins[name] = plugin
            if self._decides and not is_own:
                name_plugin(name)
            return entry

        return register

    def __getitem__(self, name: str) -> T:
        """Return what is registered under a name; a KeyError for an unknown one."""
        if name not in self._entries and name in self._own:  # no other module: it may need libraries that are not there
            importlib.import_module(self._own[name])
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names, without importing what is registered."""
        return iter(dict.fromkeys([*self._own, *self._entries]))

    def plugin(self, name: str) -> Plugin | None:
        """Return the plugin that registered a name; None for Tandem's own."""
        return self._plugins.get(name)

    @cached_property
    def _own(self) -> dict[str, str]:
        """Return the names that Tandem's own modules register, read from their sources, and these modules."""
        path, own = HERE.joinpath(*self._package.split(".")), dict[str, str]()
        pattern = re.compile(rf'^@{self._decorator}\("([^"]+)"\)', re.MULTILINE)
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
            module = ".".join(["tandem", *source.relative_to(HERE).with_suffix("").parts]).removesuffix(".__init__")
            own |= dict.fromkeys(pattern.findall(source.read_text(encoding="utf-8")), module)
        return own


_loading: list[Plugin] = []  # the plugin whose file is being imported
_loaded: dict[Path | str, Plugin] = {}  # by its file, or its name where it is installed
_named: dict[str, set[Plugin]] = {}  # every name that plugins have registered, each for something else


def load_plugins(names: Iterable[str]) -> list[Plugin]:
    """Import the user's own files, and installed plugins by their names, each once.

    Raises:
        UserError: one does not exist, or its import fails; names the file and the line.
    """
    return [_load_file(Path(name)) if is_file_name(name) else _load_installed(name) for name in names]


def is_file_name(plugin: str) -> bool:
    """Return whether an entry of `plugins:` is a file rather than the name of an installed plugin."""
    return plugin.endswith(".py") or "/" in plugin


def _load_installed(name: str) -> Plugin:
    if name in _loaded:
        return _loaded[name]
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in offered:
        installed = f"installed plugins ({', '.join(sorted(offered)) or 'none'})"
        raise UserError(f"plugins: {shortened(repr(name))} is not known; allowed: Python files, {installed}")
    module = offered[name].module
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        raise UserError(f"plugins: {name}: its module {module} is not installed")
    path, digest = Path(spec.origin), hashlib.sha256()
    # Any module of the package may decide what the named one registers.
    for source in sorted(path.parent.rglob("*.py")) if spec.submodule_search_locations else [path]:
        digest.update(str(source.relative_to(path.parent)).encode() + b"\0" + source.read_bytes())
    plugin = Plugin(path, digest.hexdigest()[:16], name)
    with _naming_errors(name, path, plugin):
        importlib.import_module(module)
    return _loaded.setdefault(name, plugin)


def _load_file(path: Path) -> Plugin:
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
    with _naming_errors(str(path), where, plugin):
        spec.loader.exec_module(module)
    return _loaded.setdefault(where, plugin)


@contextmanager
def _naming_errors(shown: str, path: Path, plugin: Plugin) -> Iterator[None]:
    """Note that a plugin is being loaded; an error of its import names it, and its line."""
    _loading.append(plugin)
    try:
        yield
    except UserError as error:
        raise UserError(f"plugins: {shown}: {error}") from None
    except Exception as error:
        raise UserError(f"plugins: {shown}{line_of(error, path)}: {type(error).__name__}: {error}") from None
    finally:
        _loading.pop()


def line_of(error: Exception, path: Path) -> str:
    """`:<line>` of the innermost frame of an error that is in a file; of a syntax error its own line."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


def options_of(function: Callable[..., Any]) -> type[BaseModel]:
    """Return the options of a registered function, its keyword-only parameters, as a model: types and defaults."""
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
            fields[name] = annotation, ... if parameter.default is parameter.empty else parameter.default
    # Annotations that are strings are evaluated by pydantic, in the function's module.
    forbid = ConfigDict(extra="forbid")
    return create_model(f"{function.__name__}_options", __config__=forbid, __module__=function.__module__, **fields)


def name_plugin(name: str) -> None:
    """Note that the plugin that is being loaded, if any, registers a name."""
    if _loading:
        _named.setdefault(name, set()).add(_loading[-1])


def plugins_behind(values: Iterable[object]) -> list[Plugin]:
    """Return the plugins that registered any of some names: the key of a stage that uses them has their digests."""
    names = {value for value in values if isinstance(value, str)} & _named.keys()
    return sorted({plugin for name in names for plugin in _named[name]}, key=lambda plugin: plugin.label)
