"""The folder of a configuration's tables, report and other views."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from tandem import ROOT
from tandem.plan.context import plans_view

_OWN_VIEWS = ("tables", "report.html")


def views_folder(files: Iterable[Path]) -> str:
    """Return the folder of the tables and the report of some configuration files: `results`, or a folder in it.

    Different names give different folders: characters that a folder's name cannot have are written as numbers of bytes.

    Example:
        mine.yaml → `results/mine`; `a b.yaml` → `results/a~20b`; config.yaml and long.yaml, one merged over the other →
        `results/long`.
    """
    names = [_folder_name(file.stem) for file in files if file.stem != "config"]
    return f"results/{'+'.join(names)}" if names else "results"


def _folder_name(stem: str) -> str:
    """Encode a file's name so that no other has the same: letters of any script stay, `+` and `~` have a meaning."""
    unsafe = r"^[.-]|[^\w.-]"  # a first dot hides a folder, a first hyphen makes it a flag

    def encode(match: re.Match[str]) -> str:
        return "".join(f"~{byte:02X}" for byte in os.fsencode(match[0]))

    return re.sub(unsafe, encode, stem)


def name_configurations(configurations: Iterable[str], views: str) -> str:
    """Return `; it belongs to --configfile config/fusion.yaml`, to end a line about what another configuration has.

    Args:
        configurations: shipped ones, each as `--configfile` takes its files.
        views: the folder of the current configuration, which is not named.
    """
    commands = []
    for configuration in configurations:
        files = configuration.split()
        if views_folder(map(Path, files)) == views:
            continue
        paths = [file if Path(file).is_file() else str(ROOT / file) for file in files]
        commands.append(" ".join(["--configfile", *paths]))
    return f"; it belongs to {', or '.join(commands)}" if commands else ""


def list_views() -> list[str]:
    """Return the files and folders that contain the tables, the report and what packages add."""
    added = [name for view in plans_view for name in plans_view[view].writes]
    return [*_OWN_VIEWS, *added]


def view_pattern() -> str:
    """Return a regular expression of their files: `(tables/.+|report\\.html|…)`."""
    files = [re.escape(name) if Path(name).suffix else f"{name}/.+" for name in list_views()]
    return f"({'|'.join(files)})"
