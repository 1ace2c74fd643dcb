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

    The attributes are the key of the scores and, of their run, the key, folder, commit, date, machine and computing
    time.
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
    """Describe a number of a table; all of its values except p are as the column has them, in percent or not.

    `printed` is the paper's number, `low` and `high` bound a 95 % interval over queries.

    `change` is the value minus that of the row's baseline, and `p` is the Holm-corrected p of its test. `margin` is
    half the width of its 95 % interval: a difference of that size may have been missed. All three are None for a row
    without a baseline. With several seeds `value` is the mean of `seeds`, the values of each, and `sd` their standard
    deviation. A number that is only quoted, or cannot be measured on the searched dataset, has no value.

    `verdict` is empty if there is nothing to compare the value with, `band` is the tolerance behind it, and `stages`
    has the key of the run of each seed. `stands_in` is whether `dataset` or `split` differs from the printed number's.
    `labels` is the key of the corrected labels, empty for the dataset's own.
    `before` states whether the value is that of an earlier measurement here, `earlier`; it does not concern a paper.
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
        """Return what identifies the queries and labels: the best of a column is chosen among numbers with the same."""
        return self.dataset, self.split, self.labels

    @property
    def queries(self) -> str:
        """Return the queries and labels in words: `squad test, corrected labels`."""
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
    """Describe a system's numbers; `against` names its baseline, `stage` is its run's key, `folder` the run's folder.

    A `quoted` row has only printed values and no run. `differs` lists how its run differs from that of `neighbour`, the
    row before it. `instead` names the datasets that stand in for those it is trained on. `absent` is the reason why it
    has no run, or none on some datasets. `same_as` names an earlier row with the same run; if this is so only in the
    columns of some datasets, it names these, too.
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

    `places` are our dataset and split: `squad dev, 500 queries`; for a group of datasets `nanobeir test, 13 datasets`.
    `is_percent` is whether its values are shares in percent; gains and counts are written as they are.
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
    """Describe the best system by the first measure, and its gain `over` another system, the reference of the table.

    Only systems that are scored by the reference's queries and labels are compared. `gain` has the measure's unit. `p`
    is that of the best system's own comparison if its baseline is the reference, else Holm-corrected over the tests of
    all systems against the reference. Both are None if there is no such test. `among` names the queries and labels if
    the table has rows with others.
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

    `notes` are those of the stages behind its numbers, and what could not be tested; `warnings` are those of the
    stages.
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
        """`Table 4: First-stage retrieval`, or only the title."""
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
    """Read the table that `tandem table` wrote next to its CSV."""
    missing = "`tandem run` writes it with the table"
    return read_result_json(Table, path, missing, "not a table written by `tandem table`")


def find_view(name: str) -> Path:
    """Return the JSON file of a table (`summary`) or a sweep (`sweeps/lists`); `mine/summary` is that of mine.yaml.

    The file of the default configuration comes first if both configurations have one of this name.
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
    """Return whether a view, by its name or the place of its file, is a sweep and not a table."""
    return view.parent.name == SWEEPS


def list_table_names() -> list[str]:
    """Return the names of all tables below results/, as `find_view` takes them."""
    folders = [RESULTS_FOLDER / "tables", *RESULTS_FOLDER.glob("*/tables")]
    files = ((folder, file) for folder in folders for file in folder.rglob("*.json"))
    return [
        Path(*at.parts[1:-1], file.relative_to(at).with_suffix("")).as_posix() for at, file in files
    ]
