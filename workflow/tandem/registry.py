"""Names that a configuration may use, and what they refer to; plugins add theirs by the same calls.

    @supervision("listwise")
    def listwise(scores, mask): …

A registry finds the names that Tandem's own modules register, including those of `contrib/`, by reading the decorators
in their sources. It does not import these modules for that, since they may need torch.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, create_model

from tandem.errors import UserError
from tandem.plugins import (
    CONTRIB,
    Plugin,
    load_contrib,
    name_plugin,
    plugin_being_loaded,
)

T = TypeVar("T")
HERE = Path(__file__).parent
# modules that were imported to look up a name or an entry: no `import` in a source names them
LOOKED_UP: set[str] = set()


class Registry(Generic[T]):
    """Map names to what is registered under them.

    Args:
        what: the singular, for messages: `loss`.
        decorator: the name of the decorator in sources.
        package: the module or package below `tandem` whose modules register; imported at the first look-up.
        decides: whether the entries decide results, so that keys contain the plugins that registered them.
        plans: if the entries are functions that plan one stage, their arguments: `ctx, name, entry`.
    """

    def __init__(
        self, what: str, decorator: str, package: str, decides: bool = True, plans: str = ""
    ) -> None:
        self.what, self._decorator, self._package, self._decides = what, decorator, package, decides
        self._plans = plans
        self._entries: dict[str, T] = {}
        self._plugins: dict[str, Plugin] = {}

    def __call__(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an entry under a name; it raises a `UserError` if the name is taken."""

        def register(entry: T) -> T:
            """Store the entry under the name and return it; a plugin's entry gets a check of what it returns."""
            # a plugin may be the first to import a module of Tandem
            is_own = getattr(entry, "__module__", "").startswith("tandem.")
            plugin = None if is_own else plugin_being_loaded()
            if name in self._entries or (plugin and name in self.own_sources):
                raise UserError(f"{self.what} {name} is registered twice; rename one of them")
            if plugin:
                # not by the function below: the check decides no result
                entry = importlib.import_module("tandem.extras.plugin_checks").check_entry(
                    self._decorator, name, entry, self._plans
                )
                self._plugins[name] = plugin
            self._entries[name] = entry
            if self._decides and not is_own:
                name_plugin(name)
            return entry

        return register

    def __getitem__(self, name: str) -> T:
        """Return what is registered under a name; a `UserError` for an unknown one."""
        load_contrib()
        # import no other module: it may need libraries that are not installed
        if name not in self._entries and name in self.own_sources:
            import_module(_module_of(self.own_sources[name]))
        if name not in self._entries:
            raise UserError(
                f'{self.what} {name} is not registered: no plugin has @{self._decorator}("{name}")'
            )
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names, without importing what is registered."""
        load_contrib()
        return iter(dict.fromkeys([*self.own_sources, *self._entries]))

    def plugin(self, name: str) -> Plugin | None:
        """Return the plugin that registered a name; None for Tandem's own."""
        return self._plugins.get(name)

    @cached_property
    def own_sources(self) -> dict[str, Path]:
        """Return the names that Tandem's own modules register, read from their sources, and these sources."""
        path, own = HERE.joinpath(*self._package.split(".")), dict[str, Path]()
        pattern = re.compile(rf'^@{self._decorator}\("([^"]+)"[,)]', re.MULTILINE)
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
            own |= dict.fromkeys(pattern.findall(source.read_text(encoding="utf-8")), source)
        return own | _find_in_contrib().get(self._decorator, {})


@cache
def _find_in_contrib() -> dict[str, dict[str, Path]]:
    """Return decorator → name → source file for what the packages of `contrib/` register, read from these files."""
    names: dict[str, dict[str, Path]] = {}
    for source in sorted(CONTRIB.glob("*/*.py")):
        for decorator, name in re.findall(
            r'^@(\w+)\("([^"]+)"[,)]', source.read_text(encoding="utf-8"), re.MULTILINE
        ):
            names.setdefault(decorator, {})[name] = source
    return names


def import_module(name: str) -> ModuleType:
    """Import a module of Tandem that no source imports by its name, and note that it was needed."""
    LOOKED_UP.add(name)
    return importlib.import_module(name)


def _module_of(source: Path) -> str:
    return ".".join(["tandem", *source.relative_to(HERE).with_suffix("").parts]).removesuffix(
        ".__init__"
    )


def options_of(function: Callable[..., Any]) -> type[BaseModel]:
    """Return the options of a registered function, its keyword-only parameters, as a model: types and defaults."""
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
            fields[name] = (
                annotation,
                ... if parameter.default is parameter.empty else parameter.default,
            )
    # Annotations that are strings are evaluated by pydantic, in the function's module.
    forbid = ConfigDict(extra="forbid")
    return create_model(
        f"{function.__name__}_options", __config__=forbid, __module__=function.__module__, **fields
    )
