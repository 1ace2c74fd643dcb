"""The command `encoder`: how an encoder makes vectors, and where each setting comes from."""

import json
from collections.abc import Iterator

from tandem import ROOT
from tandem.cli import columns
from tandem.config.encoders import PublishedEncoder
from tandem.config.loading import load_settings
from tandem.extras.targets import Configurations, choose_configuration
from tandem.models.described import PASSAGE, find_passage_prompt
from tandem.models.folders import LIBRARY, find_longest_input, read_optional
from tandem.plan.context import json_of
from tandem.plan.towers import (
    TOWERS,
    UNDESCRIBED,
    chosen_by,
    described_by,
    described_folder,
    entry_of_hub,
    published_entry,
)
from tandem.stages.base import Json

_FROM_FILES = "its files"  # the source of settings that the encoder's entry lacks


def choose_encoder(name: str, *, configurations: Configurations = ()) -> None:
    """Print how an encoder makes a text's vector, and where each setting comes from: its entry, its files, or nowhere.

    If the entry of an encoder on the hub lacks the settings, the files that have them are fetched, but not its weights.

    Args:
        name: a name in `encoders:` or config/encoders/, a folder, or org/name on the hub.
    """
    configuration = choose_configuration(configurations, [], "read")
    known = load_settings(configuration.config(), ROOT).encoders
    entry = published_entry(known, name)
    read = entry.source != "hub" or entry.pooling is None
    folder = described_folder(entry, fetch=True) if read else None
    place = (entry.name or entry.package or entry.path or "") + (
        f"@{entry.revision}" if entry.revision else ""
    )
    described = described_by(entry)
    own = entry_of_hub(known, name) if entry.source == "hub" else None
    lines = [
        ("source", entry.source, place),
        *list_choices(entry, described, f"encoders.{own or name}"),
    ]
    prompts = read_optional(folder / LIBRARY).get("prompts") or {} if folder else {}
    prompt, others = (
        find_passage_prompt(prompts),
        [name for name in prompts if name not in ("query", *PASSAGE)],
    )
    if (
        entry.prompts.passage is None
        and "passage" in described.get("prompts", {})
        and prompt in PASSAGE[1:]
    ):
        differs = (
            f"no {PASSAGE[0]}: {prompt} is taken; sentence-transformers' encode_document puts none"
        )
        lines.append(("", _FROM_FILES, f"{differs}, as prompts: {{passage: ''}} in an entry does"))
    if others and not chosen_by(entry, described).get("prompts"):
        lines.append(
            (
                "",
                _FROM_FILES,
                f"prompts {', '.join(others)} are of no side; say prompts: {{query: …}} in an entry",
            )
        )
    if folder and (limit := find_longest_input(folder)):
        lines.append(("longest input", _FROM_FILES, f"{limit} tokens"))
    print(columns(lines))


def list_choices(
    entry: PublishedEncoder, described: Json, where: str
) -> Iterator[tuple[str, str, str]]:
    """Yield (key, where it comes from, value) of each setting of a text's vector; `where` is the entry's path."""
    chosen, own = chosen_by(entry, described), json_of(entry)
    for key in (*TOWERS, "prompts"):
        if key in chosen and chosen[key] not in ({}, []):
            is_own = any(own[key].values()) if key == "prompts" else own[key] is not None
            if is_own:
                by = where
            elif described.get(key) == chosen[key]:
                by = _FROM_FILES
            else:
                by = "representation"
            yield key, by, json.dumps(chosen[key], ensure_ascii=False)
        elif key == "pooling":
            yield (
                key,
                "nobody",
                f"say it in {where}; a training takes {UNDESCRIBED[key]}, as a system it is refused",
            )
        elif key in UNDESCRIBED:
            yield key, "default", json.dumps(UNDESCRIBED[key])
