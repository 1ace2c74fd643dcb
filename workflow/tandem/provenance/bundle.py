"""The command `bundle`: what a reader needs to make a table again, in one archive with the same bytes every time."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tandem.artifact import MANIFEST, check_files
from tandem.data.download import readable
from tandem.errors import UserError
from tandem.planning.plan import Plan
from tandem.planning.schema import nearest
from tandem.provenance.asked import Asked
from tandem.provenance.bundled import LIST
from tandem.provenance.found import RESULTS, find
from tandem.provenance.lineage import as_json, as_text
from tandem.provenance.wanted import ROOT, Told, read_told
from tandem.redacted import redacted
from tandem.reporting.lineage import Stage, walk
from tandem.searching import words as command_line

PACKED = ("score", "match")  # kinds whose files are packed; of the others, but for runs, only the manifest
RUN = "run.trec"
TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can tell
Content = bytes | Path


@dataclass(frozen=True)
class Packed:
    """What goes into a bundle.

    Attributes:
        files: place in the bundle → content, or the file that has it.
        left_out: keys of the stages of which only the manifest is there.
    """

    files: dict[str, Content]
    left_out: list[str]


def main(words: list[str]) -> int:
    """`bundle TABLE [FILE.yaml …] [--config key=value …] [--out FILE.tar.gz|FILE.zip]`.

    Packs the table with its scores and runs, the manifests of all stages behind it, its lineage, the configuration as
    it was resolved, the table's layout, the lock files, and a README. The same results give the same bytes. `tandem
    verify` works on the unpacked folder.

    Args:
        words: TABLE is a name as in results/tables/, `rocketqav2/table4`; YAML files are those it was made with.
    """
    configurations, rest = read_told(words)
    told = command_line.read(rest, ("--out",), ())
    if len(told.names) != 1 or len(configurations) != 1:
        raise UserError(f"bundle: takes one table of one configuration, {len(told.names)} were given")
    configurations[0].files += told.files
    name = told.names[0]
    out = Path(told.values.get("--out", f"{name.replace('/', '_')}.tar.gz"))
    if not out.name.endswith((".tar.gz", ".zip")):
        raise UserError(f"--out: is {out}; it must end in .tar.gz or .zip")
    packed = gather(name, configurations[0])
    write(packed, out, out.name.removesuffix(".zip").removesuffix(".tar.gz"))
    told_of = f"{len(packed.files)} files, {readable(out.stat().st_size)}"
    print(f"{out}: {told_of}; unpack it, then: tandem verify {out.name.removesuffix('.zip').removesuffix('.tar.gz')}")
    return 0


def gather(name: str, configuration: Told) -> Packed:
    """Collect what a table is made of.

    Raises:
        UserError: no such table, one that is not made under this configuration, or a file that is damaged.
    """
    plan = Plan(configuration.config(), ROOT)
    if name not in plan.tables:
        known = plan.tables.missing.get(name) or f"is no table{nearest(name, sorted(plan.tables))}"
        raise UserError(f"bundle: {name}: {known}")
    scores = [stage for _, stage in plan.tables[name]]
    made = RESULTS / "tables" / f"{name}.json"
    absent = [stage.folder for stage in scores if not Path(stage.manifest).is_file()]
    if absent or not made.is_file():
        target = next(target for target, table in plan.tables.targets.items() if table == name)
        raise UserError(f"bundle: {absent[0] if absent else made} is not made; run: snakemake --cores 1 {target}")
    asked = Asked(f"table {name}", [find(stage.folder) for stage in scores])
    asked = Asked(asked.told, list({one.key: one for one in asked.artifacts}.values()))
    stages = walk(asked.artifacts)
    files: dict[str, Content] = {
        "lineage.txt": (as_text(asked, stages) + "\n").encode(),
        "lineage.json": (as_json(asked, stages) + "\n").encode(),
        "config.yaml": yaml.safe_dump(redacted(plan.config), allow_unicode=True, sort_keys=True).encode(),
    }
    files |= {
        f"results/tables/{path.name}": path for path in sorted(made.parent.glob(f"{made.stem}.*")) if _is_view(path)
    }
    files |= {f"layout/{path.name}": path for path in _layout(plan, name)}
    files |= {
        f"envs/{path.name}": path
        for path in sorted((ROOT / "envs").glob("*"))
        if path.suffix in (".lock", ".yaml", ".in")
    }
    left_out = []
    for stage in stages.values():
        at = stage.artifact.folder.absolute().parts[-3:]
        place = Path("results", *at).as_posix()
        files[f"{place}/{MANIFEST}"] = stage.artifact.folder / MANIFEST
        if own := list(_packed(stage)):
            check_files(stage.artifact, own)
            files |= {f"{place}/{file}": stage.artifact.path(file) for file in own}
        else:
            left_out.append(stage.key)
    files["README.md"] = _readme(name, configuration, stages).encode()
    return Packed(files, sorted(left_out))


def _is_view(path: Path) -> bool:
    """Whether a file is a form of the table, not its log."""
    return path.suffix in (".csv", ".md", ".tex", ".json", ".html")


def _layout(plan: Plan, name: str) -> Iterator[Path]:
    """A table's layout and what it reads beside itself."""
    yield plan.tables.layouts[name]
    yield from map(Path, plan.tables.beside(name))


def _packed(stage: Stage) -> Iterator[str]:
    """The files of a stage that are packed: all of scores and runs, none of models, vectors and collections."""
    files = stage.artifact.manifest["files"]
    if stage.kind in PACKED or RUN in files:
        yield from files


def _readme(name: str, configuration: Told, stages: dict[str, Stage]) -> str:
    """How to make the table again."""
    commits = sorted({str(one.artifact.manifest.get("commit")) for one in stages.values()})
    dirty = any(one.artifact.manifest.get("dirty") for one in stages.values())
    target = name.replace("/", "_").replace("-", "_")
    line = f"snakemake --cores 2 {target} --configfile config.yaml"
    changed = (
        "\nSome stages ran with changes that no commit has; their manifests say which (`dirty`).\n" if dirty else ""
    )
    return f"""# {name}

Made with Tandem at commit {", ".join(commits)} from {configuration.name}.
{changed}
- `results/tables/`: the table; `lineage.txt`: every stage behind it, with parameters, versions, seed and machine
- `results/*/*/*/stage.json`: their manifests; scores and runs with their files, of the others the checksums alone
- `config.yaml`: the configuration with every default; `layout/`: the table's rows and printed numbers
- `envs/`: the pinned libraries

Whether this folder is whole: `tandem verify .`

To make the table again, in a checkout at that commit with `envs/requirements.lock` installed:

    {line}

Every stage whose key is equal was made by the same parameters; `tandem why <its folder> <the folder here>` tells what
else differs.
"""


def write(packed: Packed, out: Path, top: str) -> None:
    """Write the archive under a temporary name, then rename it; files by name, no times, no owners.

    Args:
        packed: what goes into it.
        out: ends in `.tar.gz` or `.zip`.
        top: the folder that all of it lies in.
    """
    told = {place: _told(content) for place, content in sorted(packed.files.items())}
    head = json.dumps({"files": told, "left_out": packed.left_out}, indent=1, ensure_ascii=False) + "\n"
    files = dict(sorted({**packed.files, LIST: head.encode()}.items()))
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        (_zip if out.suffix == ".zip" else _tar)(files, partial, top)
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)


def _told(content: Content) -> dict[str, Any]:
    """A file's size and checksum."""
    with _opened(content) as file:
        return {"bytes": _size(content), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _size(content: Content) -> int:
    """Bytes of a content."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def _opened(content: Content) -> Any:
    """A content to read from."""
    return content.open("rb") if isinstance(content, Path) else io.BytesIO(content)


def _tar(files: dict[str, Content], path: Path, top: str) -> None:
    """A gzipped tar."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for place, content in files.items():
            entry = tarfile.TarInfo(f"{top}/{place}")
            entry.size, entry.mode = _size(content), 0o644
            with _opened(content) as file:
                archive.addfile(entry, file)


def _zip(files: dict[str, Content], path: Path, top: str) -> None:
    """A zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for place, content in files.items():
            entry = zipfile.ZipInfo(f"{top}/{place}", TIME)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            with _opened(content) as file, archive.open(entry, "w", force_zip64=_size(content) > 1 << 31) as into:
                while piece := file.read(1 << 20):
                    into.write(piece)
