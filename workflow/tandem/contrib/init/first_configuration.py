"""The command `init`, which writes a configuration that runs without changes."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import yaml
from cyclopts import Parameter
from cyclopts.validators import Number

from tandem import ROOT
from tandem.cluster.progress import format_duration
from tandem.cluster.threads import count_usable_cores
from tandem.config.datasets import sources
from tandem.config.merging import Raw, gathered, merged
from tandem.config.settings import Execution
from tandem.contrib.init.configuration import Choices, compose_configuration, find_starting_encoder
from tandem.contrib.init.limits import choose_limits, estimate_tables
from tandem.contrib.init.look import FoundMachine, Look, look
from tandem.data.dataset_files import is_archive, open_folder
from tandem.data.reading import is_leftover, strip_packing
from tandem.errors import NAME, UserError
from tandem.extras.byte_sizes import format_bytes
from tandem.extras.estimate.estimate import sum_costs
from tandem.extras.file_columns import FileColumns, name_alike
from tandem.extras.language import describe_misfits
from tandem.extras.plan import FullPlan
from tandem.extras.recognition import find_entry
from tandem.plan.dataset_stages import list_read_files
from tandem.plan.views import views_folder
from tandem.plugins import load_installed_plugins
from tandem.stages.data import DatasetParams
from tandem.store.files import write_text
from tandem.store.job import Job

# the codes of ISO 639-1, to which none are added any more
_LANGUAGE_CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo "
    "es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka "
    "kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng "
    "nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su "
    "sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
_DATA_ENDS = (".tsv", ".csv", ".jsonl", ".ndjson", ".json", ".parquet")
# files that publishers put next to data
_METADATA = {"dataset_info.json", "dataset_infos.json", "metadata.json", "croissant.json"}
_MOST_NAMES = 5
LIKELY = 0.3  # least share of texts in a language for it to be taken as the passages' language


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
        data: a folder, an archive, some files, or `ir_datasets:ID`, in any format of docs/formats.md, of an installed
            plugin, or of a plugin in a file: `--run.plugins '["faq.py"]'`.
        encoder: what models start from: a name of config/encoders/, a folder, or ORG/NAME on the hub.
        language: of the passages, an ISO 639-1 code; guessed by default.
        seconds: longest time for reading the passages; 0: no limit.
        force: replace the file if it is there.
    """
    path = Path(name if name.endswith(".yaml") else f"{name}.yaml")
    if not NAME.fullmatch(path.stem):
        raise UserError(f"{path.stem}: a name is letters, digits, '_', '-' and '.'")
    if views_folder([path]) == views_folder([]):
        raise UserError(
            f"{path}: its results would replace those of config/config.yaml; choose another name"
        )
    if path.exists() and not force:
        raise UserError(f"{path} exists; choose another name, or replace it with --force")
    if not path.absolute().parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it first")
    if not os.access(path.absolute().parent, os.W_OK):
        raise UserError(f"{path}: {path.absolute().parent} is not writable; work in another folder")
    if language and language not in _LANGUAGE_CODES.split():
        raise UserError(f"--language {language}: a code of ISO 639-1 is needed, such as en or zh")
    failures = load_installed_plugins()  # which may have formats
    entry, folder = find_entry(data)
    entry |= {"normalize": "nfc"} if folder else {}  # a published collection stays as it is
    options = Execution(path=folder or None, workers=count_usable_cores())
    collection = look(
        Job("dataset", Path(path.stem), DatasetParams.model_validate(entry), {}, options), seconds
    )
    collection.notes += map(str, failures)
    entry |= {"path": folder} if folder else {}
    language = language or guess_language(collection)
    choices = Choices(
        path.stem,
        entry,
        language,
        collection,
        find_starting_encoder(encoder, language),
        FoundMachine.here(),
        list_unread_files(entry, data) if folder else [],
    )
    limits = choose_limits(choices)
    queries = {split: limit.most for split, limit in limits.items() if limit.most is not None}
    text = compose_configuration(
        choices, queries, {split: limit.reason for split, limit in limits.items()}
    )
    config = merged(gathered([], ROOT), yaml.safe_load(text))
    FullPlan(config, ROOT).tables.files()
    write_text(path, text)
    written = shlex.quote(str(path))
    command = f"tandem run {written}"
    commands = [
        f"next: {command} baseline   # BM25 alone",
        f"      {command}            # everything",
    ]
    sizes = [f"queries: {limit}" for limit in limits.values()]
    print(
        *describe_choices(choices),
        *sizes,
        f"wrote {path}",
        "",
        *list_cost_lines(config, choices, written),
        *commands,
        sep="\n",
    )


