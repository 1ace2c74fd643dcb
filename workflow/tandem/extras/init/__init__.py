"""The commands `init`, which writes a configuration that runs as it is, and `encoder`: how an encoder makes vectors."""

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import yaml
from cyclopts import Parameter
from cyclopts.validators import Number

from tandem import ROOT
from tandem.cli import columns
from tandem.cluster.progress import format_duration
from tandem.cluster.threads import count_usable_cores
from tandem.config.datasets import sources
from tandem.config.encoders import PublishedEncoder
from tandem.config.loading import load_settings
from tandem.config.merging import Raw, gathered, merged
from tandem.config.settings import Execution
from tandem.data.fetch import format_bytes
from tandem.data.language import describe_misfits
from tandem.data.sources import Listing, dataset_format
from tandem.data.sources.own_files import TEXT_ENDS
from tandem.errors import NAME, UserError
from tandem.extras.estimate.estimate import sum_costs
from tandem.extras.init.configuration import Choices, compose_configuration, find_starting_encoder
from tandem.extras.init.limits import choose_limits, estimate_tables
from tandem.extras.init.look import FoundMachine, Look, look
from tandem.extras.plan import FullPlan
from tandem.extras.targets import Configurations
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
from tandem.plan.views import views_folder
from tandem.stages.base import Json
from tandem.stages.data import DatasetParams
from tandem.store.files import write_text
from tandem.store.job import Job

IRDS = "ir_datasets:"
_LANGUAGE_CODE = re.compile("[a-z]{2,3}")
LAST_RESORT = "files"  # recognised by words in names, where no format's own names fit
LIKELY = 0.3  # share of the texts from which they are taken to be in a language
_FROM_FILES = "its files"  # say it, where the encoder's entry does not


def write_first_configuration(
    name: str,
    *,
    data: Annotated[list[str], Parameter(consume_multiple=True, negative="")],
    encoder: str = "",
    language: str = "",
    seconds: Annotated[float, Parameter(validator=Number(gte=0))] = 60.0,
    force: bool = False,
) -> None:
    """Write a configuration for data of your own, with sizes for this machine.

    Args:
        name: of the configuration and its dataset: `mine` writes mine.yaml.
        data: a folder, an archive, some files, or `ir_datasets:ID`, in any format of docs/formats.md.
        encoder: what models start from: a name of config/encoders/, a folder, or ORG/NAME on the hub.
        language: of the passages, as ISO 639-1 has it; guessed by default.
        seconds: longest time for reading the passages; 0: no limit.
        force: replace the file if it is there.
    """
    path = Path(name if name.endswith(".yaml") else f"{name}.yaml")
    if not NAME.fullmatch(path.stem):
        raise UserError(f"{path.stem}: a name is letters, digits, '_', '-' and '.'")
    if views_folder([path]) == views_folder([]):
        raise UserError(f"{path}: its results would replace those of config/config.yaml; choose another name")
    if path.exists() and not force:
        raise UserError(f"{path} exists; choose another name, or replace it with --force")
    if not os.access(path.absolute().parent, os.W_OK):
        raise UserError(f"{path}: {path.absolute().parent} is not writable; work in another folder")
    if language and not _LANGUAGE_CODE.fullmatch(language):
        raise UserError(f"--language {language}: a code of ISO 639-1 is needed, such as en or zh")
    entry, folder = find_entry(data)
    entry |= {"normalize": "nfc"} if folder else {}  # a published collection stays as it is
    options = Execution(path=folder or None, workers=count_usable_cores())
    collection = look(Job("dataset", Path(path.stem), DatasetParams.model_validate(entry), {}, options), seconds)
    entry |= {"path": folder} if folder else {}
    language = language or guess_language(collection)
    choices = Choices(
        path.stem, entry, language, collection, find_starting_encoder(encoder, language), FoundMachine.here()
    )
    limits = choose_limits(choices)
    queries = {split: limit.most for split, limit in limits.items() if limit.most is not None}
    text = compose_configuration(choices, queries, {split: limit.reason for split, limit in limits.items()})
    config = merged(gathered([], ROOT), yaml.safe_load(text))
    FullPlan(config, ROOT).tables.files()
    write_text(path, text)
    command = f"tandem run {shlex.quote(str(path))}"
    commands = [f"next: {command} baseline   # BM25 alone", f"      {command}            # everything"]
    sizes = [f"queries: {limit}" for limit in limits.values()]
    print(
        *describe_choices(choices), *sizes, f"wrote {path}", "", *list_cost_lines(config, choices), *commands, sep="\n"
    )


def find_entry(data: list[str]) -> tuple[dict[str, Any], str]:
    """Return the dataset's source with its keys, and the folder of its files; no folder for ir_datasets.

    Raises:
        UserError: nothing is named, no format fits, or the folder holds the working folder, whose results would
            change it.
    """
    if not data:
        raise UserError(f"--data names nothing; allowed: a folder, an archive, files, or {IRDS}ID")
    if data[0].startswith(IRDS):
        return {"source": "ir_datasets", "id": data[0].removeprefix(IRDS)}, ""
    listing = Listing.of([Path(name) for name in data])
    formats = [name for name in dataset_format if sources()[name].reads_files and name != LAST_RESORT]
    formats.sort(key=lambda name: name != "beir")  # whose names of files are the surest
    for source in (*formats, LAST_RESORT):
        if (keys := dataset_format[source].recognise(listing)) is not None:
            if source != LAST_RESORT and Path.cwd().is_relative_to(listing.folder.absolute()):
                raise UserError(f"--data {listing.folder}: holds the working folder; put the data into one of its own")
            return {"source": source, **keys}, str(listing.place)
    names = ", ".join(listing.names[:8]) or "nothing"
    hint = f"names with the words corpus, queries, qrels that end in {', '.join(TEXT_ENDS)}, or see docs/formats.md"
    raise UserError(f"--data {data[0]}: no format is recognised (found: {names}); allowed: {hint}")


