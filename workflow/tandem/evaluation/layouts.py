"""Read and resolve a table's layout: its rows with their baselines and printed values, its columns, its bands.

config/papers/<paper>/<table>.yaml names the rows; printed.csv next to the layouts holds what papers print. Planning
resolves a layout once and writes it, with the scores of its rows, as a `TablePlan`: all that `table` reads.
"""

import csv
import difflib
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from tandem.config.base import Items, Model
from tandem.config.loading import read_layout
from tandem.config.settings import RUN_KEYS
from tandem.config.table_layouts import Band, RowReference, TableColumn, TableLayout, TableRow
from tandem.data.reading import iterate_lines, parse_score
from tandem.errors import UserError

# (system, first stage); the first stage is empty if nothing is re-ranked
System = tuple[str, str]
WRONG_NOTE_PREFIX = "wrong: "  # how the note of a number known to be wrong begins


def name_system(system: System) -> str:
    """Return `CE w/ DE Neg on BM25`, or only the system."""
    return f"{system[0]} on {system[1]}" if system[1] else system[0]


class Column(TableColumn):
    """Describe a measure, under the name that the paper prints."""

    name: str

    @property
    def id(self) -> str:
        """Return the text that distinguishes a column from all others: `RR@10`, `natural-questions RR@10`."""
        return f"{self.dataset} {self.measure}".strip()

    @property
    def label(self) -> str:
        """Return the name as printed and as ir-measures has it.

        It is `MRR@10 (RR@10)`, with its dataset if there are several.
        """
        both = self.name if self.name == self.measure else f"{self.name} ({self.measure})"
        dataset = self.dataset_name or self.dataset
        where = ", ".join(filter(None, (dataset, self.setting)))
        return f"{where}: {both}" if where else both


class Printed(NamedTuple):
    """Describe a line of config/papers/printed.csv: what a paper prints about a system."""

    source: str
    table: str
    dataset: str
    split: str
    system: str
    setting: str
    metric: str
    value: str
    unit: str
    note: str


class _SourceTable(NamedTuple):
    """Describe the lines of printed.csv that belong to one table of a source."""

    name: str
    lines: list[Printed]


class LayoutRow(TableRow):
    """Describe a system: its row of the file, the row that it is tested against, and the paper's values.

    `wrong` maps a column to the reason why its printed value is known to be wrong.
    """

    run: str = ""
    printed: dict[str, float | None] = Field(default_factory=dict)
    wrong: dict[str, str] = Field(default_factory=dict)
    baseline: System | None = None  # type: ignore[assignment]


class Layout(TableLayout):
    """Describe a table before it has numbers: its file with resolved columns and rows.

    Without columns it shows all measures.
    """

    columns: Items[Column] = ()
    rows: Items[LayoutRow] = ()

    @property
    def datasets(self) -> list[str]:
        """Return the datasets of the catalogue that it names, the paper's own first."""
        names = [self.printed_on.dataset] if self.printed_on else []
        for column in self.columns:
            columns = self.splits.get(column.dataset)
            names.append(columns.of if columns else column.dataset)
        names += [row.dataset for row in self.rows]
        for row in self.rows:
            names += [
                str(value) for path, value in row.with_.items() if has_dataset(path) and value
            ]
        return list(dict.fromkeys(name for name in names if name))

    def name_dataset(self, name: str) -> str:
        """Return the heading of the columns of a dataset."""
        return next(
            (c.dataset_name for c in self.columns if c.dataset == name and c.dataset_name), name
        )

    @property
    def printed(self) -> set[str]:
        """Return the columns in which a paper prints any number."""
        columns: set[str] = set()
        for row in self.rows:
            columns |= {column for column, value in row.printed.items() if value is not None}
        return columns


class PlannedRow(Model):
    """Hold the scores of a row, or why it has none: where it was searched, for which columns, with which seed."""

    system: str
    first_stage: str = ""
    scores: str = ""  # folder of the score artifact; empty if there is none
    absent: str = ""
    dataset: str = ""
    collection: str = ""  # the layout's name for `dataset`: `msmarco` for `msmarco-titles`
    split: str = ""
    column: str = (
        ""  # the layout's dataset whose columns it fills; empty if the layout has only one
    )
    seed: int = 0
    run: str = ""  # the key that its scores must be of; empty for a group of datasets
    instead: str = ""  # datasets that stand in for those its models are trained on
    # an earlier row with the same scores: this configuration does not distinguish the two
    same_as: str = ""

    @property
    def id(self) -> System:
        """Return what identifies the row."""
        return self.system, self.first_stage