def list_unread_files(entry: Raw, data: list[str]) -> list[str]:
    """Return the names of files of `--data` that look like data, but are not read.

    Args:
        entry: the dataset's entry, with its `path`.
        data: a folder or an archive, of which the files at the top level count, or some files.
    """
    folder = open_folder(Path(entry["path"]))
    model = sources()[entry["source"]]
    paths = list_read_files("--data", model.model_validate(entry), folder)
    if paths is None:  # all
        return []
    read_paths = {path.resolve() for path in paths}
    first = Path(data[0])
    is_whole = first.is_dir() or is_archive(first)
    unread = []
    for path in sorted(folder.iterdir() if is_whole else map(Path, data)):
        if path.is_file() and path.resolve() not in read_paths and _looks_like_data(path):
            unread.append(path.name)
    return unread


def _looks_like_data(path: Path) -> bool:
    name = strip_packing(path.name)
    is_known = is_leftover(path) or name in _METADATA
    return name.endswith(_DATA_ENDS) and not is_known


def guess_language(collection: Look) -> str:
    """Return the language of most passages; English, with a note, if it is not clear."""
    shares = {
        name: share for name, share in collection.languages["passage"].items() if name != "latin"
    }
    best = max(shares, key=shares.__getitem__, default="")
    if len(best) == 2 and shares[best] >= LIKELY:
        return best
    unclear = f"the language of the passages is not clear{best and f' ({best})'}"
    collection.notes.append(f"{unclear}: en is taken (--language)")
    return "en"


def format_names(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    further = len(names) - _MOST_NAMES
    others = f" and {further:,} more" if further > 0 else ""
    return ", ".join(names[:_MOST_NAMES]) + others


def describe_columns_read(columns: Sequence[FileColumns]) -> list[str]:
    """Return a line for each file, or group of similar files, with named columns: which are read, and which are not."""
    lines = []
    for names, alike in name_alike(columns):
        unread = alike.describe_unread()
        line = f"columns of {format_names(names)}: {alike.describe_read()}"
        lines.append(f"{line}; not read: {unread}" if unread else line)
    return lines


def describe_choices(choices: Choices) -> list[str]:
    """Describe the data and its oddities, the experiment that the splits allow, the encoder, and the machine."""
    collection, language = choices.collection, choices.language
    queries = ", ".join(f"{split} {count:,}" for split, count in collection.queries.items())
    sizes = f"{'' if collection.whole else 'more than '}{collection.passages:,} passages, queries: {queries}"
    notes = list(collection.notes)
    for side, shares in collection.languages.items():
        if others := describe_misfits(language, shares):
            notes.append(f"the language is {language}, but the {side} texts look like {others}")
    return [
        f"data: {choices.entry.get('path') or choices.entry.get('id')}, format {choices.entry['source']}: {sizes}",
        *([f"not read: {format_names(choices.unread)}"] if choices.unread else []),
        *describe_columns_read(collection.columns),
        *(f"warning: {note}" for note in notes),
        f"language: {language}",
        f"splits: {choices.experiment.sentence}",
        f"encoder: {choices.encoder}",
        f"machine: {choices.machine}",
    ]


def list_cost_lines(config: Raw, choices: Choices, written: str) -> list[str]:
    """Return the lines of the estimate, for all systems and for BM25 only, or the reason why there is no estimate.

    Args:
        written: the path of the configuration's file, quoted for a command line.
    """
    try:
        behind = estimate_tables(config, choices, choices.experiment.table, "baseline")
        everything, lexical = (sum_costs(stages.values()) for stages in behind)
    except UserError as error:
        return [f"no estimate: {error}"]
    at_least = "about" if choices.collection.whole else "more than"
    where = "one H200" if choices.machine.gpu else "two cores"
    sizes = f"{format_bytes(int(everything.memory))} of memory, {format_bytes(int(everything.disk))} of disk"
    short = (
        [f"warning: {sizes}: this machine has less"]
        if everything.memory > choices.machine.memory
        else []
    )
    line = f"everything takes {at_least} {format_duration(everything.wall)} on {where}, {sizes}; BM25 alone"
    return [
        *short,
        f"{line} {format_duration(lexical.wall)} (stage by stage: tandem estimate {written})",
    ]
