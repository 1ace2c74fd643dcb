"""Plugins: modules that add names to configurations and command lines; one loader loads their three sorts.

- A file of the user's, or a module that an installed distribution offers under a name
  (`[project.entry-points."tandem.plugins"]`): a configuration names them under `plugins:`.
- A package of Tandem's own: a folder of `contrib/` with a module `plugin.py`. It is imported as an installed one is,
  but at the first look-up of a name. Nothing else refers to it: without its folder everything else works.

The key of a stage that uses the user's plugins has a digest of their sources. A package of `contrib/` changes with
Tandem; the version of its stage is raised when the stage's results change.
"""

import hashlib
import importlib
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from traceback import extract_tb
from typing import TypeVar

from tandem.errors import UserError, nearest

T = TypeVar("T")
GROUP = "tandem.plugins"  # of entry points
CONTRIB = Path(__file__).parent / "contrib"
DECLARATIONS = "plugin.py"  # the module of a package of `contrib/` that registers what it adds


@dataclass(frozen=True)
class Plugin:
    """Describe a loaded plugin.

    Attributes:
        path: its file; for an installed plugin, the file of its module.
        digest: the first 16 hex digits of the sha256 of its source: the file, or all modules of an installed package;
            empty for a package of `contrib/`, which is in no key.
        name: the name of an installed plugin or of a package of `contrib/`; empty for a file.
    """

    path: Path
    digest: str
    name: str = ""

    @property
    def source(self) -> str:
        """Return its name or path, as `load_plugins` takes it."""
        return self.name or str(self.path)

    @property
    def label(self) -> str:
        """Return it as stages' keys have it: `my_ideas.py@0123456789abcdef`."""
        return f"{self.name or self.path.name}@{self.digest}"


_loading: list[Plugin] = []  # the plugin whose file is being imported
_loaded: dict[Path | str, Plugin] = {}  # by its file, or by its name if it is installed
# each name that plugins have registered → these plugins, each of which may mean something else by it
_named: dict[str, set[Plugin]] = {}
_contrib: list[Plugin] = []  # the packages of `contrib/`, once they are loaded
_contrib_is_loaded = False
_core_is_declared = False  # until then, modules that `contrib/` imports may be half imported


def load_plugins(names: Iterable[str]) -> list[Plugin]:
    """Import the user's own files, and installed plugins by their names, each once, after the packages of `contrib/`.

    Raises:
        UserError: one does not exist, or its import fails; names the file and the line.
    """
    load_contrib()
    return [
        _load_file(Path(name)) if is_file_name(name) else _load_installed(name) for name in names
    ]


def load_installed_plugins() -> list[UserError]:
    """Import every plugin that an installed distribution offers; return the errors of those that do not load."""
    errors = []
    for name in sorted({entry.name for entry in entry_points(group=GROUP)}):
        try:
            load_plugins([name])
        except UserError as error:
            errors.append(error)
    return errors


def load_contrib() -> list[Plugin]:
    """Import the packages of `contrib/`, each once, in the order of their names.

    During the core's import none is imported: a look-up finds only what the core has registered so far. While the
    packages are imported, it finds theirs so far, too.
    """
    global _contrib_is_loaded
    if _contrib_is_loaded or not _core_is_declared:
        return _contrib
    _contrib_is_loaded = True
    for path in sorted(CONTRIB.glob(f"*/{DECLARATIONS}")):
        name = path.parent.name
        _contrib.append(_import(Plugin(path, "", name), name, f"tandem.contrib.{name}.{path.stem}"))
    return _contrib


def find_rules() -> list[str]:
    """Return the files of rules of the packages of `contrib/` and of the installed plugins that are loaded."""
    own = sorted(CONTRIB.glob("*/rules.smk"))
    installed = [plugin.path.parent / "rules.smk" for plugin in _loaded.values() if plugin.name]
    return [str(path) for path in (*own, *installed) if path.is_file()]


def end_core() -> None:
    """Note that the core has made all its declarations: from now on a look-up loads the packages of `contrib/`."""
    global _core_is_declared
    _core_is_declared = True


def is_file_name(plugin: str) -> bool:
    """Return whether an entry of `plugins:` is a file rather than the name of an installed plugin."""
    return plugin.endswith(".py") or "/" in plugin