class TablePlan(Model):
    """Hold all that the command `table` reads: the table's name, layout and bands, and the scores of its rows."""

    name: str
    layout: Layout
    rows: tuple[PlannedRow, ...]
    bands: tuple[Band, ...] = ()
    # the layout's dataset → why its columns are not measured
    skipped: dict[str, str] = Field(default_factory=dict)


def has_dataset(path: str) -> bool:
    """Return whether a dotted path of the configuration holds the name of a dataset."""
    return path.rpartition(".")[2] in ("dataset", "train_on")


def find_beside(path: Path, name: str) -> Path | None:
    """Return a file that layouts share: in a layout's folder, or in the one above."""
    for folder in (path.parent, path.parent.parent):
        file = folder / name
        if file.is_file():
            return file
    return None


def load_layout(path: Path) -> Layout:
    """Read and resolve a layout.

    A row's baseline is its own `baseline`, else the row of its first stage, else the table's `baseline`.

    Raises:
        UserError: a file is missing; a key or type is not allowed; a column, or a system with its first stage, occurs
            twice; or the layout lacks a row's column, a printed value's measure, printed values of a column with a
            `split`, a baseline or the row of an order.
    """
    source = read_layout(path)
    columns = []
    for column in source.columns:
        columns.append(Column(**{**dict(column), "name": column.name or column.measure}))
    for name in source.splits:
        _require_column(f"{path}: splits.{name}", name, columns)

    printed = None
    if source.printed_from is not None:
        file = find_beside(path, "printed.csv")
        if file is None:
            raise UserError(
                f"{path}: printed_from: there is no printed.csv beside it or in the folder above"
            )
        printed = read_printed(file, source.printed_from.source, source.printed_from.table)
    rows = _resolve_rows(path, source, columns, printed)
    ids = [column.id for column in columns]
    for number, column in enumerate(columns):
        if column.id in ids[:number]:
            raise UserError(f"{path}: columns.{number}: {column.id} is there twice")
        if column.split and not any(column.id in row.printed for row in rows):
            raise UserError(
                f"{path}: columns.{number}: split is that of printed numbers, and no row has one; "
                "which queries are measured says `splits`"
            )

    scored = [row.id for row in rows if not row.quoted]
    orders = []
    for number, order in enumerate(source.orders):
        where = f"{path}: orders.{number}"
        higher = _find_named(f"{where}: higher", order.higher, scored)
        lower = _find_named(f"{where}: lower", order.lower, scored)
        if higher == lower:
            raise UserError(
                f"{where}: {name_system(higher)} is both higher and lower; name two rows"
            )
        rivals = {"higher": _make_reference(higher), "lower": _make_reference(lower)}
        orders.append(order.model_copy(update=rivals))

    changes = {
        "columns": tuple(columns),
        "rows": rows,
        "orders": tuple(orders),
        "baseline": None,
        "printed_from": None,
    }
    return Layout.model_construct(**{**dict(source), **changes})


def with_systems(layout: Layout, systems: Iterable[str]) -> Layout:
    """Return a layout with a further row for each run that it lacks.

    It is tested against the run that it re-ranks; without such a run, or if that has no row, against BM25.

    A row that changes the configuration, the labels or the dataset does not count as a row of the run that it names.
    """
    ids: dict[str, System] = {}
    for row in layout.rows:
        changed = row.with_ or row.with_own or row.labels or row.variant or row.dataset
        if not (row.quoted or changed):
            ids[row.run] = row.id
    taken = {row.id for row in layout.rows}
    added: dict[str, System] = {}
    for run in systems:
        first, _, system = run.rpartition("+")
        name, reranked = ids.get(first, (first, ""))
        own = (system, first if reranked else name)
        if run not in ids and own not in taken:
            added[run] = own

    # a first stage may be added, too, before or after what re-ranks it
    ids |= added
    rows = list(layout.rows)
    for run, own in added.items():
        rival = ids.get(run.rpartition("+")[0], ids.get("bm25"))
        baseline = None if rival == own else rival
        rows.append(LayoutRow(system=own[0], first_stage=own[1], run=run, baseline=baseline))
    return layout.model_copy(update={"rows": tuple(rows)})


