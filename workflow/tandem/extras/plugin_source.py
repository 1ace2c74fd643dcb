"""Import a plugin's file from exactly the bytes whose digest was taken."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from tandem.errors import UserError


class _BytesLoader(SourceFileLoader):
    """Loads given bytes as the source of a file.

    Python itself would run earlier compiled code if the file's size and time are those of the compiled one.
    """

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def path_stats(self, path: str) -> dict[str, int]:
        """Raise an `OSError`, so that Python knows no time by which it would choose compiled code."""
        raise OSError(f"{path}: is loaded from memory")

    def get_data(self, path: str) -> bytes:
        """Return the source."""
        return self._source


def make_plugin_module(name: str, path: Path, source: bytes) -> ModuleType:
    """Return the module of a plugin's file, known to Python and not yet run.

    Raises:
        UserError: it is not a Python file.
    """
    if path.suffix != ".py":
        raise UserError(f"plugins: {path.name} is not a Python file; its name must end in .py")
    spec = spec_from_loader(name, _BytesLoader(name, str(path), source))
    assert spec is not None
    spec.has_location = True
    sys.modules[name] = module_from_spec(spec)
    return sys.modules[name]
