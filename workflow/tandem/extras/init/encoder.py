"""An encoder by its entry or its own files: the one that a new configuration starts from, and the command `encoder`.

The command says how an encoder makes a text's vector, and who says so, before anything runs.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tandem import ROOT
from tandem.config.encoders import PublishedEncoder
from tandem.config.loading import gathered, load_settings
from tandem.config.merging import Raw, merged
from tandem.errors import UserError
from tandem.extras.operations.configurations import Configurations
from tandem.models.described import LIBRARY, METADATA, described_towers, longest_input
from tandem.models.hub import positions_in
from tandem.plan.context import json_of
from tandem.plan.graph import Stages
from tandem.plan.planner import Planner
from tandem.plan.sizes import Shape, published_entries, shape_of
from tandem.plan.towers import (
    HUB,
    TOWERS,
    UNDESCRIBED,
    chosen_by,
    described_by,
    described_folder,
    published_entry,
    towers,
)
from tandem.stages.base import Json

USUAL = {"en": "minilm", "zh": "bert-base-chinese"}
OTHERWISE = "bert-base-multilingual-cased"
DESCRIBING = ("config.json", "modules.json", "*/config.json", "sentence_bert_config.json", LIBRARY, METADATA)
FILES = "its files"  # say it, where the entry does not


@dataclass(frozen=True)
class StartingEncoder:
    """An encoder as a configuration names it."""

    name: str  # value of `encoder`
    entry: Raw = field(default_factory=dict)  # of `encoders:`; empty where the name says enough
    vectors: Raw = field(default_factory=dict)  # how they are computed, as its entry or its own files say
    shape: Shape | None = None  # its sizes; None where they are not known here
    zero_shot: bool = True  # whether its vectors are worth a row without training

    def __str__(self) -> str:
        """Its name and how its vectors are computed."""
        vectors = {key: value for key, value in self.vectors.items() if value not in (None, {}, [])}
        texts = ", ".join(f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in vectors.items())
        return f"{self.name}: {texts or 'does not describe its vectors; pooling cls is taken'}".replace('"', "")


def starting_encoder(name: str, language: str) -> StartingEncoder:
    """The encoder of a name or, without one, of a language.

    Raises:
        UserError: an unknown name, a folder without safetensors, files that describe what is not computed here, or none
            of a name of the hub.
    """
    chosen = name or USUAL.get(language, OTHERWISE)
    config, entry = gathered([], ROOT), {}
    known = load_settings(config, ROOT).encoders
    here = chosen in known or Path(chosen).is_dir()
    if not here and HUB.fullmatch(chosen) and (entry := hub_entry(chosen)):
        chosen = chosen.rpartition("/")[2]
    planner = Planner(load_settings(merged(config, {"encoders": {chosen: entry} if entry else {}}), ROOT), Stages())
    stage, vectors = planner.encoder(chosen), towers(planner.ctx, chosen)
    try:
        shape = shape_of(stage, published_entries(planner.settings))
    except UserError:
        shape = None
    zero_shot = "pooling" in vectors and (bool(name) or "normalize" in vectors)
    return StartingEncoder(chosen, entry, vectors, shape, zero_shot)


def hub_entry(name: str) -> Raw:
    """The entry of a model on the hub at its current commit, by its small files; empty where they are not available."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(DESCRIBING), etag_timeout=10))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        shape = asdict(Shape.of(config)) | {"positions": positions_in(config)}
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError, KeyError):
        return {}
    return {"source": "hub", "name": name, "revision": folder.name, **described_towers(folder), "shape": shape}


def encoder(name: str, *, configurations: Configurations = ()) -> None:
    """Print how an encoder makes a text's vector, and who says so: its entry, its files, or nobody.

    Of an encoder on the hub whose entry does not say it, the files that do are fetched; its weights are not.

    Args:
        name: of `encoders:` or of config/encoders/, a folder, or org/name on the hub.
    """
    known = load_settings(configurations[0].config(), ROOT).encoders
    entry = published_entry(known, name)
    read = entry.source != "hub" or entry.pooling is None
    folder = described_folder(entry, fetch=True) if read else None
    place = entry.name or entry.package or entry.path or ""
    lines: list[tuple[str, str, str]] = [
        ("source", entry.source, f"{place}@{entry.revision}" if entry.revision else place)
    ]
    lines += choices(entry, described_by(entry), f"encoders.{name}")
    if folder and (limit := longest_input(folder)):
        lines.append(("longest input", FILES, f"{limit} tokens"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(map(str.ljust, line, widths)).rstrip())


def choices(entry: PublishedEncoder, described: Json, where: str) -> Iterator[tuple[str, str, str]]:
    """(key, who says so, value) of everything that decides a text's vector; `where` is the entry's path."""
    chosen, own = chosen_by(entry, described), json_of(entry)
    for key in (*TOWERS, "prompts"):
        if key in chosen and chosen[key] not in ({}, []):
            is_own = any(own[key].values()) if key == "prompts" else own[key] is not None
            yield key, where if is_own else FILES, json.dumps(chosen[key], ensure_ascii=False)
        elif key == "pooling":
            yield key, "nobody", f"say it in {where}; a training takes {UNDESCRIBED[key]}, as a system it is refused"
        elif key in UNDESCRIBED:
            yield key, "default", json.dumps(UNDESCRIBED[key])
