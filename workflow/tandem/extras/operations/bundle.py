"""The command `bundle`: what a reader needs to make a table again, in one archive with the same bytes every time."""

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from tandem import ROOT
from tandem.data.fetch import readable
from tandem.errors import UserError, nearest
from tandem.extras.operations.configurations import Configuration, Configurations, split_files
from tandem.extras.operations.lineage import Target, lineage_json, lineage_text
from tandem.extras.operations.scan import RESULTS, find
from tandem.extras.plan import FullPlan
from tandem.stages import KINDS
from tandem.stages.base import Json
from tandem.store.artifact import MANIFEST, FileRecord, Manifest, check_files
from tandem.store.environment import redacted
from tandem.store.files import replacing
from tandem.store.lineage import Stage, walk

TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold
LIST = "bundle.json"
AGAIN = "again"  # the folder in an unpacked bundle where its table is made again

Content = bytes | Path


def write_archive(files: dict[str, Content], out: Path, top: str) -> None:
    """Write the archive under a temporary name, then rename it; files by name, no times, no owners."""
    files = dict(sorted(files.items()))
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as partial:
        (_zip if out.suffix == ".zip" else _tar)(files, partial, top)


def record(content: Content) -> FileRecord:
    """A file's size and checksum."""
    with _open(content) as file:
        return FileRecord(bytes=_size(content), sha256=hashlib.file_digest(file, "sha256").hexdigest())


def _size(content: Content) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def _open(content: Content) -> io.BufferedReader | io.BytesIO:
    return content.open("rb") if isinstance(content, Path) else io.BytesIO(content)


def _tar(files: dict[str, Content], path: Path, top: str) -> None:
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for place, content in files.items():
            entry = tarfile.TarInfo(f"{top}/{place}")
            entry.size, entry.mode = _size(content), 0o644
            with _open(content) as file:
                archive.addfile(entry, file)