def _load_installed(name: str) -> Plugin:
    if name in _loaded:
        return _loaded[name]
    plugin, module = importlib.import_module(
        "tandem.extras.installed_plugins"
    ).find_installed_plugin(name)
    return _loaded.setdefault(name, _import(plugin, name, module))


def _load_file(path: Path) -> Plugin:
    where = path.expanduser().resolve()
    if where in _loaded:
        return _loaded[where]
    if not where.is_file():
        raise UserError(f"plugins: {path} does not exist; allowed: Python files")
    source = where.read_bytes()
    plugin = Plugin(where, hashlib.sha256(source).hexdigest()[:16])
    name = f"tandem_plugin_{plugin.digest}"
    module = importlib.import_module("tandem.extras.plugin_source").make_plugin_module(
        name, where, source
    )
    with _naming_errors(str(path), plugin):
        module.__loader__.exec_module(module)
    return _loaded.setdefault(where, plugin)


def _import(plugin: Plugin, shown: str, module: str) -> Plugin:
    with _naming_errors(shown, plugin):
        importlib.import_module(module)
    return plugin


@contextmanager
def _naming_errors(shown: str, plugin: Plugin) -> Iterator[None]:
    """Note that a plugin is being loaded; add its name and the line to an error of its import."""
    _loading.append(plugin)
    try:
        yield
    except UserError as error:
        raise UserError(f"plugins: {shown}: {error}") from None
    except (Exception, SystemExit) as error:
        place = f"{shown}{line_of(error, plugin.path)}"
        said = importlib.import_module("tandem.extras.plugin_checks").describe_import_error(
            error, plugin.path
        )
        raise UserError(f"plugins: {place}: {said}") from None
    finally:
        _loading.pop()


def line_of(error: BaseException, path: Path) -> str:
    """Return `:<line>` of an error's innermost frame in a file; for a syntax error, the line that it names."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}" if error.lineno else ""
    lines = [
        frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    return f":{lines[-1]}" if lines else ""


def list_loaded_plugins() -> list[Plugin]:
    """Return the user's plugins that are loaded."""
    return list(_loaded.values())


def plugin_being_loaded() -> Plugin | None:
    """Return the user's plugin that is being imported; None outside of one, and in a package of `contrib/`."""
    return _loading[-1] if _loading and _loading[-1].digest else None


def name_plugin(name: str) -> None:
    """Note that the plugin that is being loaded, if any, registers a name."""
    if plugin := plugin_being_loaded():
        _named.setdefault(name, set()).add(plugin)


def plugins_behind(values: Iterable[object]) -> list[Plugin]:
    """Return the plugins that registered any of these values; the key of a stage that uses these has their digests."""
    if not _named:  # a plan without plugins need not read the values of its many stages
        return []
    names = {value for value in values if isinstance(value, str)} & _named.keys()
    return sorted(
        {plugin for name in names for plugin in _named[name]}, key=lambda plugin: plugin.label
    )


class Declarations(MutableMapping[str, T]):
    """Map names to declarations, in the order of their registration; plugins add theirs.

    Those of the packages of `contrib/` are present from the first look-up on. With `keys`, other names are refused,
    since nothing would look them up.
    """

    def __init__(self, entries: Iterable[tuple[str, T]] = (), keys: tuple[str, ...] = ()) -> None:
        self._entries = dict(entries)
        self._keys = keys
        self._owners: dict[str, Plugin] = {}  # the user's plugin that has registered a name

    def __getitem__(self, name: str) -> T:
        load_contrib()
        return self._entries[name]

    def __setitem__(self, name: str, declaration: T) -> None:
        if self._keys and name not in self._keys:
            raise UserError(f"{name} is not a key with code of its own{nearest(name, self._keys)}")
        plugin = plugin_being_loaded()
        if plugin and self._owners.setdefault(name, plugin) != plugin:
            raise UserError(f"{name} is registered twice; rename one of them")
        self._entries[name] = declaration
        name_plugin(name)

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        load_contrib()
        return iter(self._entries)

    def __len__(self) -> int:
        load_contrib()
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        load_contrib()
        return name in self._entries
