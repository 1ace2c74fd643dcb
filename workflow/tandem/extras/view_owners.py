"""Which configuration has written the views in a folder: another one of the same name must not replace them."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tandem import ROOT
from tandem.errors import UserError
from tandem.plan.views import list_views
from tandem.store.files import write_text

# in the folder: the files of the configuration whose views these are
OWNER_FILE = "configuration.json"


def check_owner(views: str, files: Sequence[Path]) -> None:
    """Refuse to replace the views of another configuration of the same name, as long as its files exist.

    Files of the same content are one configuration: a copied project may be run by the original's files.

    Args:
        views: the folder, as `views_folder` returns it.
        files: the configuration's files.
    """
    record = Path(views, OWNER_FILE)
    if not record.is_file() or not any(Path(views, name).exists() for name in list_views()):
        return
    owner = _read_owner(record)
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


def _read_owner(record: Path) -> list[str]:
    """Return the files of the configuration whose views a folder holds; a `UserError` if the record is damaged."""
    try:
        owner = json.loads(record.read_text(encoding="utf-8"))
    except ValueError:
        owner = None
    if not isinstance(owner, list) or not all(isinstance(file, str) for file in owner):
        raise UserError(f"{record}: is not a list of a configuration's files; delete it")
    return owner


def record_owner(views: str, files: Sequence[Path]) -> None:
    """Record which configuration the views of a folder belong to."""
    write_text(Path(views, OWNER_FILE), json.dumps(_recorded(files)) + "\n")


def _recorded(files: Sequence[Path]) -> list[str]:
    """Return the files relative to the working folder, so that a project can be moved; none for the default."""
    default = (ROOT / "config/config.yaml").resolve()
    paths = [file.resolve() for file in files]
    return [os.path.relpath(path, Path.cwd().resolve()) for path in paths if path != default]
