"""A table with its numbers, as `tandem table` writes it and the report reads it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from tandem.config.table_layouts import Band, Paper, PrintedOn
from tandem.errors import UserError
from tandem.evaluation.layouts import System

_Result = TypeVar("_Result")
RESULTS_FOLDER = Path("results")
SWEEPS = "sweeps"  # the folder of a configuration's sweeps, and the prefix of their names


@dataclass(frozen=True)
class Origin:
    """Describe where scores come from.

    Attributes are their key and the run's, its folder, commit, date, machine and computing time.
    """

    scores: str
    run: str
    folder: str
    commit: str | None = None
    dirty: bool | None = None
    finished: str | None = None
    machine: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Lineage(Origin):
    """Describe the origin of a row's number, with its column, dataset, split and seed."""

    column: str
    dataset: str
    split: str
    seed: int


@dataclass(frozen=True)
class Cell:
    """Describe a number; all but p as the column has them, in percent or not.

    `printed` is the paper's, `low` and `high` a 95 % interval over queries.

    `change` is the value minus that of the row's baseline, `p` that of the test of it, Holm-corrected, `margin` half
    the width of its 95 % interval: a difference of that size may have been missed; None for a row without a baseline.
    With several seeds `value` is the mean of `seeds`, the values of each, and `sd` their standard deviation. What is
    only quoted, or cannot be measured where it is searched, has no value.

    `verdict` is empty where there is nothing to compare the value with, `band` the tolerance behind it, `stages` the
    key of the run of each seed; `stands_in` tells whether `dataset` or `split` is another than the printed number's.
    `labels` is the key of the corrected labels, empty for the dataset's own.
    `before` is whether the value is that of an earlier measurement here, `earlier`; it says nothing about a paper.
    """

    measure: str
    printed: float | None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    change: float | None = None
    p: float | None = None
    margin: float | None = None
    sd: float | None = None
    seeds: list[float] = field(default_factory=list)
    verdict: str = ""
    band: Band | None = None
    before: str = ""
    earlier: Band | None = None
    stages: list[str] = field(default_factory=list)
    dataset: str = ""
    split: str = ""
    labels: str = ""
    stands_in: bool = False

    @property
    def scored_by(self) -> tuple[str, str, str]:
        """Return what tells the queries and labels: the best of a column is the best of the same ones."""
        return self.dataset, self.split, self.labels

    @property
    def queries(self) -> str:
        """Return what names the queries and labels: `squad test, corrected labels`."""
        labels = ", corrected labels" if self.labels else ""
        return f"{self.dataset} {self.split}{labels}"


@dataclass(frozen=True)
class Costs:
    """Describe the costs of a system: bytes searched, wall time of a query, seconds of training.

    See `report/scored.py` for what counts.
    """

    index_bytes: int
    ms_per_query: float
    training_seconds: float


@dataclass(frozen=True)
class FilledRow:
    """Describe a system's numbers; `against` names its baseline, `stage` is its run's key and `folder` where that lies.

    A `quoted` row has printed values only and no run. `differs` tells how its run differs from that of `neighbour`, the
    row before it; `instead` which datasets stand in for those it is trained on; `absent` why it has no run, or
    none on some datasets; `same_as` which earlier row has the same run, by column dataset if it is so in some only.
    """

    system: str
    first_stage: str
    against: str
    stage: str
    folder: str
    cells: list[Cell]
    quoted: bool = False
    lineage: list[Lineage] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    neighbour: str = ""
    instead: str = ""
    absent: str = ""
    family: str = ""
    costs: Costs | None = None
    same_as: str = ""

    @property
    def id(self) -> System:
        """Return what distinguishes a row from every other."""
        return self.system, self.first_stage


@dataclass(frozen=True)
class FilledColumn:
    """Describe a column of a filled table: measure, its printed name, its heading; the paper's dataset and split.

    `places` are ours: `squad dev, 500 queries`; of a group of datasets `nanobeir test, 13 datasets`.
    `is_percent` tells whether its values are shares in percent; gains and counts are written as they are.
    """

    measure: str
    name: str
    label: str
    dataset_name: str
    printed_dataset: str
    printed_split: str
    places: list[str] = field(default_factory=list)
    is_percent: bool = True


@dataclass(frozen=True)
class BestSystem:
    """Describe the best system by the first measure, and by how much it is `over` another, the reference of the table.

    Only what is scored by the reference's queries and labels is compared. `gain` has the measure's unit; `p` is that of
    the best system's own comparison where its baseline is the reference, else Holm-corrected over the tests of all
    systems against the reference. Both are None where there is no such test. `among` names the queries and labels where
    the table has rows of others.
    """

    system: str
    measure: str
    value: float
    over: str = ""
    gain: float | None = None
    p: float | None = None
    among: str = ""


@dataclass(frozen=True)
class FilledOrder:
    """Two rows in the order that papers report; the cells hold their difference, its corrected p and its margin."""

    claim: str
    higher: str
    lower: str
    cells: list[Cell]


