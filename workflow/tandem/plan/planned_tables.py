"""Plan the tables that a configuration could make: layouts, rows with the scores behind them, and targets."""

from collections.abc import Iterable
from pathlib import Path

from tandem.config.loading import read_bands
from tandem.config.settings import RUN_KEYS, Settings
from tandem.errors import NAME, Unavailable, UserError, nearest, printable
from tandem.evaluation import layouts
from tandem.evaluation.layouts import (
    Layout,
    LayoutRow,
    PlannedRow,
    System,
    TablePlan,
    find_beside,
    name_system,
)
from tandem.plan.context import plans_view
from tandem.plan.graph import Stage, upstream_first
from tandem.plan.planner import Planners
from tandem.plan.table_rows import LayoutRows, list_unmeasured
from tandem.plan.views import name_configurations
from tandem.stages import KINDS, rule_names
from tandem.stages.training import ModelParams

Row = dict[str, str]
# Targets of the command line and rules, other than those of kinds of stages and of views that packages add.
RULE_NAMES = (
    "all",
    "report",
    "table",
    "stage",
    "datasets",
    "estimate",
)


class Tables(dict[str, list[tuple[PlannedRow, Stage]]]):
    """Map each table that can be made to its rows with their scores.

    Attributes:
        layouts: table → its file, for all known tables.
        missing: table → why it cannot be made.
        absent: table → its rows that cannot be made, each with the reason.
        skipped: table → the datasets of its columns that are missing splits, each with the reason.
    Raises:
        UserError: a layout is unknown or broken, or a requested table names what the configuration lacks.
    """

    def __init__(self, planners: Planners, folder: Path, root: Path, views: str) -> None:
        super().__init__()
        self.planners = planners
        self.views = views
        self.settings = planners.base.settings
        self.layouts = _layouts(self.settings, folder)
        self.missing: dict[str, str] = {}
        self.absent: dict[str, list[PlannedRow]] = {}
        self.skipped: dict[str, dict[str, str]] = {}
        self._read: dict[str, Layout] = {}
        _check_stand_ins(self.settings)
        for table, file in self.layouts.items():
            try:
                layout = layouts.load_layout(file)
                if layout.skip_unknown:
                    layout = layouts.drop_rows(
                        layout, [row.run for row in layout.rows if not self._has_run(row)]
                    )
                self._read[table] = layouts.with_systems(layout, self._systems(layout))
                rows = LayoutRows(planners, root, file, self._read[table])
                self[table], self.absent[table] = rows.scored()
                self.skipped[table] = rows.skipped
            except UserError as error:
                # A layout whose models or splits are missing is only a mistake if its table is requested.
                if table in self.requested() and not isinstance(error, Unavailable):
                    raise
                self.missing[table] = str(error)
        self._check_replaced()

    def _check_replaced(self) -> None:
        """Refuse a `stand_in` for a dataset that no table has."""
        stand_in = self.settings.stand_in
        if not isinstance(stand_in, dict):
            return
        named = set(self.settings.datasets).union(
            *(layout.datasets for layout in self._read.values())
        )
        for name in stand_in:
            if name not in named:
                raise UserError(f"stand_in: no table is of {name}{nearest(name, named)}")

    @property
    def targets(self) -> dict[str, str]:
        """Target of the command line → table: `rocketqav2_table4` → `rocketqav2/table4`."""
        return {_target(table): table for table in self.layouts}

    @property
    def papers(self) -> dict[str, list[str]]:
        """Target of a whole paper → its tables, whose layouts are in a folder of config/papers/."""
        papers: dict[str, list[str]] = {}
        for table in self.layouts:
            paper, slash, _ = table.partition("/")
            if slash:
                papers.setdefault(paper, []).append(table)
        return papers

    def lacking(self, tables: Iterable[str]) -> list[str]:
        """Return a line for each table that cannot be made, and for each reason why a table lacks rows."""
        lines = []
        for table in tables:
            if table in self.missing:
                lines.append(f"{table} is not made: {self.why_missing(table)}")
            elif columns := self._left_out(table):
                lines.append(
                    f"{table} leaves out {', '.join(columns)}: not measured (score.measures, depth.test)"
                )

            for dataset, reason in self.skipped.get(table, {}).items():
                lines.append(
                    f"{table}: {self._read[table].name_dataset(dataset)} is not measured: {reason}"
                )

            systems_by_reason: dict[str, list[str]] = {}
            for row in self.absent.get(table, ()):
                systems_by_reason.setdefault(row.absent, []).append(name_system(row.id))
            for reason, systems in systems_by_reason.items():
                lines.append(f"{table} lacks {', '.join(systems)}: {reason}")

            for row, _ in self.get(table, ()):
                if row.same_as:
                    lines.append(
                        f"{table}: {name_system(row.id)} is the same run as {row.same_as} here"
                    )
        return list(dict.fromkeys(lines))  # each line once, also for a row of several seeds

    def why_missing(self, *tables: str) -> str:
        """Return a line on why tables cannot be made: the first one's reason, and the configurations they belong to."""
        reasons: list[str] = []
        configurations: dict[str, None] = {}
        for table in tables:
            reasons += self.missing[table].splitlines()
            if table in self._read:
                configurations |= dict.fromkeys(self._read[table].belongs_to)
        others = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return f"{reasons[0]}{others}{name_configurations(configurations, self.views)}"

    def runs(self, tables: Iterable[str]) -> list[str]:
        """Return the runs of tables' rows, each once."""
        runs: dict[str, None] = {}
        for table in tables:
            if table in self:
                runs |= dict.fromkeys(row.run for row in self._read[table].rows)
        return list(runs)

    def _has_run(self, row: LayoutRow) -> bool:
        return row.quoted or self.planners.base.ctx.has_run(row.run)

    def _left_out(self, table: str) -> list[str]:
        """Return the columns of a table that have neither a measured nor a printed value."""
        layout, skipped = self._read[table], self.skipped[table]
        return [
            column.label
            for column in list_unmeasured(layout, self[table])
            if column.id not in layout.printed and column.dataset not in skipped
        ]

    def unshown(self) -> list[str]:
        """Return a line if the configuration's `systems` has runs for which no requested table has a row."""
        shown = self.runs(self.requested())
        unshown = [system for system in self.settings.systems if system not in shown]
        if not shown or not unshown:
            return []
        every = ", ".join(
            sorted(table for table, layout in self._read.items() if layout.systems == "all")
        )
        return [
            f"systems names {', '.join(unshown)}, which no table of `tables` shows; tables of all systems: {every}"
        ]

    def requested(self) -> list[str]:
        """Return names of the tables of `rule all`."""
        return [_table_name(table) for table in self.settings.tables]

    def files(self, *tables: str) -> list[str]:
        """Return the files of tables; if none is named, of the requested ones that can be made.

        Raises:
            UserError: a named table, or each that is requested, needs a split that the dataset lacks.
        """
        selected = tables or self.requested()
        missing = [table for table in selected if table not in self]
        if missing and (tables or len(missing) == len(selected)):
            raise UserError(
                "\n".join(
                    f"table {table} cannot be made: {self.why_missing(table)}" for table in missing
                )
            )
        return [f"{self.views}/tables/{table}.csv" for table in selected if table in self]

    def scores(self, tables: Iterable[str]) -> list[Stage]:
        """Return the scores that tables show, as far as these can be made, table after table."""
        return [stage for table in tables for _, stage in self.get(table, ())]

    def requested_scores(self) -> list[Stage]:
        """Return the scores that the tables of `rule all` show."""
        return self.scores(self.requested())

    def score_manifests(self, table: str) -> list[str]:
        """Return the manifests of the scores that a table shows, each once."""
        return list(dict.fromkeys(stage.manifest for stage in self.scores([table])))

    def layout_files(self, table: str) -> list[Path]:
        """Return a table's layout, and the printed numbers and bands next to it."""
        file = self.layouts[table]
        beside = [find_beside(file, name) for name in ("printed.csv", "bands.yaml")]
        return [file, *filter(None, beside)]

    def to_json(self, table: str) -> str:
        """Return everything that the command `table` reads: layout, bands, and the scores of the rows."""
        file = self.layouts[table]
        bands = find_beside(file, "bands.yaml")
        within = bands is not None and file.parent != bands.parent
        entries = read_bands(bands) if bands else []
        if not self.planners.variants.changed() <= RUN_KEYS:
            # Bands that were measured with config/config.yaml do not apply to other settings, except a table's own.
            entries = [band for band in entries if band.sd is None or band.table]
        plan = TablePlan(
            name=f"{file.parent.name}/{file.stem}" if within else file.stem,
            layout=self._read[table],
            rows=tuple(self.rows(table)),
            bands=tuple(entries),
            skipped=self.skipped[table],
        )
        return plan.model_dump_json(by_alias=True, exclude_defaults=True)

    def rows(self, table: str) -> list[PlannedRow]:
        """Return a table's rows, with their scores or why they have none."""
        return [row for row, _ in self[table]] + self.absent[table]

    def systems(self) -> list[Row]:
        """Return the rows of all requested tables, each system once.

        If two runs have the same name, the second one is named with its table. Of several seeds the first one counts.
        Only rows with the queries of the first row are returned, as systems are compared query by query.
        """
        systems: dict[System, Row] = {}
        runs: dict[System, object] = {}
        first_queries: object = None
        for table in self.requested():
            for row, stage in self.get(table, ()):
                inputs = stage.upstream
                queries = (
                    row.dataset,
                    row.split,
                    row.seed,
                    inputs.get("subset"),
                    inputs.get("others"),
                )
                if first_queries is None:
                    first_queries = queries
                if queries != first_queries:
                    continue
                # runs are compared by their scores and labels, whatever the measures of a table are
                run = (row.run or row.scores, inputs.get("labels"))
                is_other = runs.setdefault(row.id, run) != run
                name = f"{row.system} ({table})" if is_other else row.system
                system = {"system": name, "first_stage": row.first_stage, "scores": row.scores}
                systems.setdefault((name, row.first_stage), system)
        return list(systems.values())

    def _systems(self, layout: Layout) -> list[str]:
        """Return the configuration's `systems` that a layout has rows of."""
        if layout.systems is None:
            return []
        if layout.systems == "all":
            return list(self.settings.systems)
        return [system for system in self.settings.systems if self._needs_no_training(system)]

    def _needs_no_training(self, system: str) -> bool:
        """Return whether a system has a run without a trained model; one with a mistake is refused with its row."""
        try:
            runs = self.planners.base.reported_runs(system, "systems")
        except Unavailable:
            return False
        except UserError:
            return True
        return not any(isinstance(stage.params, ModelParams) for stage in upstream_first(runs))