def drop_rows(layout: Layout, unknown: Container[str]) -> Layout:
    """Return a layout without the rows of some runs.

    A row that was tested against one of them is tested against BM25, and BM25 itself against none.
    """
    rows = [row for row in layout.rows if row.run not in unknown]
    present = {row.id for row in rows}
    bm25 = next((row.id for row in rows if row.run == "bm25"), None)
    for at, row in enumerate(rows):
        if row.baseline and row.baseline not in present:
            rows[at] = row.model_copy(update={"baseline": None if row.id == bm25 else bm25})
    return layout.model_copy(update={"rows": tuple(rows)})


def _resolve_rows(
    path: Path, layout: TableLayout, columns: Sequence[Column], table: _SourceTable | None
) -> tuple[LayoutRow, ...]:
    ids = [row.id for row in layout.rows]
    quoted = {row.id for row in layout.rows if row.quoted}
    rows = []
    for at, row in enumerate(layout.rows):
        own = row.id
        where = f"{path}: rows.{at}"
        if own in ids[:at]:
            raise UserError(
                f"{where}: {name_system(own)} is there twice; each system and first stage once"
            )
        if (row.run is not None) == row.quoted:
            raise UserError(f"{where}: {name_system(own)} needs a run, or quoted: true and none")
        for key in row.with_ | row.with_own:
            if key == "dataset":
                raise UserError(
                    f"{where}: `dataset` stands beside `with`, not in it: it says where a row is searched"
                )
            if key != "seed" and key.partition(".")[0] in RUN_KEYS:
                raise UserError(f"{where}: {key} in `with` has no effect: it is of all rows")
        for dataset in row.columns:
            _require_column(f"{where}.columns", dataset, columns)
        printed, wrong = _read_printed_values(f"{where}.printed", row, columns, table)
        baseline = None if row.quoted else _find_baseline(where, layout, row, ids)
        if baseline in quoted:
            raise UserError(
                f"{where}: baseline {name_system(baseline)} is quoted; a test needs its run"
            )
        changes = {
            "printed": printed,
            "wrong": wrong,
            "baseline": None if baseline == own else baseline,
        }
        rows.append(LayoutRow.model_construct(**{**dict(row), "run": row.run or "", **changes}))
    return tuple(rows)


def _require_column(where: str, dataset: str, columns: Sequence[Column]) -> None:
    """Refuse a dataset that has no column."""
    datasets = dict.fromkeys(column.dataset for column in columns if column.dataset)
    if dataset not in datasets:
        known = ", ".join(datasets) or "none"
        raise UserError(f"{where}: no column is of {dataset}; they are of {known}")


def _find_baseline(
    where: str, layout: TableLayout, row: TableRow, ids: list[System]
) -> System | None:
    # A first stage may itself re-rank another one's list.
    first_stages = [system for system in ids if system[0] == row.first_stage]
    if row.baseline is None and first_stages:
        if (row.first_stage, "") in first_stages:
            return row.first_stage, ""
        if len(first_stages) == 1:
            return first_stages[0]
        shown = ", ".join(map(name_system, first_stages))
        raise UserError(
            f"{where}.first_stage: {row.first_stage} may be {shown}; say which by `baseline`"
        )
    reference = row.baseline or layout.baseline
    if not reference:
        return None
    return _find_named(f"{where}: baseline", reference, ids)


def _find_named(where: str, reference: RowReference, ids: list[System]) -> System:
    """Return the row of a system and first stage, or of the name that a table shows."""
    if reference.id in ids:
        return reference.id
    shown = {name_system(system): system for system in ids}
    name = name_system(reference.id)
    if name not in shown:
        raise UserError(f"{where} {name} is not a row; the rows are {', '.join(shown)}")
    return shown[name]


def _make_reference(system: System) -> RowReference:
    name, first_stage = system
    return RowReference(system=name, first_stage=first_stage)


