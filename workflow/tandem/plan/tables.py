"""The tables that a configuration could make: their layouts, their rows with the scores behind them, their targets."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from tandem.config.loading import read_bands
from tandem.config.merging import read_yaml
from tandem.config.settings import Settings
from tandem.errors import NAME, Unavailable, UserError, nearest, printable
from tandem.evaluation import layouts
from tandem.evaluation.layouts import (
    Layout,
    LayoutRow,
    PlannedRow,
    System,
    TablePlan,
    beside,
    names_dataset,
    system_name,
)
from tandem.plan.datasets import StandIns
from tandem.plan.graph import Stage, upstream_first
from tandem.plan.planner import Planner, Planners, run_needs
from tandem.plan.reported import is_measurable, measures
from tandem.stages import KINDS, RULES
from tandem.stages.base import Json

Row = dict[str, str]
# Targets of the command line and rules, beside those of kinds of stages.
RULE_NAMES = (
    *("all", "report", "fidelity", "table", "stage", "datasets", "estimate", "index_tradeoffs", "audits", "statistics"),
    *("statistics_table", "sweep", "sweeps", "notebook", "notebooks", "error_table"),
)
# Keys of a configuration file that a layout names which are not taken over.
NOT_TAKEN = ("tables", "systems", "sweeps", "execution", "audits", "seed", "seeds")


class Tables(dict[str, list[tuple[PlannedRow, Stage]]]):
    """Table → its rows with their scores, of each table that can be made.

    Attributes:
        layouts: table → its file, of all that are known.
        missing: table → why it cannot be made.
        absent: table → its rows that cannot be made, each with the reason.
    Raises:
        UserError: a layout is unknown or broken, or a requested table names what the configuration lacks.
    """

    def __init__(self, planners: Planners, folder: Path, root: Path, views: str) -> None:
        super().__init__()
        self.planners, self.root, self.views = planners, root, views
        self.settings = planners.base.settings
        self.layouts = _layouts(self.settings, folder)
        self.missing: dict[str, str] = {}
        self.absent: dict[str, list[PlannedRow]] = {}
        self._read: dict[str, Layout] = {}
        stand_in, known = self.settings.stand_in or {}, list(self.settings.datasets)
        where = (
            {"stand_in": stand_in} if isinstance(stand_in, str) else {f"stand_in.{k}": v for k, v in stand_in.items()}
        )
        for at, name in where.items():
            if name not in known:
                raise UserError(f"{at}: {name} is no dataset{nearest(name, known)}")
        for table, file in self.layouts.items():
            try:
                layout = layouts.load_layout(file)
                self._read[table] = layouts.with_systems(layout, self._systems(layout))
                self[table], self.absent[table] = self._rows(file, self._read[table])
            except UserError as error:
                # A layout whose models or splits are not there is only a mistake if its table is requested.
                if table in self.requested() and not isinstance(error, Unavailable):
                    raise
                self.missing[table] = str(error)
        named = {*known, *(name for layout in self._read.values() for name in layout.datasets)}
        for name in stand_in if isinstance(stand_in, dict) else ():
            if name not in named:
                raise UserError(f"stand_in: no table is of {name}{nearest(name, named)}")

    @property
    def targets(self) -> dict[str, str]:
        """Target of the command line → table: `rocketqav2_table4` → `rocketqav2/table4`."""
        return {_target(table): table for table in self.layouts}

    @property
    def papers(self) -> dict[str, list[str]]:
        """Target of a whole paper → its tables, which stand in a folder of config/papers/."""
        in_folders = [table for table in self.layouts if "/" in table]
        return {paper: list(tables) for paper, tables in groupby(in_folders, key=lambda table: table.split("/")[0])}

    def lacking(self, tables: Iterable[str]) -> list[str]:
        """A line for each table that cannot be made, and for each reason why another lacks rows: which, and why."""
        lines = []
        for table in tables:
            if table in self.missing:
                lines.append(f"{table} is not made: {self.missing[table]}")
            elif columns := self._left_out(table):
                lines.append(f"{table} leaves out {', '.join(columns)}: not measured (score.measures, depth.test)")
            rows: dict[str, list[str]] = {}
            for row in self.absent.get(table, ()):
                rows.setdefault(row.absent, []).append(system_name(row.id))
            lines += [f"{table} lacks {', '.join(names)}: {reason}" for reason, names in rows.items()]
        return lines

    def _left_out(self, table: str) -> list[str]:
        """The columns of a table that have neither a measured nor a printed value."""
        measured = {(row.column, measure) for row, stage in self[table] for measure in stage.values["measures"]}
        columns = [column for column in self._read[table].columns if column.id not in self._read[table].printed]
        return [column.label for column in columns if (column.dataset, column.measure) not in measured]

    def unshown(self) -> list[str]:
        """A line where the configuration's `systems` has runs that no requested table has a row of."""
        shown = {row.run for table in self.requested() if table in self for row in self._read[table].rows}
        unshown = [system for system in self.settings.systems if system not in shown]
        if not shown or not unshown:
            return []
        every = ", ".join(sorted(table for table, layout in self._read.items() if layout.systems == "all"))
        return [f"systems names {', '.join(unshown)}, which no table of `tables` shows; tables of all systems: {every}"]

    def requested(self) -> list[str]:
        """Names of the tables of `rule all`."""
        return [_table_name(table) for table in self.settings.tables]

    def files(self, *tables: str) -> list[str]:
        """The files of tables; if none is named, of the requested ones that can be made.

        Raises:
            UserError: a named table, or each that is requested, needs a split that the dataset lacks.
        """
        selected = tables or self.requested()
        missing = [table for table in selected if table not in self]
        if missing and (tables or len(missing) == len(selected)):
            raise UserError("\n".join(f"table {table} cannot be made: {self.missing[table]}" for table in missing))
        return [f"{self.views}/tables/{table}.csv" for table in selected if table in self]

    def scores(self, table: str) -> list[str]:
        """Manifests of the scores that a table shows."""
        return list(dict.fromkeys(stage.manifest for _, stage in self[table]))

    def requested_scores(self) -> list[Stage]:
        """The scores that the tables of `rule all` show, as far as they can be made, table after table."""
        return [stage for table in self.requested() for _, stage in self.get(table, ())]

    def layout_files(self, table: str) -> list[Path]:
        """A table's layout, and the printed numbers and bands beside it."""
        file = self.layouts[table]
        return [file, *(near for name in ("printed.csv", "bands.yaml") if (near := beside(file, name)))]

    def to_json(self, table: str) -> str:
        """Everything that the command `table` reads: layout, bands, and the scores of the rows."""
        file = self.layouts[table]
        bands = beside(file, "bands.yaml")
        within = bands is not None and file.parent != bands.parent
        entries = read_bands(bands) if bands else []
        if not self.planners.variants.changed() <= set(NOT_TAKEN):
            # What was measured with config/config.yaml says nothing of other settings, unless it is a table's own.
            entries = [band for band in entries if band.sd is None or band.table]
        plan = TablePlan(
            name=f"{file.parent.name}/{file.stem}" if within else file.stem,
            layout=self._read[table],
            rows=tuple(self.rows(table)),
            bands=tuple(entries),
        )
        return plan.model_dump_json(by_alias=True, exclude_defaults=True)

    def rows(self, table: str) -> list[PlannedRow]:
        """A table's rows, with their scores or why they have none."""
        return [row for row, _ in self[table]] + self.absent[table]

    def systems(self) -> list[Row]:
        """The rows of all requested tables, each system once; another run under a name that is taken says its table.

        Of several seeds the first, and only those on the queries of the first row: they are compared query by query.
        """
        systems, runs = dict[System, Row](), dict[System, object]()
        scored = [(table, row, stage.upstream) for table in self.requested() for row, stage in self.get(table, ())]
        places = [(row.dataset, row.split, row.seed, by.get("subset"), by.get("others")) for _, row, by in scored]
        for (table, row, by), place in zip(scored, places, strict=True):
            if place == places[0]:
                run = row.run or row.scores, by.get("labels")  # whatever the measures of a table are
                name = row.system if runs.setdefault(row.id, run) == run else f"{row.system} ({table})"
                system = {"system": name, "first_stage": row.first_stage, "scores": row.scores}
                systems.setdefault((name, row.first_stage), system)
        return list(systems.values())

    def _systems(self, layout: Layout) -> list[str]:
        """The configuration's `systems` that a layout has rows of."""
        ctx, data = self.planners.base.ctx, self.settings.dataset
        if layout.systems == "all" or not layout.systems:
            return list(self.settings.systems) if layout.systems else []
        trained = {("models", name) for name in self.settings.models}
        return [system for system in self.settings.systems if trained.isdisjoint(run_needs(ctx, system, data))]

    def _rows(self, file: Path, layout: Layout) -> tuple[list[tuple[PlannedRow, Stage]], list[PlannedRow]]:
        """The scores of a layout's rows but quoted ones, for each dataset and seed, and the printed rows without one.

        Raises:
            UserError: a measure, model, split or dataset that the configuration does not have.
        """
        from tandem.evaluation.measures import parse_measures  # numerical libraries

        measured = self.settings.score.measures
        for column in layout.columns:
            try:
                parse_measures([column.measure])
            except UserError as error:
                raise UserError(f"{file}: columns: {str(error).removeprefix('measures: ')}") from None
            if measured and column.measure not in measured:
                raise UserError(f"{file}: shows {column.measure}; add it to score.measures ({', '.join(measured)})")
        groups = list(dict.fromkeys(column.dataset for column in layout.columns)) or [""]
        seeds = self.settings.seeds or (self.settings.seed,)
        scored: list[tuple[PlannedRow, Stage]] = []
        absent: list[PlannedRow] = []
        for row in (row for row in layout.rows if not row.quoted):
            for group in (group for group in groups if group in row.columns or not row.columns):
                try:
                    scored += [self._scored(file, layout, row, group, seed) for seed in seeds]
                except Unavailable as error:
                    why = {"column": group, "absent": str(error)}
                    absent.append(PlannedRow(system=row.system, first_stage=row.first_stage, **why))
        _check_first_stages(file, scored)
        if not scored:
            reasons = "; ".join(dict.fromkeys(row.absent for row in absent))
            raise Unavailable(reasons or f"{file}: all rows are quoted; a table needs one with a run")
        return scored, absent

    def _scored(self, file: Path, layout: Layout, row: LayoutRow, group: str, seed: int) -> tuple[PlannedRow, Stage]:
        """A row's score for the columns of one dataset, with one seed."""
        settings, base = self.settings, self.planners.base
        stand_ins = StandIns(settings, base.ctx.datasets, layout)
        named = row.dataset or group or (layout.printed_on.dataset if layout.printed_on else "")
        changes: Json = {}
        if named in layout.configs and stand_ins.searched(named) == named != settings.dataset:
            own_config: Json = read_yaml(self.root / layout.configs[named])
            changes = {key: value for key, value in own_config.items() if key not in NOT_TAKEN}
        own = stand_ins.changed(row.with_)
        dataset = changes.get("dataset", stand_ins.searched(named))
        if dataset != settings.dataset:
            changes["dataset"] = dataset
        changes |= own | (row.with_own if stand_ins.collection(dataset) == named else {})
        recipes = changes.get("recipes") or settings.recipes
        if lacking := [name for name in layout.recipes if name not in recipes]:
            changes["recipes"] = [*recipes, *lacking]
        if seed != settings.seed:
            changes.setdefault("seed", seed)  # a row may have a seed of its own
        try:
            planner = audited = self.planners.of(changes)
        except UserError as error:
            lines = (f"{file}: {row.system}: {line}" for line in str(error).splitlines())
            raise type(error)("\n".join(lines)) from None
        if row.variant:  # its audits are those of the dataset as it is: the variant is made from them
            name = f"{dataset}-{row.variant}"
            planner = self.planners.of({**changes, "train_on": name})
            planner.train_without_similar(dataset, name, audited.audit("similar_queries", dataset))
        stage = _score(planner, audited, row, layout, str(file), dataset)
        run = stage.upstream.get("run")
        datasets = {at: value for at, value in row.with_.items() if names_dataset(at)}
        replaced = [(own[at], value) for at, value in datasets.items() if stand_ins.collection(own[at]) != value]
        planned = PlannedRow(
            system=row.system,
            first_stage=row.first_stage,
            scores=stage.folder,
            dataset=dataset,
            split=planner.split(dataset),
            collection=StandIns(planner.settings, planner.ctx.datasets, layout).collection(dataset),
            column=group,
            seed=seed,
            run=run.key if run else "",
            instead=", ".join(f"{ours} for {theirs}" for ours, theirs in replaced),
        )
        return planned, stage