@dataclass(frozen=True)
class Table:
    """Describe a filled layout.

    `notes` are those of the stages behind its numbers, and what could not be tested; `warnings` are the stages'.
    """

    title: str
    paper: Paper | None
    printed_on: PrintedOn | None
    decimals: int
    note: str
    columns: list[FilledColumn]
    rows: list[FilledRow]
    seeds: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    best: BestSystem | None = None
    orders: list[FilledOrder] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Return the headings of its columns."""
        return [column.label for column in self.columns]

    @property
    def not_percent(self) -> list[str]:
        """Return the headings of its columns whose values are not in percent."""
        return [column.label for column in self.columns if not column.is_percent]

    @property
    def stands_in(self) -> bool:
        """Return whether printed numbers are of another dataset or split than ours, or of models trained on another."""
        return any(row.instead or any(cell.stands_in for cell in row.cells) for row in self.rows)

    @property
    def heading(self) -> str:
        """`Table 4: First-stage retrieval`, or the title alone."""
        return f"{self.paper.table}: {self.title}" if self.paper else self.title

    @property
    def caption(self) -> str:
        """Return what the printed numbers and ours were measured on."""
        own = dict.fromkeys(place for column in self.columns for place in column.places)
        ours = f"ours: {', '.join(own)}"
        ours += f", {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        if instead := list(dict.fromkeys(row.instead for row in self.rows if row.instead)):
            ours += f", trained on {'; '.join(instead)}"
        if self.printed_on is None:
            return ours
        names = [
            f"{column.dataset_name} {column.printed_split}"
            for column in self.columns
            if column.dataset_name
        ]
        printed = (
            ", ".join(dict.fromkeys(map(str.strip, names)))
            or f"{self.printed_on.name} {self.printed_on.split}"
        )
        stand_in = " (a stand-in: not comparable in level)" if self.stands_in else ""
        return f"printed: {printed}; {ours}{stand_in}"

    @property
    def has_costs(self) -> bool:
        """Return whether any row has costs."""
        return any(row.costs for row in self.rows)

    @property
    def has_tests(self) -> bool:
        """Return whether any number has a p."""
        orders = [cell for order in self.orders for cell in order.cells]
        return any(cell.p is not None for cell in [*orders, *(cell for _, _, cell in self.entries)])

    @property
    def entries(self) -> list[tuple[FilledRow, str, Cell]]:
        """Return every cell, with its row and the heading of its column."""
        return [
            (row, *pair) for row in self.rows for pair in zip(self.names, row.cells, strict=True)
        ]

    def column(self, at: int) -> list[Cell]:
        """Return the cells of a column."""
        return [row.cells[at] for row in self.rows]

    def to_json(self) -> str:
        """Return the table for programs; `read_table` reads it back."""
        return to_json(Table, self)


def to_json(kind: type[_Result], value: _Result) -> str:
    """Return a dataclass as indented JSON with a final newline."""
    return TypeAdapter(kind).dump_json(value, indent=1).decode() + "\n"


def read_result_json(kind: type[_Result], path: Path, missing: str, broken: str) -> _Result:
    """Return a dataclass from a JSON file; a `UserError` that ends in `missing` or `broken`."""
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {missing}") from None
    except ValidationError:
        raise UserError(f"{path}: {broken}; make it again") from None


def read_table(path: Path) -> Table:
    """Read the table that `tandem table` wrote beside its CSV."""
    missing = "`tandem run` writes it with the table"
    return read_result_json(Table, path, missing, "not a table written by `tandem table`")


def find_view(name: str) -> Path:
    """Return the JSON file of a table (`summary`) or a sweep (`sweeps/lists`); that of mine.yaml is `mine/summary`.

    Where there is none, it is that of the default configuration.
    """
    configuration, _, rest = name.partition("/")
    paths = [
        _make_view_path(RESULTS_FOLDER, name),
        _make_view_path(RESULTS_FOLDER / configuration, rest),
    ]
    return paths[1] if rest and paths[1].is_file() and not paths[0].is_file() else paths[0]


def _make_view_path(folder: Path, name: str) -> Path:
    return folder / (f"{name}.json" if name.startswith(f"{SWEEPS}/") else f"tables/{name}.json")


def is_sweep(view: Path) -> bool:
    """Return whether a view, by its name or its file's place, is a sweep's and no table."""
    return view.parent.name == SWEEPS


def list_table_names() -> list[str]:
    """Return the names of all tables below results/, as `find_view` takes them."""
    folders = [RESULTS_FOLDER / "tables", *RESULTS_FOLDER.glob("*/tables")]
    files = ((folder, file) for folder in folders for file in folder.rglob("*.json"))
    return [
        Path(*at.parts[1:-1], file.relative_to(at).with_suffix("")).as_posix() for at, file in files
    ]
