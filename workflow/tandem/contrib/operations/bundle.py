"""The command `bundle`: everything needed to reproduce a table, in one archive whose bytes are the same every time."""

import gzip
import shlex
import shutil
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import yaml
from pydantic import ValidationError

from tandem import ROOT
from tandem.config.base import Section
from tandem.config.datasets import Dataset, sources
from tandem.config.merging import merged
from tandem.contrib.operations.provenance import Target, render_lineage_json, render_lineage_text
from tandem.errors import UserError, nearest
from tandem.extras.byte_sizes import format_bytes
from tandem.extras.drafts import draft_file
from tandem.extras.language_models.options import HostedModel
from tandem.extras.plan import FullPlan
from tandem.extras.report.page import render_markdown
from tandem.extras.targets import (
    Configuration,
    Configurations,
    choose_configuration,
    find_artifact,
    is_table_made,
    split_files,
)
from tandem.plan.towers import LOCK
from tandem.plugins import GROUP, is_file_name
from tandem.redaction import redacted
from tandem.report.results import read_table
from tandem.stages import KINDS, holding
from tandem.stages.base import Json
from tandem.store.artifact import MANIFEST, FileRecord, Manifest, Record, check_files
from tandem.store.files import sha256, write_json
from tandem.store.lineage import walk

_EARLIEST_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
BUNDLE_FILE = "bundle.json"
REMADE_FOLDER = "again"  # the folder in an unpacked bundle where its table is reproduced

_RUN_FILE = "run.trec"
# forms of a table; its log is next to it
_VIEW_SUFFIXES = (".csv", ".md", ".tex", ".json", ".html")
_PINNED_SUFFIXES = (".lock", ".yaml", ".in")  # of files in envs/


class Bundle(Record):
    """The content of a bundle's `bundle.json`."""

    files: dict[str, FileRecord]  # path in the bundle → size and checksum of each other file
    left_out: list[str]  # keys of the artifacts whose manifest only was packed


def read_bundle(folder: Path) -> Bundle | None:
    """Return the bundle that was unpacked into a folder; None if there is none."""
    path = folder / BUNDLE_FILE
    try:
        return Bundle.model_validate_json(path.read_bytes()) if path.is_file() else None
    except (OSError, ValidationError):
        raise UserError(
            f"{path}: is not what `tandem bundle` writes; unpack the archive anew"
        ) from None


def write_bundle(
    table: str, /, *files: str, out: Path | None = None, configurations: Configurations = ()
) -> None:
    """Pack a table with everything that a reader needs to reproduce it.

    The archive holds the table with its scores and runs, the manifests of all stages behind it, its lineage, the
    configuration, the table's layout, its plugins, the lock files, and a README with the commands that reproduce the
    table. The same results give the same bytes. `tandem verify` works on the unpacked folder.

    Args:
        table: a name as in the configuration's folder of tables: `rocketqav2/table4`.
        files: YAML files of the configuration that the table was made with.
        out: FILE.tar.gz or FILE.zip; by default the table's name with .tar.gz.
    """
    names, paths = split_files([table, *files])
    configuration = choose_configuration(configurations, paths, "packed")
    if len(names) != 1:
        raise UserError(
            f"takes one table of one configuration; {len(names)} names are not YAML files"
        )
    name = names[0]
    out = out or Path(f"{name.replace('/', '_')}.tar.gz")
    if not out.name.endswith((".tar.gz", ".zip")):
        raise UserError(f"--out: is {out}; it must end in .tar.gz or .zip")
    top = out.name.removesuffix(".zip").removesuffix(".tar.gz")
    if not top:
        raise UserError(f"--out: is {out}; a name must stand before {out.name}")
    require_writable(out)
    with TemporaryDirectory() as folder:
        files_by_place = gather_files(name, configuration, Path(folder))
        with draft_file(out) as draft:  # files sorted by name, without times and owners
            (_write_zip if out.suffix == ".zip" else _write_tar)(
                dict(sorted(files_by_place.items())), draft, top
            )
    size = f"{len(files_by_place) - 1} files, {format_bytes(out.stat().st_size)}"
    print(f"{out}: {size}; unpack it, then: tandem verify {shlex.quote(top)}")


def require_writable(out: Path) -> None:
    """Refuse a file that cannot be written, before the work that fills it; folders above it are created."""
    if out.is_dir():
        raise UserError(f"--out: {out} is a folder; name a file")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out.parent).close()
    except OSError as error:
        raise UserError(f"--out: {out} cannot be written: {error.strerror}") from None


