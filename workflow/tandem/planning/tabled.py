"""The tables that a configuration could make: their layouts, their rows with the scores behind them, their targets."""

from pathlib import Path

from tandem.config.loading import read_bands
from tandem.errors import Unavailable, UserError
from tandem.evaluation.layouts import PlannedRow, TablePlan, beside
from tandem.planning.config import Config
from tandem.planning.graph import Stage
from tandem.planning.resolver import Resolver
from tandem.planning.rows import Row, Rows
from tandem.planning.schema import NAME, nearest, shown
from tandem.planning.variants import Variants


class Tables(dict[str, list[tuple[Row, Stage]]]):
    """Table → its rows with their scores, of each table that can be made.

    Args:
        resolver: of the configuration.
        variants: of it, for rows that change it.
        folder: the layouts, config/papers.
    Attributes:
        layouts: table → its file, of all that are known.
        missing: table → why it cannot be made.
    Raises:
        UserError: a layout is unknown or broken, or a wanted table asks for what the configuration lacks.
    """

    def __init__(self, resolver: Resolver, variants: Variants, folder: Path) -> None:
        super().__init__()
        self.config = resolver.config
        self.layouts = _layouts(self.config, folder)
        self.missing: dict[str, str] = {}
        self._rows = Rows(resolver, variants)
        for name, layout in self.layouts.items():
            try:
                self[name] = self._rows.of(layout)
            except UserError as error:
                # A layout whose models or splits are not there is only a mistake if its table is wanted.
                if name in self.wanted() and not isinstance(error, Unavailable):
                    raise
                self.missing[name] = str(error)
                resolver.opened.clear()

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

    def absent(self, paper: str) -> list[str]:
        """A line for each table of a paper that cannot be made: which, and why."""
        return [f"{table} is not made: {self.missing[table]}" for table in self.papers[paper] if table in self.missing]

    def wanted(self) -> list[str]:
        """Names of the tables of `rule all`."""
        return [_name(told) for told in self.config["tables"]]

    def made(self, *names: str) -> list[str]:
        """The files of tables, of the wanted ones if none is named.

        Raises:
            UserError: a table needs a split that the dataset lacks, or a model that the configuration lacks.
        """
        for name in names or self.wanted():
            if name not in self:
                raise UserError(f"table {name} cannot be made: {self.missing[name]}")
        return [f"results/tables/{name}.csv" for name in names or self.wanted()]

    def scores(self, table: str) -> list[str]:
        """Manifests of the scores that a table shows."""
        return list(dict.fromkeys(stage.manifest for _, stage in self[table]))

    def wanted_scores(self) -> list[Stage]:
        """The scores that the tables of `rule all` show, as far as they can be made, table after table."""
        return [stage for table in self.wanted() for _, stage in self.get(table, ())]

    def to_json(self, table: str) -> str:
        """Everything that the command `table` reads: layout, bands, and the scores of the rows."""
        file = self.layouts[table]
        bands = beside(file, "bands.yaml")
        within = bands is not None and file.parent != bands.parent
        plan = TablePlan(
            name=f"{file.parent.name}/{file.stem}" if within else file.stem,
            layout=self._rows.layouts[file],
            rows=tuple(PlannedRow.model_validate(row) for row in self.rows(table)),
            bands=tuple(read_bands(bands)) if bands else (),
        )
        return plan.model_dump_json(by_alias=True, exclude_defaults=True)

    def rows(self, table: str) -> list[Row]:
        """A table's rows, as `Rows.of` has them, with the folders of their scores or why they have none."""
        made = [{**row, "scores": stage.folder} for row, stage in self[table]]
        return made + self._rows.absent[self.layouts[table]]

    def systems(self) -> list[Row]:
        """The rows of all wanted tables, each system once; another run under a name that is taken says its table.

        Of several seeds the first, and only where the first row is searched: they are compared query by query.
        """
        made: dict[tuple[str, str], Row] = {}
        wanted = [table for table in self.wanted() if table in self]
        found = [(table, row) for table in wanted for row in self.rows(table) if "scores" in row]
        where = [tuple(row[key] for key in ("dataset", "split", "seed")) for _, row in found]
        for (table, told), place in zip(found, where, strict=True):
            if place != where[0]:
                continue
            row = {key: told[key] for key in ("system", "first_stage", "scores")}
            name = row["system"], row["first_stage"]
            if made.setdefault(name, row)["scores"] != row["scores"]:
                row = {**row, "system": f"{row['system']} ({table})"}
                made[row["system"], row["first_stage"]] = row
        return list(made.values())


def _layouts(config: Config, folder: Path) -> dict[str, Path]:
    """Table name → layout file: those of config/papers/ and the user's own."""
    made = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.yaml"))}
    made.pop("bands", None)
    for told in config["tables"]:
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
