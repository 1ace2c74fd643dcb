"""The folder of a configuration's tables, report and other views, and which configuration has written what is in it."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tandem import ROOT
from tandem.errors import UserError
from tandem.plan.context import plans_view
from tandem.store.files import write_text

# in the folder: the files of the configuration that its views are of
_RECORD = "configuration.json"
_OWN_VIEWS = ("tables", "report.html")


def views_folder(files: Iterable[Path]) -> str:
    """Return the folder of the tables and the report of some configuration files: `results`, or a folder in it.

    Names that differ give folders that differ: what cannot stand in a folder's name is written by the bytes' numbers.

    Example:
        mine.yaml → `results/mine`; `a b.yaml` → `results/a~20b`; config.yaml and long.yaml, one laid upon the other →
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
        views: the folder of the current one, which is not named.
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
    """Return the files and folders that tables, the report and what packages add lie in."""
    added = [name for view in plans_view for name in plans_view[view].writes]
    return [*_OWN_VIEWS, *added]


def view_pattern() -> str:
    """Return a regular expression of their files: `(tables/.+|report\\.html|…)`."""
    files = [re.escape(name) if Path(name).suffix else f"{name}/.+" for name in list_views()]
    return f"({'|'.join(files)})"


def check_owner(views: str, files: Sequence[Path]) -> None:
    """Refuse to replace the views of another configuration of the same name, as long as its files exist.

    Files of the same content are one configuration: a copied project may be run by the original's.

    Args:
        views: the folder, as `views_folder` has it.
        files: the configuration's files.
    """
    record = Path(views, _RECORD)
    if not record.is_file() or not any(Path(views, name).exists() for name in list_views()):
        return
    owner = json.loads(record.read_text(encoding="utf-8"))
    own = _recorded(files)
    if owner == own or not all(Path(file).is_file() for file in owner):
        return
    if [Path(file).read_bytes() for file in owner] == [Path(file).read_bytes() for file in own]:
        return
    theirs = " ".join(owner) or "config/config.yaml"
    ours = " ".join(own) or "config/config.yaml"
    raise UserError(
        f"{views} has the tables of {theirs}, which those of {ours} would replace; rename one of them"
    )


def record_owner(views: str, files: Sequence[Path]) -> None:
    """Write which configuration the views of a folder are of."""
    write_text(Path(views, _RECORD), json.dumps(_recorded(files)) + "\n")


def _recorded(files: Sequence[Path]) -> list[str]:
    """Return the files as they lie from the working folder, so that a project can be moved; of the default none."""
    default = (ROOT / "config/config.yaml").resolve()
    paths = [file.resolve() for file in files]
    return [os.path.relpath(path, Path.cwd().resolve()) for path in paths if path != default]
