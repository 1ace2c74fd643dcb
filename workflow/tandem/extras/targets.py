"""What a command line names: configurations with their plans, and artifacts in the folders below a root."""

import glob
import json
import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import yaml
from cyclopts import Parameter

from tandem import ROOT
from tandem.cluster.threads import count_usable_cores
from tandem.config.merging import LOADER, Raw, find_repeated_key, gathered, merged
from tandem.config.parsing import refuse_too_large
from tandem.errors import NAME, UserError, printable
from tandem.extras.plan import FullPlan
from tandem.extras.running.progress_files import PROGRESS_FILE as PROGRESS
from tandem.plan.graph import Stage, upstream_first
from tandem.plan.views import views_folder
from tandem.redaction import redacted
from tandem.report.results import Lineage
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST, Artifact, Manifest, open_artifact
from tandem.store.files import is_locked, is_partial

RESULTS = Path("results")
KEY = re.compile(r"[A-Za-z0-9_.+@-]+-[0-9a-f]{10}")  # the Snakefile has the same constraint
PAIRS = "pairs"  # next to the kinds of a dataset: stores of a cross-encoder's scores
ORDER = "order"  # also next to them: the order of a dataset's ids
STORE = "store.json"
DELETED = ".deleted-"  # prefix of a folder whose deletion was interrupted
_FOLDER_DEPTH = 4  # folders between a bundle's folder and an artifact's
CONFIGURATION_SUFFIXES = (".yaml", ".yml", ".json")  # suffixes of a configuration's files
# flags that are written with their value
_FLAGS_WITH_VALUE = ("--configfile=", "--configfiles=", "--config=")
ALIVE_SECONDS = 120.0  # a job is running if it wrote its progress within so many seconds


@dataclass
class Configuration:
    """A configuration as Snakemake gets it: YAML files on top of config/config.yaml, then `key=value` words."""

    files: list[Path] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def config(self) -> Raw:
        """Return the configuration as Snakemake would gather it; a `UserError` for what cannot be read."""
        config = gathered(self.files, ROOT)
        refuse_repeated_keys(self.values)
        for word in self.values:
            key, _, text = word.partition("=")
            try:
                value = {key: read_as_snakemake(text)}
                refuse_too_large(value)
                config = merged(config, value)
            except (yaml.YAMLError, ValueError, RecursionError):
                hint = "put quotes around what has spaces: 'bm25={k1: 1.2}'"
                raise UserError(f"--config {word}: {text} is not valid YAML; {hint}") from None
        return config

    def plan(self) -> FullPlan:
        """Return the configuration's plan: the Snakefile's own, so that stages have the names they were built under."""
        return FullPlan(self.config(), ROOT, views_folder(self.files))

    def on_dataset(self, name: str | None) -> "Configuration":
        """Return the same configuration with another dataset; None: with its own."""
        override = [format_dataset_override(name)] if name else []
        return Configuration(self.files, [*self.values, *override])

    @property
    def words(self) -> list[str]:
        """Return the same configuration on Snakemake's command line."""
        files = ["--configfile", *map(str, self.files)] if self.files else []
        return [*files, *(["--config", *self.values] if self.values else [])]

    @property
    def name(self) -> str:
        """Return the configuration's name for messages, without secrets."""
        return str(
            redacted(" ".join([*map(str, self.files), *self.values]) or "config/config.yaml")
        )

    def snakemake(self, targets: Iterable[str], system: str = "") -> str:
        """Return the command that builds files, to be shown; it has `***` in place of the secrets of `--config`.

        `system` is a system that no table of the configuration names.
        """
        own = Configuration(
            self.files, [*self.values, *([f"systems=[{system}]"] if system else [])]
        )
        here, snakefile = Path("Snakefile"), ROOT / "Snakefile"
        is_own = here.is_file() and here.samefile(snakefile)
        words = [
            "snakemake",
            *([] if is_own else ["-s", str(snakefile)]),
            "--cores",
            str(count_usable_cores()),
            *targets,
            *own.words,
        ]
        return shlex.join(redacted(words))


Configurations = Annotated[
    Sequence[Configuration],
    Parameter(
        name=("--configfile", "--config"),
        help="`--configfile A.yaml [B.yaml …]` begins a configuration, to which `--config key=value …` belongs; several"
        " are allowed. Default: config/config.yaml",
        converter=lambda *_: (),  # `read_configurations` has taken these words
        n_tokens=1,
        accepts_keys=False,
        negative="",
        show_default=False,
    ),
]


