"""The Python files of installed packages, found without importing any of them."""

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tandem.errors import UserError

# Tests, copies of other packages and generated parts say nothing about the package's own interface.
SKIPPED = frozenset(
    {"tests", "test", "testing", "benchmarks", "externals", "site-packages", "__pycache__"}
    | {"_vendor", "_vendored", "vendor", "_dist_ver"}
)


@dataclass(frozen=True, order=True)
class Module:
    """A module's dotted name and its file."""

    name: str
    path: Path


def find_modules(packages: Iterable[str]) -> list[Module]:
    """Modules of all packages, sorted by dotted name: neither the file system nor the packages' order shows.

    Raises:
        UserError: a package is not installed, or is no Python source.
    """
    found = {module for package in set(packages) for module in _modules_of(package)}
    return sorted(found)


def _modules_of(package: str) -> list[Module]:
    """Modules of one top-level package, or the module itself if it is a single file."""
    # Only a dotted name would make find_spec import something.
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None:
        raise UserError(f"packages: {package!r} is not installed; install it or leave it out")
    if spec.submodule_search_locations is None:
        if not spec.origin or not spec.origin.endswith(".py"):
            raise UserError(f"packages: {package!r} is not written in Python; leave it out")
        return [Module(package, Path(spec.origin))]
    roots = [Path(location) for location in spec.submodule_search_locations]
    return [
        Module(_dotted(package, root, path), path) for root in roots for path in root.rglob("*.py") if _told(root, path)
    ]


def _told(root: Path, path: Path) -> bool:
    """Whether a file belongs to the package's own interface."""
    inside = path.relative_to(root)
    return SKIPPED.isdisjoint(inside.parts[:-1]) and not path.name.startswith("test_") and path.name != "conftest.py"


def _dotted(package: str, root: Path, path: Path) -> str:
    """`numpy.linalg` of numpy/linalg/__init__.py, `numpy.linalg._linalg` of numpy/linalg/_linalg.py."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))
