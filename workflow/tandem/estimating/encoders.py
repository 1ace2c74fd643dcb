"""The shape of the encoder that a stage descends from: from its artifact, its package or folder, or its entry."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.estimating.shape import Shape
from tandem.estimating.volumes import finished
from tandem.models.hub import package_folder
from tandem.plan.graph import Stage

MADE = ("layers", "hidden", "feed_forward", "vocabulary", "positions")


def encoder_of(stage: Stage) -> Stage:
    """The stage that says an encoder's sizes: that behind token ids, or what a pre-trained one started from."""
    for role in ("encoder", "start"):
        if role in stage.upstream:
            return encoder_of(stage.upstream[role])
    return stage


def shape_of(stage: Stage, entries: dict[str, Any]) -> Shape:
    """An encoder's sizes.

    Args:
        stage: an encoder's stage, or the token ids of its tokenizer.
        entries: the configuration's `encoders`: an entry's `shape` tells of an encoder that is not here yet.
    Raises:
        UserError: nothing tells its sizes.
    """
    made = encoder_of(stage)
    params = made.values
    if all(params.get(key) is not None for key in MADE):
        return Shape(*(int(params[key]) for key in MADE))
    folders = [Path(made.folder) / "hf"] if finished(made.folder) else []
    if params.get("source") == "package":
        folders.append(package_folder(params["package"], params.get("folder", "")))
    if "path" in made.execution:
        folders.append(Path(made.execution["path"]))
    for folder in folders:
        if (folder / "config.json").is_file():
            return _kept(Shape.of(json.loads((folder / "config.json").read_text())), params)
    for entry in entries.values():
        if entry.get("shape") and entry.get("name", entry.get("package")) == params.get("name", params.get("package")):
            return _kept(Shape(**entry["shape"]), params)
    raise UserError(
        f"encoder {made.name}: its sizes are not known here; make it (`snakemake {made.manifest}`), or say "
        f"encoders.<name>.shape: {{layers, hidden, feed_forward, vocabulary}}"
    )


def _kept(shape: Shape, params: dict[str, Any]) -> Shape:
    """The sizes of an encoder of which only the first `layers` are kept."""
    return replace(shape, layers=min(shape.layers, params.get("layers") or shape.layers))
