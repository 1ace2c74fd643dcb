"""Decide how an encoder makes a text's vector: by its entry's own keys, then by its files, and never by a guess.

Also decide which files these are: for a branch of the hub, `hub.lock.yaml` has the commit that is used in this folder,
even if the branch has moved on. `tandem prefetch` writes the lock next to results/, and every plan made here reads it.
It belongs under version control, with the configuration.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

from tandem.config.base import Section
from tandem.config.encoders import START_BLOCKS, Encoder, MadeEncoder, Published, PublishedEncoder
from tandem.config.merging import read_own
from tandem.config.representations import REPRESENTATIONS, Representation
from tandem.errors import UserError, nearest
from tandem.models.described import describe_towers
from tandem.models.folders import check_tokenizer
from tandem.models.hub import COMMIT_PATTERN, fetch_description, find_package
from tandem.plan.context import Context, json_of
from tandem.stages.base import Json

E = TypeVar("E", bound=Published)
Commits = dict[str, dict[str, str]]  # of models of the hub: model → revision → commit
LOCK = "hub.lock.yaml"
HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# values of a model that is trained, if neither entries nor files state them
UNDESCRIBED: Json = {"pooling": "cls", "normalize": False, "temperature": 1.0}
TOWERS = (*UNDESCRIBED, "dim", "dense", "representation")


def made_encoder(ctx: Context, name: str) -> MadeEncoder | None:
    """Return the entry of an encoder that stages make; None for any other."""
    entry = ctx.settings.encoders.get(name)
    return entry if isinstance(entry, MadeEncoder) else None


def towers(ctx: Context, name: str) -> Json:
    """Return how a text's vector is computed, as far as an encoder's entry, or what it starts from, states it.

    A re-ranker keeps its own head, which itself decides what it reads: pooling `classifier`.
    """
    if name in ctx.settings.rerankers:
        return {"pooling": "classifier"}
    if block := find_start_block(ctx, name):
        return {"pooling": START_BLOCKS[block].pooling}
    usual: Json = {}
    entry = made_encoder(ctx, name)
    if entry:
        usual = {key: getattr(entry, f"usual_{key}") for key in UNDESCRIBED}
    return usual | _own_towers(ctx, name)


def find_start_block(ctx: Context, name: str) -> str | None:
    """Return the block of `START_BLOCKS` with an entry of this name; None if another block, or no block, has it."""
    settings = ctx.settings
    if any(name in block for block in (settings.models, settings.encoders, settings.rerankers)):
        return None
    return next((block for block in START_BLOCKS if name in settings.entries(block, Section)), None)


def described_representation(towers: Json) -> Representation:
    """Return the representation in an encoder's description; single vectors if it has none."""
    described = towers.get("representation", {})
    return REPRESENTATIONS[described.get("type", "single")].model_validate(described)


def with_usual(described: Json, chosen: Representation | None) -> Json:
    """Return an encoder's description, overridden by the usual settings of `chosen` if this is of another type."""
    if chosen is None or chosen.type == described_representation(described).type:
        return described
    return described | chosen.usual


def _own_towers(ctx: Context, name: str, where: str = "encoder") -> Json:
    """Return the settings of an entry's own keys, then of a published encoder's files or of what it starts from."""
    entry = made_encoder(ctx, name) or published_entry(ctx.settings.encoders, name, where)
    if isinstance(entry, PublishedEncoder):
        return chosen_by(entry, described_by(entry))
    if not entry.start:
        return chosen_by(entry, {})
    return chosen_by(entry, _own_towers(ctx, entry.start, f"encoders.{name}.start"))


def chosen_by(entry: Encoder, described: Json) -> Json:
    """Return an encoder's description, overridden by the entry's own keys."""
    own = {
        key: value for key, value in json_of(entry).items() if key in TOWERS and value is not None
    }
    described = with_usual(described, getattr(entry, "representation", None))
    if own.get("normalize") is False:
        # the temperature that is described is one for cosines
        described = {key: value for key, value in described.items() if key != "temperature"}
    if isinstance(entry, PublishedEncoder):
        own["prompts"] = entry.prompts.over(described.get("prompts", {}))
    return described | own