def _check_first_stages(file: Path, scored: list[tuple[PlannedRow, Stage]]) -> None:
    """Refuse a re-ranked row that is not made from the run of the row which it names as its first stage."""
    runs = {(row.id, row.column, row.seed): stage.upstream.get("run") for row, stage in scored}
    for row, stage in scored:
        run, first = stage.upstream.get("run"), runs.get(((row.first_stage, ""), row.column, row.seed))
        if run and first and run.kind == "rerank" and first not in upstream_first([run]):
            raise UserError(
                f"{file}: {row.system} re-ranks {run.upstream['run'].name}, its first_stage is {first.name}"
            )


def _score(planner: Planner, audited: Planner, row: LayoutRow, layout: Layout, where: str, dataset: str) -> Stage:
    """The score of a row: by the dataset's labels or corrected ones, of all queries or some."""
    restricted: dict[str, Stage | None] = {"labels": audited.audit("relabel", dataset) if row.labels else None}
    if layout.subset == "pooled":
        restricted["subset"] = audited.audit("false_negatives", dataset)
    elif layout.subset:
        restricted["subset" if layout.subset == "similar" else "others"] = audited.audit("similar_queries", dataset)
    more = _more_measures(planner, layout, dataset)
    by = [*measures(planner.ctx, dataset), *more] if more else None
    return planner.score(row.run, where, dataset, by, restricted)