def guess_language(collection: Look) -> str:
    """Return the language of most passages; English, with a note, where it is not clear."""
    shares = {name: share for name, share in collection.languages["passage"].items() if name != "latin"}
    best = max(shares, key=shares.__getitem__, default="")
    if len(best) == 2 and shares[best] >= LIKELY:
        return best
    unclear = f"the language of the passages is not clear{best and f' ({best})'}"
    collection.notes.append(f"{unclear}: en is taken (--language)")
    return "en"


def describe_choices(choices: Choices) -> list[str]:
    """Describe what was found: the data and its oddities, what the splits allow, the encoder, the machine."""
    collection, language = choices.collection, choices.language
    queries = ", ".join(f"{split} {count:,}" for split, count in collection.queries.items())
    sizes = f"{'' if collection.whole else 'more than '}{collection.passages:,} passages, queries: {queries}"
    notes = list(collection.notes)
    for side, shares in collection.languages.items():
        if others := describe_misfits(language, shares):
            notes.append(f"the language is {language}, but the {side} texts look like {others}")
    return [
        f"data: {choices.entry.get('path') or choices.entry.get('id')}, format {choices.entry['source']}: {sizes}",
        *(f"warning: {note}" for note in notes),
        f"language: {language}",
        f"splits: {choices.experiment.sentence}",
        f"encoder: {choices.encoder}",
        f"machine: {choices.machine}",
    ]


def list_cost_lines(config: Raw, choices: Choices) -> list[str]:
    """Return the lines of the estimate, for all systems and for BM25 alone; or why there is none."""
    try:
        behind = estimate_tables(config, choices, choices.experiment.table, "baseline")
        everything, lexical = (sum_costs(stages.values()) for stages in behind)
    except UserError as error:
        return [f"no estimate: {error}"]
    at_least = "about" if choices.collection.whole else "more than"
    where = "one H200" if choices.machine.gpu else "two cores"
    sizes = f"{format_bytes(int(everything.memory))} of memory, {format_bytes(int(everything.disk))} of disk"
    short = [f"warning: {sizes}: this machine has less"] if everything.memory > choices.machine.memory else []
    line = f"everything takes {at_least} {format_duration(everything.wall)} on {where}, {sizes}; BM25 alone"
    return [*short, f"{line} {format_duration(lexical.wall)} (stage by stage: tandem estimate {choices.name}.yaml)"]


def choose_encoder(name: str, *, configurations: Configurations = ()) -> None:
    """Print how an encoder makes a text's vector, and who says so: its entry, its files, or nobody.

    Of an encoder on the hub whose entry does not say it, the files that do are fetched; its weights are not.

    Args:
        name: of `encoders:` or of config/encoders/, a folder, or org/name on the hub.
    """
    known = load_settings(configurations[0].config(), ROOT).encoders
    entry = published_entry(known, name)
    read = entry.source != "hub" or entry.pooling is None
    folder = described_folder(entry, fetch=True) if read else None
    place = (entry.name or entry.package or entry.path or "") + (f"@{entry.revision}" if entry.revision else "")
    described = described_by(entry)
    own = entry_of_hub(known, name) if entry.source == "hub" else None
    lines = [("source", entry.source, place), *list_choices(entry, described, f"encoders.{own or name}")]
    prompts = read_optional(folder / LIBRARY).get("prompts") or {} if folder else {}
    prompt, others = find_passage_prompt(prompts), [name for name in prompts if name not in ("query", *PASSAGE)]
    if entry.prompts.passage is None and "passage" in described.get("prompts", {}) and prompt in PASSAGE[1:]:
        differs = f"no {PASSAGE[0]}: {prompt} is taken; sentence-transformers' encode_document puts none"
        lines.append(("", _FROM_FILES, f"{differs}, as prompts: {{passage: ''}} in an entry does"))
    if others and not chosen_by(entry, described).get("prompts"):
        lines.append(
            ("", _FROM_FILES, f"prompts {', '.join(others)} are of no side; say prompts: {{query: …}} in an entry")
        )
    if folder and (limit := find_longest_input(folder)):
        lines.append(("longest input", _FROM_FILES, f"{limit} tokens"))
    print(columns(lines))


def list_choices(entry: PublishedEncoder, described: Json, where: str) -> Iterator[tuple[str, str, str]]:
    """Yield (key, who says so, value) of everything that decides a text's vector; `where` is the entry's path."""
    chosen, own = chosen_by(entry, described), json_of(entry)
    for key in (*TOWERS, "prompts"):
        if key in chosen and chosen[key] not in ({}, []):
            is_own = any(own[key].values()) if key == "prompts" else own[key] is not None
            by = where if is_own else _FROM_FILES if described.get(key) == chosen[key] else "representation"
            yield key, by, json.dumps(chosen[key], ensure_ascii=False)
        elif key == "pooling":
            yield key, "nobody", f"say it in {where}; a training takes {UNDESCRIBED[key]}, as a system it is refused"
        elif key in UNDESCRIBED:
            yield key, "default", json.dumps(UNDESCRIBED[key])
