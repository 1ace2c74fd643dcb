"""Encoders of the hub: whether they are here, how large they are, and at which commit a branch stands."""

import re
from functools import partial
from pathlib import Path

from tandem.plan.graph import Stage
from tandem.provenance.elsewhere import Item

COMMIT = re.compile(r"[0-9a-f]{40}")
NEEDED = ("config.json", "model.safetensors")  # of an encoder, in the cache


def of_hub(stage: Stage, catalogued: bool) -> Item:
    """An encoder of the hub at its revision.

    Args:
        stage: `encoder`.
        catalogued: whether the configuration has an entry of its name.
    """
    name, revision = stage.values["name"], stage.values["revision"]
    commit, size = in_cache(name, revision), None
    here = commit is not None
    if commit is None:
        commit, size = asked(name, revision)
    pin = partial(pinned, stage, catalogued)
    note = pin(commit) if commit else ""
    return Item("encoder", stage.name, f"{name}@{revision}", size, here, lambda: pin(bring(name, revision)), note)


def bring(name: str, revision: str) -> str:
    """Fetch an encoder into the hub's cache; the commit that it was."""
    from tandem.models.hub import download

    return download(name, revision)[1]


def pinned(stage: Stage, catalogued: bool, commit: str) -> str:
    """What to write into a configuration so that an encoder stays as it is; empty where its revision is a commit.

    A branch is another model tomorrow, under the same key. The commit gives the encoder, and all that is made from it,
    other keys.
    """
    name, revision = stage.values["name"], stage.values["revision"]
    if COMMIT.fullmatch(revision) or not COMMIT.fullmatch(commit):
        return ""
    entry = f"revision: {commit}" if catalogued else f"source: hub, name: {name}, revision: {commit}"
    whole = "" if catalogued else f", and encoder: {stage.name}"
    return f"{revision} may move; to pin what it is now: encoders: {{{stage.name}: {{{entry}}}}}{whole}"


def in_cache(name: str, revision: str) -> str | None:
    """The commit at which an encoder's weights and configuration are in the hub's cache; None where they are not."""
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(name, file, revision=revision) for file in NEEDED]
    folders = {Path(path).parent.name for path in found if isinstance(path, str)}
    return folders.pop() if len(folders) == 1 and all(isinstance(path, str) for path in found) else None


def asked(name: str, revision: str) -> tuple[str | None, int | None]:
    """The commit that a revision is, and the bytes that `models.encoder.download` would fetch.

    None where the hub does not say, or cannot be asked.
    """
    from fnmatch import fnmatchcase

    from huggingface_hub import HfApi

    from tandem.models.hub import FILES

    try:
        told = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=20)
    except Exception:  # whatever its HTTP library raises: both are only told
        return None, None
    found = [one.size for one in told.siblings or [] if any(fnmatchcase(one.rfilename, pattern) for pattern in FILES)]
    sizes = [size for size in found if size is not None]
    return told.sha, sum(sizes) if sizes and len(sizes) == len(found) else None
