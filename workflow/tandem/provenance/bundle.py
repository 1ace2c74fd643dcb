"""The command `bundle`: what a reader needs to make a table again, in one archive with the same bytes every time."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem.artifact import MANIFEST, check_files
from tandem.data.download import readable
from tandem.errors import UserError, nearest
from tandem.extras.plan import FullPlan
from tandem.provenance import archive
from tandem.provenance.archive import Content
from tandem.provenance.asked import Asked
from tandem.provenance.bundled import LIST
from tandem.provenance.found import RESULTS, find
from tandem.provenance.instructions import configuration, layout, readme
from tandem.provenance.lineage import as_json, as_text
from tandem.provenance.wanted import ROOT, Told, read_told
from tandem.reporting.lineage import Stage, walk
from tandem.searching import words as command_line

PACKED = ("score", "match")  # kinds whose files are packed; of the others, but for runs, only the manifest
RUN = "run.trec"
VIEWS = (".csv", ".md", ".tex", ".json", ".html")  # forms of a table; beside it lies its log
PINNED = (".lock", ".yaml", ".in")  # of envs/


@dataclass(frozen=True)
class Packed:
    """What goes into a bundle.

    Attributes:
        files: place in the bundle → content, or the file that has it.
        left_out: keys of the stages of which only the manifest is there.
    """

    files: dict[str, Content]
    left_out: list[str]

    def listed(self) -> dict[str, Content]:
        """The files, and the list of them by which an unpacked bundle is verified."""
        told = {place: archive.told(content) for place, content in sorted(self.files.items())}
        head = json.dumps({"files": told, "left_out": self.left_out}, indent=1, ensure_ascii=False) + "\n"
        return {**self.files, LIST: head.encode()}


def main(words: list[str]) -> int:
    """`bundle TABLE [FILE.yaml …] [--config key=value …] [--out FILE.tar.gz|FILE.zip]`.

    Packs the table with its scores and runs, the manifests of all stages behind it, its lineage, the configuration as
    it was resolved, the table's layout, the lock files, and a README with the commands that make the table again. The
    same results give the same bytes. `tandem verify` works on the unpacked folder.

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
    packed, top = gather(name, configurations[0]), out.name.removesuffix(".zip").removesuffix(".tar.gz")
    archive.write(packed.listed(), out, top)
    told_of = f"{len(packed.files)} files, {readable(out.stat().st_size)}"
    print(f"{out}: {told_of}; unpack it, then: tandem verify {top}")
    return 0


def gather(name: str, told: Told) -> Packed:
    """Collect what a table is made of.

    Raises:
        UserError: no such table, one that is not made under this configuration, or a file that is damaged.
    """
    plan = FullPlan(told.config(), ROOT)
    if name not in plan.tables:
        known = plan.tables.missing.get(name) or f"is no table{nearest(name, sorted(plan.tables))}"
        raise UserError(f"bundle: {name}: {known}")
    scores = {stage.key: stage for _, stage in plan.tables[name]}.values()
    made = RESULTS / "tables" / f"{name}.json"
    absent = [stage.folder for stage in scores if not Path(stage.manifest).is_file()]
    if absent or not made.is_file():
        target = next(target for target, table in plan.tables.targets.items() if table == name)
        raise UserError(f"bundle: {absent[0] if absent else made} is not made; run: snakemake --cores 1 {target}")
    asked = Asked(f"table {name}", [find(stage.folder) for stage in scores])
    stages = walk(asked.artifacts)
    views = [path for path in sorted(made.parent.glob(f"{made.stem}.*")) if path.suffix in VIEWS]
    pinned = [path for path in sorted((ROOT / "envs").glob("*")) if path.suffix in PINNED]
    files: dict[str, Content] = {
        "README.md": readme(name, told, list(stages.values())).encode(),
        "config.yaml": configuration(plan, name).encode(),
        "lineage.txt": (as_text(asked, stages) + "\n").encode(),
        "lineage.json": (as_json(asked, stages) + "\n").encode(),
        **{f"results/tables/{path.relative_to(RESULTS / 'tables')}": path for path in views},
        **{f"layout/{path.name}": path for path in layout(plan, name)},
        **{f"envs/{path.name}": path for path in pinned},
    }
    left_out = []
    for stage in stages.values():
        place = Path("results", *stage.artifact.folder.absolute().parts[-3:]).as_posix()
        files[f"{place}/{MANIFEST}"] = stage.artifact.folder / MANIFEST
        own = list(_packed(stage))
        check_files(stage.artifact, own)
        files |= {f"{place}/{file}": stage.artifact.path(file) for file in own}
        left_out += [] if own else [stage.key]
    return Packed(files, sorted(left_out))


def _packed(stage: Stage) -> Iterator[str]:
    """The files of a stage that are packed: all of scores and runs, none of models, vectors and collections."""
    files = stage.artifact.manifest["files"]
    if stage.kind in PACKED or RUN in files:
        yield from files