def _write_tar(files: dict[str, Path], out: Path, top: str) -> None:
    with (
        out.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for place, path in files.items():
            entry = tarfile.TarInfo(f"{top}/{place}")
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as file:
                archive.addfile(entry, file)


def _write_zip(files: dict[str, Path], out: Path, top: str) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for place, path in files.items():
            entry = zipfile.ZipInfo(f"{top}/{place}", _EARLIEST_TIME)
            entry.compress_type, entry.external_attr, entry.create_system = (
                zipfile.ZIP_DEFLATED,
                0o644 << 16,
                3,
            )
            large = path.stat().st_size > 1 << 31
            with path.open("rb") as file, archive.open(entry, "w", force_zip64=large) as into:
                shutil.copyfileobj(file, into)


def gather_files(name: str, configuration: Configuration, folder: Path) -> dict[str, Path]:
    """Return path in the bundle → file, for every file of a table's bundle; generated files are written to `folder`.

    Raises:
        UserError: the table does not exist, is not made or is another configuration's, or a file is damaged.
    """
    plan = configuration.plan()
    if name not in plan.tables:
        problem = (
            plan.tables.missing.get(name) or f"is not a table{nearest(name, sorted(plan.tables))}"
        )
        raise UserError(f"{name}: {problem}")
    scores = {stage.key: stage for _, stage in plan.tables[name]}.values()
    tables = Path(plan.views, "tables")
    table = tables / f"{name}.json"
    absent = [stage.folder for stage in scores if not Path(stage.manifest).is_file()]
    if absent or not table.is_file():
        problem = f"{absent[0] if absent else table} is not made"
    elif not is_table_made(plan, name):
        problem = f"{table} was made by another configuration than {configuration.name}"
    else:
        problem = ""
    if problem:
        [rule] = [rule for rule, made in plan.tables.targets.items() if made == name][:1]
        raise UserError(f"{problem}; run: {configuration.snakemake([rule])}")

    read_table(table)  # refuses a damaged table
    target = Target(f"table {name}", [find_artifact(stage.folder) for stage in scores])
    stages = walk(target.artifacts)
    texts = {
        "README.md": write_readme(
            name,
            configuration,
            plan.settings.plugins,
            [stage.artifact.manifest for stage in stages.values()],
        ),
        "config.yaml": render_configuration(configuration, plan, name),
        "lineage.txt": render_lineage_text(target, stages) + "\n",
        "lineage.json": render_lineage_json(target, stages) + "\n",
    }

    files: dict[str, Path] = {}
    for suffix in _VIEW_SUFFIXES:
        path = table.with_suffix(suffix)
        if path.is_file():
            files[f"results/tables/{path.relative_to(tables)}"] = path
    for path in plan.tables.layout_files(name):
        files[f"layout/{path.name}"] = path
    for path, place in place_plugins(plan.settings.plugins).items():
        files[place] = path
    for path in sorted((ROOT / "envs").glob("*")):
        if path.suffix in _PINNED_SUFFIXES:
            files[f"envs/{path.name}"] = path
    if Path(LOCK).is_file():
        files[f"{REMADE_FOLDER}/{LOCK}"] = Path(LOCK)

    left_out = []
    for stage in stages.values():
        place = Path("results", *stage.artifact.folder.absolute().parts[-3:]).as_posix()
        files[f"{place}/{MANIFEST}"] = stage.artifact.folder / MANIFEST
        recorded = list(stage.artifact.manifest.files)
        packed = recorded if stage.declared.is_packed or _RUN_FILE in recorded else []
        check_files(stage.artifact, packed)
        files |= {f"{place}/{file}": stage.artifact.path(file) for file in packed}
        if not packed:
            left_out.append(stage.key)

    for place, text in texts.items():
        files[place] = folder / place
        files[place].write_text(text, encoding="utf-8")
    records = {}
    for place, path in sorted(files.items()):
        records[place] = FileRecord(bytes=path.stat().st_size, sha256=sha256(path))
    write_json(folder / BUNDLE_FILE, Bundle(files=records, left_out=sorted(left_out)).model_dump())
    return {**files, BUNDLE_FILE: folder / BUNDLE_FILE}


def place_plugins(plugins: Iterable[str]) -> dict[Path, str]:
    """Return file → path in the bundle, for plugins that are files; several of one name get numbered folders."""
    names: dict[Path, str] = {}  # if the configuration names a file twice, the first
    for plugin in filter(is_file_name, plugins):
        names.setdefault(_find_file(plugin), Path(plugin).name)
    of_name = Counter(names.values())
    numbers = Counter[str]()
    places = {}
    for path, name in names.items():
        numbers[name] += 1
        folder = f"{numbers[name]}/" if of_name[name] > 1 else ""
        places[path] = f"plugins/{folder}{name}"
    return places


def _find_file(plugin: str) -> Path:
    return Path(plugin).expanduser().resolve()


def render_configuration(configuration: Configuration, plan: FullPlan, name: str) -> str:
    """Return the configuration of the one table, as its files and `--config` set it, without secrets.

    Defaults are not spelled out: a default may name things that this configuration lacks, an explicit value may not.
    Layout and plugins are those of the bundle. The paths of datasets, models, released runs and filled sheets are
    absolute.
    """
    settings, layout = plan.settings, plan.tables.layouts[name]
    plugins = place_plugins(settings.plugins)
    places: Json = {
        "tables": [f"../layout/{layout.name}"] if layout in map(Path, settings.tables) else [name],
        "plugins": [
            f"../{plugins[_find_file(plugin)]}" if is_file_name(plugin) else plugin
            for plugin in settings.plugins
        ],
    }
    if hasattr(settings, "runs"):  # a package adds this key
        places["runs"] = {
            run: {
                "paths": {
                    split: str(Path(path).absolute())
                    for split, path in getattr(entry, "paths", {}).items()
                }
            }
            for run, entry in settings.entries("runs", Section).items()
        }
    for block, entries in settings:
        if isinstance(entries, Mapping):
            paths = {entry: getattr(own, "path", None) for entry, own in entries.items()}
            located = {
                entry: {"path": str(Path(path).absolute())} for entry, path in paths.items() if path
            }
            if located:
                places[block] = located
    places = merged(places, locate_own_files(settings))
    places = merged(places, _locate_named_encoders(plan))
    if folder := _find_folder(settings.encoder):
        places["encoder"] = folder
    return yaml.safe_dump(
        redacted(merged(configuration.config(), places)), allow_unicode=True, sort_keys=True
    )


def _locate_named_encoders(plan: FullPlan) -> Json:
    """Return entries for the encoders that systems and models name by a relative path, `{encoders: {path: entry}}`.

    An entry is found before a folder, so that the names stay, and with them the rows of the table.
    """
    known = {getattr(entry, "path", None) for entry in plan.settings.encoders.values()}
    entries: Json = {}
    for stage in plan.stages.values():
        path = str(stage.execution.get("path") or "")
        if stage.declared.holds != "encoder" or not path or path in known:
            continue
        if not Path(path).is_absolute():
            entries[path] = {"source": "folder", "path": str(Path(path).absolute())}
    return {"encoders": entries} if entries else {}


def locate_own_files(section: object) -> Json:
    """Return the language models in a section, at any depth, that are folders, and filled sheets: by absolute paths."""
    if isinstance(section, HostedModel):
        folder = "" if section.endpoint else _find_folder(section.model)
        return {"model": folder} if folder else {}
    if isinstance(section, Section):
        items: Iterable[tuple[str, object]] = section
    elif isinstance(section, Mapping):
        items = section.items()
    else:
        return {}
    inner: Json = {key: locate_own_files(value) for key, value in items}
    if sheet := getattr(section, "sheet", None):
        inner["sheet"] = str(Path(sheet).absolute())
    return {key: own for key, own in inner.items() if own}


def _find_folder(name: str) -> str:
    """Return the absolute path of a folder; empty for a name on the hub or in a catalogue."""
    return str(Path(name).absolute()) if Path(name).is_dir() else ""


def write_readme(
    name: str, configuration: Configuration, plugins: tuple[str, ...], manifests: list[Manifest]
) -> str:
    """Return the text on how to verify the bundle, and how to reproduce the table."""
    trained = [
        manifest.execution.get("workers") for manifest in manifests if KINDS[manifest.kind].ranks
    ]
    return render_markdown(
        Path(__file__).parent / "assets/bundle.md",
        name=name,
        commits=sorted({str(manifest.commit) for manifest in manifests}),
        configuration=configuration.name,
        has_plugin_files=any(map(is_file_name, plugins)),
        packages=list_packages(plugins),
        dirty=any(manifest.dirty for manifest in manifests),
        again=REMADE_FOLDER,
        # the number of threads decides how sums are split
        cores=max((count for count in trained if isinstance(count, int)), default=1),
        table=f"results/tables/{name}.csv",
        origins=[
            (manifest, describe_artifact_source(manifest))
            for manifest in manifests
            if manifest.kind in holding("collection", "encoder")
        ],
    )


def list_packages(plugins: Iterable[str]) -> list[str]:
    """Return the packages of the installed plugins, in pip's form: `bees==1.0`."""
    offered = {entry.name: entry.dist for entry in entry_points(group=GROUP)}
    packages = {offered[plugin] for plugin in plugins if not is_file_name(plugin)}
    return sorted(f"{package.name}=={package.version}" for package in packages if package)


def describe_artifact_source(manifest: Manifest) -> str:
    """Return where a dataset or an encoder came from."""
    params, execution = manifest.params, manifest.execution
    places = [file["url"] for file in execution.get("files", {}).values() if "url" in file]
    places += [str(Path(execution["path"]).absolute())] if "path" in execution else []
    if params["source"] == "hub":
        places.append(
            f"{params['name']}, commit {manifest.facts.get('hub_commit') or params['revision']}"
        )
    if places:
        return "; ".join(dict.fromkeys(places))
    named = params.get("id") or params.get("package")
    if named or manifest.upstream or manifest.kind not in holding("collection"):
        return named or "made here"
    # a plugin's format may name its files by its own keys
    source, of_all = sources().get(params["source"], Dataset), Dataset.model_fields
    own = [name for name in source.model_fields if name in params and name not in of_all]
    return ", ".join(f"{name}: {params[name]}" for name in own) or "made here"