def described_by(entry: PublishedEncoder) -> Json:
    """Return how a published encoder computes vectors, by its own files.

    Files of the hub are not read if the entry has `pooling`: the plan is then the same on every machine.

    Raises:
        UserError: a folder has no tokenizer; or the entry has no `pooling`, and the files are not on this machine or
            describe a computation that does not exist here.
    """
    if entry.source == "hub" and entry.pooling:
        return {}
    if entry.source == "folder":
        check_tokenizer(folder_of(entry))
    try:
        if entry.source == "package":
            return _described_package(entry.package or "", entry.folder or "")
        return describe_towers(described_folder(entry))
    except UserError:
        if entry.pooling is None:
            raise
        return {}


@cache
def _described_package(package: str, folder: str) -> Json:
    """Return the towers that an installed package describes; read once for all variants, since it does not change."""
    return describe_towers(find_package(package, folder))


def described_folder(entry: PublishedEncoder, fetch: bool = False) -> Path:
    """Return the folder with the files of a published encoder that describe it.

    Args:
        fetch: get them from the hub if they are not on this machine.
    """
    if entry.source != "hub":
        return folder_of(entry)
    name = str(entry.name)
    if folder := fetch_description(name, str(entry.revision), fetch):
        return folder
    raise UserError(
        f"encoder: how {name} makes a text's vector is not known on this machine, and it is no folder here; "
        f"`python -m tandem encoder {name}` fetches its description, "
        f"or say pooling: {', '.join(entry.poolings)} in an entry of encoders; a cross-encoder is an entry of rerankers"
    )


def folder_of(entry: Published) -> Path:
    """Return the folder of an entry whose files are on this machine.

    Raises:
        UserError: it does not exist, and the entry states how to get it.
    """
    if entry.source == "package":
        return find_package(entry.package or "", entry.folder or "")
    folder = Path(entry.path or "")
    if entry.obtain and not folder.is_dir():
        raise UserError(f"{folder}: no such folder; get it by: {entry.obtain}")
    return folder


def published_entry(
    known: Mapping[str, Encoder], name: str, where: str = "encoder"
) -> PublishedEncoder:
    """Return the entry of a published encoder, also of one that is named by its folder or by the hub's name.

    Raises:
        UserError: there is no such entry; the error begins with `where`, the key that names it.
    """
    if isinstance(entry := known.get(name), PublishedEncoder):
        return at_commit(entry)
    if name and Path(name).is_dir():
        return PublishedEncoder(source="folder", path=name)
    if key := entry_of_hub(known, name):
        return published_entry(known, key)
    if HUB.fullmatch(name):
        return at_commit(PublishedEncoder(source="hub", name=name, revision="main"))
    hint = nearest(name, list(known))
    raise UserError(
        f"{where}: {name} is unknown: not in config/encoders, no folder, no org/name{hint}"
    )


def entry_of_hub(known: Mapping[str, Encoder], name: str) -> str | None:
    """Return the entry that is called like the last part of a hub model's name: e5-small-v2 of intfloat/e5-small-v2.

    The entry may state what the model's files leave out, such as prompts.
    """
    key = name.rpartition("/")[2].lower()
    return key if getattr(known.get(key), "name", None) == name else None


def at_commit(entry: E) -> E:
    """Return an entry of the hub at the commit that the lock has for its revision."""
    if entry.source != "hub":
        return entry
    return entry.model_copy(update={"revision": pinned(entry.name or "", entry.revision) or "main"})


def pinned(name: str, revision: str | None) -> str | None:
    """Return the lock's commit for a revision of a hub model, None being `main`; without a commit, the revision."""
    return read_lock().get(name, {}).get(revision or "main", revision)


def read_lock() -> Commits:
    """Return the commits of the working directory's lock; empty without one.

    Raises:
        UserError: the lock has another form.
    """
    path = Path.cwd() / LOCK
    lock = read_own(path) if path.is_file() else {}
    commits_of_models = list(lock.values()) if isinstance(lock, dict) else [None]
    for commits in commits_of_models:
        is_lock = isinstance(commits, dict) and all(
            COMMIT_PATTERN.fullmatch(str(it)) for it in commits.values()
        )
        if not is_lock:
            raise UserError(
                f"{path}: is not a lock (model: {{revision: commit of 40 hex digits}}); mend or delete it"
            )
    return dict(lock)
