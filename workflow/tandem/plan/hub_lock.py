"""The lock of the hub's models: the commit that a branch stands for in this folder, whatever it is on the hub today.

`tandem prefetch` writes it beside results/, and every plan made here reads it. It belongs under version control, with
the configuration.
"""

from pathlib import Path

import yaml

from tandem.config.loading import read_own
from tandem.errors import UserError
from tandem.models.hub import COMMIT
from tandem.store.files import write_text

LOCK = "hub.lock.yaml"
HEAD = "# Written by `tandem prefetch`: model of the hub → revision → commit. A line that is deleted is pinned anew.\n"

Commits = dict[str, dict[str, str]]  # model → revision → commit


def pinned(name: str, revision: str | None) -> str | None:
    """A revision of a hub model as the lock has it, else itself; without one, of the branch `main`."""
    return read_lock().get(name, {}).get(revision or "main", revision)


def read_lock() -> Commits:
    """The commits of the working directory's lock; empty without one.

    Raises:
        UserError: a lock of another form.
    """
    path = Path.cwd() / LOCK
    lock = read_own(path) if path.is_file() else {}
    commits = [commit for of in lock.values() for commit in of.values()] if _is_lock(lock) else [None]
    if not all(COMMIT.fullmatch(str(commit)) for commit in commits):
        raise UserError(f"{path}: is no lock (model: {{revision: commit of 40 hex digits}}); mend or delete it")
    return dict(lock)


def _is_lock(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(revisions, dict) for revisions in value.values())


def write_lock(commits: Commits) -> None:
    """Add commits to the lock."""
    lock = read_lock()
    lock = {name: lock.get(name, {}) | commits.get(name, {}) for name in sorted({*lock, *commits})}
    write_text(Path.cwd() / LOCK, HEAD + yaml.safe_dump(lock))