def _zip(files: dict[str, Content], path: Path, top: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for place, content in files.items():
            entry = zipfile.ZipInfo(f"{top}/{place}", TIME)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            with _open(content) as file, archive.open(entry, "w", force_zip64=_size(content) > 1 << 31) as into:
                while piece := file.read(1 << 20):
                    into.write(piece)


@dataclass(frozen=True)
class Bundle:
    """An unpacked bundle.

    Attributes:
        folder: where it was unpacked.
        files: size and checksum of each file by its place.
        left_out: keys of the artifacts of which only the manifest was packed.
    """

    folder: Path
    files: dict[str, FileRecord]
    left_out: frozenset[str]

    @classmethod
    def at(cls, folder: Path) -> "Bundle | None":
        """The bundle in a folder; None if there is none."""
        path = folder / LIST
        if not path.is_file():
            return None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            files = TypeAdapter(dict[str, FileRecord]).validate_python(data["files"])
            return cls(folder, files, frozenset(data["left_out"]))
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            raise UserError(f"{path}: is not what `tandem bundle` writes; unpack the archive anew") from None

    @property
    def list_path(self) -> Path:
        """The file that lists the others."""
        return self.folder / LIST

    @property
    def results(self) -> Path:
        """Its artifacts."""
        return self.folder / "results"

    def lists(self, path: Path) -> bool:
        """Whether a file below the folder belongs to the bundle, or to its table made again."""
        place = path.relative_to(self.folder)
        return place.as_posix() in self.files or path == self.list_path or place.parts[0] == AGAIN


PACKED = ("score", "match")  # kinds whose files are packed; of the others, but for runs, only the manifest
RUN = "run.trec"
VIEWS = (".csv", ".md", ".tex", ".json", ".html")  # forms of a table; beside it lies its log
PINNED = (".lock", ".yaml", ".in")  # of envs/
README = """# {name}

Made with Tandem at commit {commits} from {configuration}.
{dirty}
- `results/tables/`: the table; `lineage.txt`: every stage behind it, with parameters, versions, seed and machine
- `results/*/*/*/stage.json`: their manifests; scores and runs with their files, of the others the checksums alone
- `config.yaml`: the configuration with every default; `layout/`: the table's rows and printed numbers
- `envs/`: the pinned libraries

Whether this folder is whole: `tandem verify .`

## To make the table again

In this folder, where `TANDEM` is a checkout at that commit with `envs/requirements.lock` installed:

```sh
snakemake -s "$TANDEM/Snakefile" --directory {again} --configfile config.yaml --cores {cores} {table}
diff {table} {again}/{table} && echo "the same numbers"
```

What it starts from is not included; name other folders in `config.yaml`, or after `--config`:

{origins}
Another processor or number of cores trains with other last bits. `tandem why <a folder in {again}/> <the folder here>`
explains what else differs between two stages of one key.
"""
DIRTY = "\nSome stages ran with changes that no commit has; their manifests say which (`dirty`).\n"


@dataclass(frozen=True)
class Packed:
    """What goes into a bundle.

    Attributes:
        files: place in the bundle → content, or the file that has it.
        left_out: keys of the stages of which only the manifest is included.
    """

    files: dict[str, Content]
    left_out: list[str]

    def with_list(self) -> dict[str, Content]:
        """The files, and the list of them by which an unpacked bundle is verified."""
        records = {place: record(content).model_dump() for place, content in sorted(self.files.items())}
        head = json.dumps({"files": records, "left_out": self.left_out}, indent=1, ensure_ascii=False) + "\n"
        return {**self.files, LIST: head.encode()}


def bundle(table: str, /, *files: str, out: Path | None = None, configurations: Configurations = ()) -> None:
    """Pack a table with what a reader needs to make it again.

    The archive holds the table with its scores and runs, the manifests of all stages behind it, its lineage, the
    configuration as it was resolved, the table's layout, the lock files, and a README with the commands that make the
    table again. The same results give the same bytes. `tandem verify` works on the unpacked folder.

    Args:
        table: a name as in results/tables/: `rocketqav2/table4`.
        files: YAML files of the configuration that it was made with.
        out: FILE.tar.gz or FILE.zip; by default the table's name with .tar.gz.
    """
    names, paths = split_files([table, *files])
    if len(names) != 1 or len(configurations) != 1:
        raise UserError(f"bundle: takes one table of one configuration; {len(names)} names are no YAML files")
    name, configuration = names[0], configurations[0]
    configuration.files += paths
    out = out or Path(f"{name.replace('/', '_')}.tar.gz")
    if not out.name.endswith((".tar.gz", ".zip")):
        raise UserError(f"--out: is {out}; it must end in .tar.gz or .zip")
    packed, top = gather(name, configuration), out.name.removesuffix(".zip").removesuffix(".tar.gz")
    write_archive(packed.with_list(), out, top)
    size = f"{len(packed.files)} files, {readable(out.stat().st_size)}"
    print(f"{out}: {size}; unpack it, then: tandem verify {top}")


def gather(name: str, configuration: Configuration) -> Packed:
    """Collect what a table is made of.

    Raises:
        UserError: no such table, one that is not made under this configuration, or a file that is damaged.
    """
    plan = configuration.plan()
    if name not in plan.tables:
        problem = plan.tables.missing.get(name) or f"is not a table{nearest(name, sorted(plan.tables))}"
        raise UserError(f"bundle: {name}: {problem}")
    scores = {stage.key: stage for _, stage in plan.tables[name]}.values()
    table = RESULTS / "tables" / f"{name}.json"
    absent = [stage.folder for stage in scores if not Path(stage.manifest).is_file()]
    if absent or not table.is_file():
        rule = next(rule for rule, of in plan.tables.targets.items() if of == name)
        raise UserError(f"bundle: {absent[0] if absent else table} is not made; run: snakemake --cores 1 {rule}")
    target = Target(f"table {name}", [find(stage.folder) for stage in scores])
    stages = walk(target.artifacts)
    views = [path for path in sorted(table.parent.glob(f"{table.stem}.*")) if path.suffix in VIEWS]
    pinned = [path for path in sorted((ROOT / "envs").glob("*")) if path.suffix in PINNED]
    layout = plan.tables.layout_files(name)
    files: dict[str, Content] = {
        "README.md": readme(name, configuration, [stage.artifact.manifest for stage in stages.values()]).encode(),
        "config.yaml": resolved_configuration(plan, name).encode(),
        "lineage.txt": (lineage_text(target, stages) + "\n").encode(),
        "lineage.json": (lineage_json(target, stages) + "\n").encode(),
        **{f"results/tables/{path.relative_to(RESULTS / 'tables')}": path for path in views},
        **{f"layout/{path.name}": path for path in layout},
        **{f"envs/{path.name}": path for path in pinned},
    }
    left_out = []
    for stage in stages.values():
        place = Path("results", *stage.artifact.folder.absolute().parts[-3:]).as_posix()
        files[f"{place}/{MANIFEST}"] = stage.artifact.folder / MANIFEST
        own = packed_files(stage)
        check_files(stage.artifact, own)
        files |= {f"{place}/{file}": stage.artifact.path(file) for file in own}
        left_out += [] if own else [stage.key]
    return Packed(files, sorted(left_out))


def packed_files(stage: Stage) -> list[str]:
    """The files of a stage that are packed: all of scores and runs, none of models, vectors and collections."""
    files = stage.artifact.manifest.files
    return list(files) if stage.kind in PACKED or RUN in files else []


def resolved_configuration(plan: FullPlan, name: str) -> str:
    """The resolved configuration with every default, for the one table; without secrets.

    A layout of the user's own is the bundle's; folders of data and encoders are absolute: it is read elsewhere.
    """
    config: Json = redacted(plan.document())
    own = plan.tables.layouts[name]
    config["tables"] = [f"../layout/{own.name}"] if own in map(Path, plan.settings.tables) else [name]
    for entry in [*config["datasets"].values(), *config["encoders"].values()]:
        if isinstance(entry.get("path"), str):
            entry["path"] = str(Path(entry["path"]).absolute())
    if Path(config["encoder"]).is_dir():
        config["encoder"] = str(Path(config["encoder"]).absolute())
    return yaml.safe_dump(config, allow_unicode=True, sort_keys=True)


def readme(name: str, configuration: Configuration, manifests: list[Manifest]) -> str:
    """How to verify the bundle, and how to make the table again."""
    trained = [manifest.execution.get("workers") for manifest in manifests if KINDS[manifest.kind].ranks]
    return README.format(
        name=name,
        commits=", ".join(sorted({str(manifest.commit) for manifest in manifests})),
        configuration=configuration.name,
        dirty=DIRTY if any(manifest.dirty for manifest in manifests) else "",
        again=AGAIN,
        cores=max((count for count in trained if isinstance(count, int)), default=1),  # sums are split by threads
        table=f"results/tables/{name}.csv",
        origins="".join(_origins(manifests)),
    )


def _origins(manifests: list[Manifest]) -> Iterator[str]:
    """A line for each dataset and encoder that comes from elsewhere."""
    for manifest in manifests:
        params, execution = manifest.params, manifest.execution
        if manifest.kind not in ("dataset", "encoder"):
            continue
        places = [file["url"] for file in execution.get("files", {}).values() if "url" in file]
        places += [str(Path(execution["path"]).absolute())] if "path" in execution else []
        if params["source"] == "hub":
            places.append(f"{params['name']}, commit {manifest.facts.get('hub_commit') or params['revision']}")
        where = "; ".join(dict.fromkeys(places)) or params.get("id") or params.get("package") or "made here"
        yield f"- {manifest.kind} {manifest.key} ({params['source']}): {where}\n"