def _read_printed_values(
    where: str, row: TableRow, columns: Sequence[Column], table: _SourceTable | None
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Return a row's printed values by column, and why some of them are known to be wrong.

    A `UserError`, beginning with `where`, for a system or measure that the table does not print, or prints repeatedly.
    """
    value = row.printed
    if value is None or isinstance(value, dict):
        for measure in value or {}:
            if measure not in {column.id for column in columns}:
                raise UserError(f"{where}.{measure}: no such column; add it to columns")
        return value or {}, {}
    if table is None:
        raise UserError(
            f"{where}: names a system, but the layout has no printed_from: {{source, table}}"
        )
    system, setting = (value, "") if isinstance(value, str) else (value.system, value.setting)
    own = [line for line in table.lines if line.system == system and setting in ("", line.setting)]
    if not own:
        names = list(
            dict.fromkeys(
                _describe(line.system, line.setting if setting else "") for line in table.lines
            )
        )
        name = _describe(system, setting)
        near = ", ".join(difflib.get_close_matches(name, names, 3) or names)
        raise UserError(f"{where}: {table.name} prints no {name}; it has {near}")
    values = dict[str, float | None]()
    wrong = {}
    for column in (column for column in columns if column.printed):
        if not any(_is_of_column(line, column) for line in table.lines):
            raise UserError(
                f"{where}: {table.name} prints no {column.label}; set `printed: false` for that column"
            )
        fitting = [line for line in own if _is_of_column(line, column)]
        if len(fitting) > 1:
            problem = f"{table.name} prints several {column.name} of {system}"
            settings = "; ".join(line.setting for line in fitting)
            raise UserError(f"{where}: {problem}; add one setting of: {settings}")
        values[column.id] = float(fitting[0].value) if fitting else None
        if fitting and fitting[0].note.startswith(WRONG_NOTE_PREFIX):
            wrong[column.id] = fitting[0].note.removeprefix(WRONG_NOTE_PREFIX)
    return values, wrong


def _describe(system: str, setting: str) -> str:
    return " in the setting ".join(filter(None, (system, setting)))


def _is_of_column(line: Printed, column: Column) -> bool:
    of_column = line.metric == column.name and column.dataset_name in ("", line.dataset)
    return of_column and column.setting in ("", line.setting)


def read_printed(path: Path, source: str, table: str) -> _SourceTable:
    """Return the printed percentages of a table; a `UserError` without it, or for a value that is not a number."""
    status = path.stat() if path.is_file() else None  # the reader names a missing file
    printed = _read_percentages(path, status and (status.st_mtime_ns, status.st_size))
    lines = []
    for where, row in printed:
        if (row.source, row.table) == (source, table):
            parse_score(where, "value", row.value)
            lines.append(row)
    if not lines:
        known = dict.fromkeys(f"{row.source}, {row.table}" for _, row in printed)
        raise UserError(f"{path}: has no {source}, {table}; it has {'; '.join(known)}")
    return _SourceTable(f"{source}, {table}", lines)


@cache
def _read_percentages(path: Path, state: tuple[int, int] | None) -> list[tuple[str, Printed]]:
    """Return (`file:line`, line) of all percentages of a file, read once while it stays unchanged.

    Eleven tables need them.
    """
    rows = ((where, Printed(**row)) for where, row in read_csv_rows(path, list(Printed._fields)))
    return [(where, row) for where, row in rows if row.unit == "percent"]


def read_csv_rows(path: Path, columns: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (`file:line`, row) of a file of printed numbers, which must have these columns; a `UserError` otherwise."""
    # the reader of data counts lines, and names those that are not UTF-8
    rows = csv.DictReader((line for _, line in iterate_lines(path)), strict=True)
    try:
        if rows.fieldnames != columns:
            raise UserError(
                f"{path}: columns are {rows.fieldnames}; they must be {', '.join(columns)}"
            )
        for row in rows:
            if None in row or None in row.values():
                raise UserError(
                    f"{path}:{rows.line_num}: not {len(columns)} columns; quote a text with commas"
                )
            yield f"{path}:{rows.line_num}", row
    except csv.Error as error:
        raise UserError(f"{path}:{rows.line_num}: no valid CSV, {error}") from None