def read_configurations(words: list[str]) -> tuple[list[Configuration], list[str]]:
    """Return the configurations of a command line, as `Configurations` describes them, and the other words.

    Words after `--` are not configurations: a query may begin with `-`.
    """
    if "--" in words:
        end = words.index("--")
        configurations, rest = read_configurations(words[:end])
        return configurations, [*rest, *words[end:]]
    configurations, rest, target = list[Configuration](), list[str](), ""
    words = [
        part
        for word in words
        for part in (word.split("=", 1) if word.startswith(_FLAGS_WITH_VALUE) else [word])
    ]
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word in ("--configfile", "--configfiles"):
            if not following.endswith(CONFIGURATION_SUFFIXES):
                raise UserError(
                    f"{f'{word} {following}'.strip()}: allowed: YAML files, such as mine.yaml"
                )
            configurations.append(Configuration())
            target = "files"
        elif word == "--config":
            if following.find("=") < 1 or following.startswith("--"):  # no `=`, or no key before it
                raise UserError(
                    f"{f'--config {following}'.strip()}: allowed: key=value, such as seed=7"
                )
            if not configurations or configurations[-1].values:
                configurations.append(Configuration())
            target = "values"
        elif target == "files" and word.endswith(CONFIGURATION_SUFFIXES):
            configurations[-1].files.append(Path(word))
        elif target == "values" and "=" in word and not word.startswith("--"):
            configurations[-1].values.append(word)
        else:
            rest.append(word)
            target = ""
    return configurations or [Configuration()], rest


def choose_configuration(
    configurations: Sequence[Configuration], files: Iterable[Path], done: str
) -> Configuration:
    """Return the one configuration of a command line; files that are given without a flag come first.

    Args:
        done: what the command does with it, as a participle for messages: `estimated`.
    Raises:
        UserError: there are several.
    """
    configuration, *others = configurations or [Configuration()]
    if others:
        raise UserError(f"--configfile and --config: one configuration is {done} at a time")
    return Configuration([*files, *configuration.files], configuration.values)


def refuse_repeated_keys(words: Iterable[str]) -> None:
    """Refuse a `key=value` of a command line in which a key occurs twice: YAML would drop the first."""
    for word in words:
        _, _, text = word.partition("=")
        try:
            node = yaml.compose(text, LOADER)
        except (yaml.YAMLError, RecursionError):  # reported where it is read
            continue
        if repeated := find_repeated_key(node):
            problem = f"{printable(repeated[0].value)} stands twice, and YAML would drop the first"
            raise UserError(f"--config {redacted(word)}: {problem}; write it once")


def read_as_snakemake(text: str) -> object:
    """Return the value that Snakemake reads from the text of a `key=value`: a number, True or False, or else YAML.

    All scalars of its YAML are text; what a key's type needs is read from them later, in both programs alike.
    Snakemake's `parse_config` is not called, since importing Snakemake takes a second; a test compares the two.

    Raises:
        yaml.YAMLError: Snakemake would take the text as it stands; no key has such a value.

    >>> read_as_snakemake("010"), read_as_snakemake("[1, 010]"), read_as_snakemake("no")
    (10, ['1', '010'], 'no')
    """
    text = text.strip("'\"")
    if not text:
        return None
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    if text in ("True", "False"):
        return text == "True"
    return yaml.load(text, yaml.BaseLoader)


def format_dataset_override(name: str) -> str:
    """Return `dataset=<name>`; a name that Snakemake would read as something other than a text (2024, True) is quoted.

    Spaces are around the quotes: those at an end of a value are taken away by Snakemake before it reads the value.
    """
    plain = NAME.fullmatch(name) and read_as_snakemake(name) == name
    return f"dataset={name if plain else f' {json.dumps(name, ensure_ascii=False)} '}"


def split_files(words: Iterable[str]) -> tuple[list[str], list[Path]]:
    """Split words into names and a configuration's files: YAML files, and JSON files that exist and are not results.

    Several words in one argument that ends in `.yaml` are a query, unless there is such a file.
    """
    names, files = list[str](), list[Path]()
    for word in words:
        path = Path(word)
        if path.suffix == ".json":
            is_file = path.is_file() and path.parts[0] != RESULTS.name
        else:
            is_file = path.suffix in CONFIGURATION_SUFFIXES and (
                len(word.split()) == 1 or path.is_file()
            )
        if is_file:
            files.append(path)
        else:
            names.append(word)
    return names, files


def list_stages_of_all(plan: FullPlan) -> list[Stage]:
    """Return the stages of `rule all`, inputs first: those behind the tables, the sweeps, the report and `systems`."""
    plan.tables.files()
    targets = plan.tables.requested_scores()
    targets += plan.scores_of_views("all")
    for part in plan.report_parts().values():
        targets += part.stages
    for system in plan.settings.systems:
        targets += plan.planner.reported_runs(system, "systems")
    return upstream_first(targets)


def is_table_made(plan: FullPlan, name: str) -> bool:
    """Return whether a table exists as planned: the plan that it was made by is next to it."""
    made_by = Path(plan.views, f"tables/{name}.plan")
    if not made_by.is_file():
        return False
    return made_by.read_text(encoding="utf-8").removesuffix("\n") == plan.tables.to_json(name)


