"""Find the plugin that an installed distribution offers under a name, as an entry point of `tandem.plugins`."""

import hashlib
import importlib.util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from tandem.errors import UserError, shortened
from tandem.plugins import GROUP, Plugin


def find_installed_plugin(name: str) -> tuple[Plugin, str]:
    """Return the plugin of a name, with the digest of all modules of its package, and the module that registers it.

    Raises:
        UserError: no distribution offers the name, several do, or the module does not exist.
    """
    module = _find_entry(name).module
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        problem = "in a package without __init__.py; add one" if spec else "not installed"
        raise UserError(f"plugins: {name}: its module {module} is {problem}")
    path, digest = Path(spec.origin), hashlib.sha256()
    # Any module of the package may decide what the named one registers.
    for source in sorted(path.parent.rglob("*.py")) if spec.submodule_search_locations else [path]:
        digest.update(str(source.relative_to(path.parent)).encode() + b"\0" + source.read_bytes())
    return Plugin(path, digest.hexdigest()[:16], name), module


def _find_entry(name: str) -> EntryPoint:
    offered = entry_points(group=GROUP)
    entries = list(offered.select(name=name))
    if not entries:
        installed = f"installed plugins ({', '.join(sorted(offered.names)) or 'none'})"
        raise UserError(
            f"plugins: {shortened(repr(name))} is not known; allowed: Python files, {installed}"
        )
    if len({entry.value for entry in entries}) > 1:
        owners = sorted(
            f"{entry.dist.name} ({entry.value})" if entry.dist else entry.value for entry in entries
        )
        raise UserError(
            f"plugins: {name} is offered by {' and by '.join(owners)}; uninstall all but one"
        )
    return entries[0]