def _more_measures(planner: Planner, layout: Layout, dataset: str) -> list[str]:
    """The measures of a layout that a dataset's scores do not have, as far as runs and labels allow.

    They are those that a paper prints, and those that only the layout names: a usual one is left out where the dataset
    has measures of its own.
    """
    score = planner.settings.score
    if score.measures:
        return []
    ctx, columns = planner.ctx, layout.columns
    have = measures(ctx, dataset)
    named = [column.measure for column in columns if column.id in layout.printed or column.measure not in score.usual]
    return [name for name in dict.fromkeys(named) if name not in have and is_measurable(ctx, name, dataset)]


def _layouts(settings: Settings, folder: Path) -> dict[str, Path]:
    """Table name → layout file: those of config/papers/ and the user's own."""
    files = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.yaml"))}
    files.pop("bands", None)
    targets = {*RULE_NAMES, *KINDS, *RULES.values(), *(table.split("/")[0] for table in files if "/" in table)}
    named: dict[str, str] = {}
    for table in settings.tables:
        if (other := named.setdefault(name := _table_name(table), table)) != table or settings.tables.count(table) > 1:
            same = "is there twice" if other == table else f"has the name of {other}; name it otherwise"
            raise UserError(f"tables: {table} {same}")
        if table.endswith(".yaml"):
            if not Path(table).is_file():
                raise UserError(f"tables: {table} is no file")
            if not NAME.fullmatch(name):
                allowed = "a layout's file name may hold letters, digits, `_`, `.` and `-`"
                raise UserError(f"tables: {printable(table)}: {allowed}")
            if _target(name) in targets | {_target(other) for other in files if other != name}:
                raise UserError(f"tables: {table}: {name} is the name of another target; name the file otherwise")
            files[name] = Path(table)
        elif table not in files:
            raise UserError(f"tables: {table} is unknown{nearest(table, sorted(files))}")
    return files


def _target(table: str) -> str:
    return table.replace("/", "_").replace("-", "_")


def _table_name(table: str) -> str:
    """A table's name: as the configuration has it, or the stem of a layout file."""
    return Path(table).stem if table.endswith(".yaml") else table
