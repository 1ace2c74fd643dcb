"""Where another process finds this package: a checkout through PYTHONPATH, an installation by itself."""

import os
from collections.abc import Mapping
from pathlib import Path

from tandem import CHECKOUT, PACKAGE

# a folder with a link to an installed package and nothing else
_LINK_FOLDER = Path(".snakemake/tandem/library")


def find_library_folder(same_python: bool = True) -> Path | None:
    """Return the folder that PYTHONPATH must name for a process to import this package; None if it needs none.

    A Python of conda's or a container's does not see where pip has installed the package. It gets a folder that holds
    only a link to the package: the place of installation also has other packages, for another Python.
    """
    if CHECKOUT:
        return PACKAGE.parent
    if same_python:
        return None
    link = _LINK_FOLDER.absolute() / PACKAGE.name
    if not link.is_symlink() or link.resolve() != PACKAGE.resolve():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(PACKAGE)
    return link.parent


def with_library(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that imports this package, in this Python."""
    folder = find_library_folder()
    if folder is None:
        return dict(environment)
    path = os.pathsep.join(filter(None, [str(folder), environment.get("PYTHONPATH")]))
    return {**environment, "PYTHONPATH": path}


def for_stages(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of stages as rules set it: `PYTHONPATH` names this package's folder and nothing else."""
    folder = find_library_folder()
    return {**environment, "PYTHONPATH": str(folder)} if folder else dict(environment)
