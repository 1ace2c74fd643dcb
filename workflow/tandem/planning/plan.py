"""What a configuration wants: its stages, its tables' rows, and the way to each."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.errors import Unavailable, UserError
from tandem.kinds import KINDS
from tandem.planning.analysed import Analyses
from tandem.planning.config import Config
from tandem.planning.graph import Stage, Stages
from tandem.planning.resolver import check_all
from tandem.planning.rows import Row, Rows
from tandem.planning.schema import NAME, nearest, shown
from tandem.planning.sweeps import Sweeps
from tandem.planning.variants import Variants
from tandem.reporting.layout import beside

if TYPE_CHECKING:
    from tandem.planning.counting import Present

SHARED = ("printed.csv", "bands.yaml")  # what layouts read beside themselves


class Plan:
    """Everything the Snakefile asks.

    Args:
        told: the configuration as Snakemake gathered it.
        root: the checkout.
    Raises:
        UserError: one line per mistake in the configuration.
    """

    def __init__(self, told: Config, root: Path) -> None:
        self.stages = Stages()
        self.variants = Variants(told, root, self.stages)
        self.resolver = self.variants.resolver({})
        self.config = self.resolver.config
        self.analyses = Analyses(self.resolver)
        self.catalogue = dict(self.config["datasets"])  # without the variants that tables ask for
        check_all(self.config)
        self.layouts = self._layouts(root / "config/papers")
        self.tables: dict[str, list[tuple[Row, Stage]]] = {}
        self.missing: dict[str, str] = {}
        self.statistics = {path.stem: path for path in sorted((root / "config/statistics").glob("*.yaml"))}
        self._counted: dict[str, Present] = {}
        self._rows = Rows(self.resolver, self.variants)
        for name, layout in self.layouts.items():
            try:
                self.tables[name] = self._rows.of(layout)
            except UserError as error:
                # A layout whose models or splits are not there is only a mistake if its table is wanted.
                if name in self.wanted() and not isinstance(error, Unavailable):
                    raise
                self.missing[name] = str(error)
                self.resolver.opened.clear()
        for system in self.config["systems"]:
            self.resolver.run(system, self.split, "systems")
        self.swept = Sweeps(self.variants, root / "config/sweeps")

    @property
    def split(self) -> str:
        """The split whose scores are reported."""
        return self.resolver.runs.split(self.config["dataset"])

    @property
    def targets(self) -> dict[str, str]:
        """Target of the command line → table: `rocketqav2_table4` → `rocketqav2/table4`."""
        return {table.replace("/", "_").replace("-", "_"): table for table in self.layouts}

    @property
    def papers(self) -> dict[str, list[str]]:
        """Target of a whole paper → its tables: `rocketqav2` → `rocketqav2/table2`, ….

        Only of the tables that stand in a folder of config/papers/.
        """
        made: dict[str, list[str]] = {}
        for table in self.layouts:
            if "/" in table:
                made.setdefault(table.split("/")[0], []).append(table)
        return made

    def of_paper(self, paper: str) -> list[str]:
        """The files of a paper's tables, as far as they can be made, those of its datasets included.

        Raises:
            UserError: none can be made.
        """
        there = [table for table in self.papers[paper] if table in self.tables]
        if not there:
            raise UserError("\n".join(self.absent(paper)))
        counts = [f"results/statistics/{name}.csv" for name in self.statistics if name.startswith(f"{paper}_")]
        return [*self.made(*there), *self.analyses.tables(paper), *counts]

    def absent(self, paper: str) -> list[str]:
        """A line for each table of a paper that cannot be made: which, and why."""
        return [f"{table} is not made: {self.missing[table]}" for table in self.papers[paper] if table in self.missing]

    def beside(self, table: str) -> list[str]:
        """What a table's layout reads beside itself: printed numbers, bands."""
        return [str(file) for name in SHARED if (file := beside(self.layouts[table], name))]

    def wanted(self) -> list[str]:
        """Names of the tables of `rule all`."""
        return [_name(told) for told in self.config["tables"]]

    def made(self, *names: str) -> list[str]:
        """The files of tables, of the wanted ones if none is named.

        Raises:
            UserError: a table needs a split that the dataset lacks, or a model that the configuration lacks.
        """
        for name in names or self.wanted():
            if name not in self.tables:
                raise UserError(f"table {name} cannot be made: {self.missing[name]}")
        return [f"results/tables/{name}.csv" for name in names or self.wanted()]

    def scores(self, table: str) -> list[str]:
        """Manifests of the scores that a table shows."""
        return list(dict.fromkeys(stage.manifest for _, stage in self.tables[table]))

    def rows(self, table: str) -> list[Row]:
        """A table's rows for the command line, as `Rows.of` has them, with their scores or why they have none."""
        made = [{**row, "scores": stage.folder} for row, stage in self.tables[table]]
        return made + self._rows.absent[self.layouts[table]]

    def wanted_sweeps(self) -> list[str]:
        """Names of the sweeps of `rule all`: the configuration's."""
        return self.swept.wanted

    def sweeps(self, *names: str) -> list[str]:
        """The files of sweeps that programs read, of the wanted ones if none is named."""
        return self.swept.files(names or self.wanted_sweeps())

    def systems(self) -> list[Row]:
        """The rows of all wanted tables, each system once; another run under a name that is taken says its table.

        Of several seeds the first, and only where the first row is searched: they are compared query by query.
        """
        made: dict[tuple[str, str], Row] = {}
        found = [
            (table, row)
            for table in self.wanted()
            if table in self.tables
            for row in self.rows(table)
            if "scores" in row
        ]
        where = [tuple(row[key] for key in ("dataset", "split", "seed")) for _, row in found]
        alike = [one for one, at in zip(found, where, strict=True) if at == where[0]]
        for table in self.wanted():
            for row in (row for name, row in alike if name == table):
                row = {key: row[key] for key in ("system", "first_stage", "scores")}
                name = row["system"], row["first_stage"]
                if made.setdefault(name, row)["scores"] != row["scores"]:
                    row = {**row, "system": f"{row['system']} ({table})"}
                    made[row["system"], row["first_stage"]] = row
        return list(made.values())

    def audits(self) -> list[str]:
        """Manifests of the audits of the dataset, and of the scores that show their effect."""
        return [stage.manifest for stage in self.resolver.audits.all(self.config["dataset"])]

    def validations(self, full: bool = True) -> list[Row]:
        """The checkpoints of the wanted tables' models with their validations, as `fidelity` and `report` read them.

        Args:
            full: with those on the full corpus.
        """
        validated = self.resolver.validated
        shown = [stage for name in self.wanted() for _, stage in self.tables.get(name, ())]
        found = [(one, validated.full(one) if full else None) for one in validated.of_models(shown)]
        return [one.row | {"full": whole.folder if whole else ""} for one, whole in found]

    def fidelity(self) -> list[Row]:
        """The same for the command `fidelity`; a line where there is nothing to compare."""
        if not (rows := self.validations()):
            raise UserError("fidelity: no model of the wanted tables has train.checkpoints; set it to a number")
        return rows

    def tradeoffs(self) -> Stage:
        """The stage that measures indexes against one another."""
        try:
            return self.resolver.indexed.tradeoffs()
        finally:
            self.resolver.opened.clear()

    def by_name(self) -> None:
        """Plan what else may be asked for by name, as far as it can be had: a job's own process only knows its key."""
        asked: list[Callable[[], object]] = [self.audits, self.tradeoffs]
        asked += [partial(self.analyses.stage, name) for name in self.analyses.notebooks]
        for ask in asked:
            with suppress(UserError):
                ask()
        self.resolver.opened.clear()

    def counted(self, table: str) -> "Present":
        """The datasets of a statistics table: stages of those that are here, and why the others are not counted."""
        # Imported and asked only for these tables: looking for downloads takes a second or two.
        from tandem.planning.counting import count

        if table not in self._counted:
            self._counted[table] = count(self.statistics[table], self.resolver)
        return self._counted[table]

    def shards(self, kind: str, key: str) -> list[str]:
        """The jobs that share a stage's work before it runs itself: `execution.shards` of them.

        None where nothing is to be shared and for queries' embeddings; a single shard is no job of its own: the stage
        does whatever is missing.
        """
        stage, count = self.stages.find(kind, key), self.config["execution"]["shards"]
        shared = KINDS[kind].shards or KINDS[kind].computes(stage.upstream)
        if count == 1 or stage.params.get("side") == "queries" or not shared:
            return []
        return [f"{stage.folder}/shards/{i}-of-{count}.json" for i in range(count)]

    def state(self, key: str) -> list[str]:
        """The folder of the state that a checkpoint goes on from; none for the first."""
        after = self.stages.find("checkpoint", key).upstream.get("after")
        return [f"{after.folder}/state"] if after else []

    def devices(self, kind: str) -> dict[str, Any]:
        """A rule's resources for what its stages compute on.

        `gpu` is what Snakemake counts and slurm gives. A training on several nodes gets as many on each (`gres`), and
        `start`, the words before its command: srun starts a launcher on every node of the job's allocation.
        """
        ranks, told = KINDS[kind].ranks, self.config["execution"]
        devices, nodes = (told["devices"], told["nodes"]) if ranks else (1, 1)

        def gpu(wildcards: Any) -> int:
            """GPUs of a job on one node."""
            stage = self.stages.find(kind, wildcards.key)
            return devices * (KINDS[kind].computes(stage.upstream) and stage.execution.get("engine") != "faiss")

        def srun(wildcards: Any, threads: int) -> str:
            """One launcher a node; what needs no device runs once."""
            return f"srun --nodes={nodes} --ntasks={nodes} --cpus-per-task={threads} " if gpu(wildcards) else ""

        if nodes == 1:
            return {"gpu": gpu, **({"start": "", "nodes": 1} if ranks else {})}  # slurm may spread GPUs over nodes
        # `mpi` has the slurm plugin start the job's shell once instead of under an srun of its own.
        spread = {"mpi": "srun", "nodes": nodes, "tasks": nodes, "tasks_per_gpu": 0, "gres": f"gpu:{devices}"}
        return {"start": srun, **spread}

    def _layouts(self, folder: Path) -> dict[str, Path]:
        """Table name → layout file: those of config/papers/ and the user's own."""
        made = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.yaml"))}
        made.pop("bands", None)
        for told in self.config["tables"]:
            if told.endswith(".yaml"):
                if not Path(told).is_file():
                    raise UserError(f"tables: {told} is no file")
                if not NAME.fullmatch(_name(told)):
                    allowed = "a layout's file name may hold letters, digits, `_`, `.` and `-`"
                    raise UserError(f"tables: {shown(told)}: {allowed}")
                made[_name(told)] = Path(told)
            elif told not in made:
                raise UserError(f"tables: {told} is unknown{nearest(told, sorted(made))}")
        return made


def _name(told: str) -> str:
    """A table's name: as told, or the stem of a layout file."""
    return Path(told).stem if told.endswith(".yaml") else told