def _check_stand_ins(settings: Settings) -> None:
    """Refuse a `stand_in` that names a dataset which the configuration lacks."""
    stand_in = settings.stand_in or {}
    if isinstance(stand_in, str):
        named = {"stand_in": stand_in}
    else:
        named = {f"stand_in.{replaced}": name for replaced, name in stand_in.items()}
    known = list(settings.datasets)
    for at, name in named.items():
        if name not in known:
            raise UserError(f"{at}: {name} is not a dataset{nearest(name, known)}")


def _layouts(settings: Settings, folder: Path) -> dict[str, Path]:
    """Return table name → layout file: those of config/papers/ and the user's own."""
    files = {
        str(path.relative_to(folder).with_suffix("")): path
        for path in sorted(folder.rglob("*.yaml"))
    }
    files.pop("bands", None)
    papers = {table.split("/")[0] for table in files if "/" in table}
    added = {name for view in plans_view for name in plans_view[view].rules}
    targets = {*RULE_NAMES, *added, *KINDS, *rule_names(), *papers}
    named: dict[str, str] = {}
    for table in settings.tables:
        name = _table_name(table)
        if settings.tables.count(table) > 1:
            raise UserError(f"tables: {table} is there twice")
        other = named.setdefault(name, table)
        if other != table:
            raise UserError(f"tables: {table} has the name of {other}; name it otherwise")
        if table.endswith(".yaml"):
            others = {_target(file) for file in files if file != name}
            _check_own_layout(table, name, targets | others)
            files[name] = Path(table)
        elif table not in files:
            raise UserError(f"tables: {table} is unknown{nearest(table, sorted(files))}")
    return files


def _check_own_layout(table: str, name: str, targets: set[str]) -> None:
    """Refuse a user's layout that is not there, or whose name cannot be a target or is one already."""
    if not Path(table).is_file():
        raise UserError(f"tables: {table} is not a file")
    if not NAME.fullmatch(name):
        allowed = "a layout's file name may hold letters, digits, `_`, `.` and `-`"
        raise UserError(f"tables: {printable(table)}: {allowed}")
    if _target(name) in targets:
        raise UserError(
            f"tables: {table}: {name} is the name of another target; name the file otherwise"
        )


def _target(table: str) -> str:
    return table.replace("/", "_").replace("-", "_")


def _table_name(table: str) -> str:
    """Return a table's name: as the configuration has it, or the stem of a layout file."""
    return Path(table).stem if table.endswith(".yaml") else table