def find_artifact(word: str, roots: Sequence[Path] = (RESULTS,)) -> Artifact:
    """Open the artifact in a folder or with a key below results/, without reading its files; else a `UserError`.

    `roots` are other folders of results, in which a key is looked for instead.
    """
    folder = Path(word)
    if (folder / MANIFEST).is_file() or folder.name == MANIFEST:
        return open_artifact(folder, verify=False)
    pattern = f"*/*/{glob.escape(folder.name)}/{MANIFEST}"
    manifests = [path for root in roots for path in root.glob(pattern)] if folder.name else []
    folders = sorted(path.parent for path in manifests)
    if not folders:
        raise UserError(
            f"{word}: no finished artifact; give a folder with a {MANIFEST}, or a key below {RESULTS}/"
        )
    if len(folders) > 1:
        raise UserError(
            f"{word}: stands for {', '.join(map(str, folders))}; give one of these folders"
        )
    return open_artifact(folders[0], verify=False)


def open_scored(scored: Lineage) -> Artifact:
    """Open the score artifact that a row's lineage names: the one of the run's dataset, else any with the key."""
    beside = Path(scored.folder).parents[1] / "score" / scored.scores
    if (beside / MANIFEST).is_file():
        return open_artifact(beside, verify=False)
    return find_artifact(scored.scores)


def iterate_artifact_folders(root: Path, follow_links: bool = True) -> Iterator[Path]:
    """Yield folders of artifacts and of pair stores below a folder, or that folder itself, sorted.

    An artifact of an unknown kind, such as that of a plugin that is not loaded, counts if it is finished.

    Args:
        follow_links: also look into folders that are links, such as a dataset's folder on another disk.
    """
    if not root.is_dir():
        configuration = (
            f"; a configuration is checked by `tandem estimate {root}`"
            if root.suffix == ".yaml"
            else ""
        )
        raise UserError(
            f"{root}: no such folder; give results/ or a folder below it{configuration}"
        )
    if _is_artifact(root, _is_kind(get_kind(root))):
        yield root
    else:
        yield from _iterate_below(root, _FOLDER_DEPTH, follow_links)


def _is_kind(name: str) -> bool:
    """Return whether folders of this name hold artifacts, or stores next to them; plugins may have added kinds."""
    return name in KINDS or name in (PAIRS, ORDER)


def _is_artifact(folder: Path, in_kind: bool) -> bool:
    """Return whether a folder is an artifact, or a store next to them; `in_kind`: whether it is in a kind's folder."""
    named = KEY.fullmatch(folder.absolute().name)
    return bool(named) and (in_kind or (folder / MANIFEST).is_file())


def _iterate_below(folder: Path, depth: int, follow_links: bool) -> Iterator[Path]:
    keyed = _is_kind(folder.absolute().name)
    try:
        with os.scandir(folder) as entries:
            paths = sorted(
                Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=follow_links)
            )
    except (FileNotFoundError, PermissionError):
        return
    for path in paths:
        if _is_artifact(path, keyed):
            yield path
        # a dataset may be named like a kind: its folders are kinds then, not artifacts
        elif depth > 1 and not path.name.startswith(".") and (not keyed or _is_kind(path.name)):
            yield from _iterate_below(path, depth - 1, follow_links)


def list_leftovers(root: Path) -> list[Path]:
    """Return folders that an interrupted `gc` has not yet removed, or an interrupted unpacking not yet put in place."""
    paths = [path for depth in ("*/*", "*/*/*") for path in root.glob(f"{depth}/{DELETED}*")]
    paths += [
        path for path in root.glob("*/*/.*") if is_partial(path.name) and not _is_written(path)
    ]
    return sorted(path for path in paths if path.is_dir() and not path.is_symlink())


def _is_written(folder: Path) -> bool:
    """Return whether something in a folder was written within `ALIVE_SECONDS`."""
    try:
        newest = max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    except FileNotFoundError:  # it was moved into place during the check
        return True
    return time.time() - newest < ALIVE_SECONDS


def get_kind(folder: Path) -> str:
    """Return the kind that a folder's path names."""
    return folder.absolute().parent.name


def read_manifest(folder: Path) -> Manifest | None:
    """Return an artifact's manifest; None where there is none or it is damaged."""
    try:
        return open_artifact(folder, verify=False).manifest
    except (OSError, UserError):
        return None


def is_running(folder: Path) -> bool:
    """Return whether a job, or a shard of it, wrote its progress a moment ago or holds the lock of its output."""
    files = [folder / PROGRESS, *folder.glob(f"shards/*.{PROGRESS}")]
    if any(path.is_file() and time.time() - path.stat().st_mtime < ALIVE_SECONDS for path in files):
        return True
    locks = [*folder.glob(f".{MANIFEST}.lock"), *folder.glob("shards/.*.lock")]
    return any(is_locked(path) for path in locks)
