"""The command `encoder NAME`: how an encoder makes a text's vector, and who says so, before anything runs."""

import json
from collections.abc import Iterator

from tandem import ROOT
from tandem.config.encoders import PublishedEncoder
from tandem.config.loading import load_settings
from tandem.extras.operations.configurations import Configurations
from tandem.models.described import longest_input
from tandem.plan.context import json_of
from tandem.plan.towers import TOWERS, UNDESCRIBED, chosen_by, described_by, described_folder, published_entry
from tandem.stages.base import Json

FILES = "its files"


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
