"""A layout made into a table: means, intervals and tests of its systems, and verdicts by tolerance bands.

bands.yaml holds a list of tolerances; docs/papers.md explains their keys."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tandem.config.tables import Band
from tandem.errors import UserError
from tandem.evaluation.layouts import Column, Layout, LayoutRow, System, system_name
from tandem.evaluation.measures import Floats64
from tandem.evaluation.significance import bootstrap_interval, holm, randomisation_test
from tandem.report.results import Cell, FilledColumn, Lineage, Row, Table, percent
from tandem.report.scored import Block, Scored, origin, read_block, run_folder
from tandem.store.artifact import Artifact
from tandem.store.lineage import causes, open_upstream, stage_name

CRITERIA = ("table", "row", "first_stage", "recipe", "dataset", "split", "measure")  # keys that select an entry


@dataclass(frozen=True)
class Place:
    """What a number is of; `collection` is what its dataset is to the layout."""

    row: str
    first_stage: str
    recipe: str
    dataset: str
    collection: str
    split: str
    measure: str
    table: str = ""


def criteria(band: Band) -> dict[str, str]:
    """The keys by which an entry is selected, and their values."""
    return {key: value for key in CRITERIA if (value := getattr(band, key)) is not None}


def select_band(bands: Sequence[Band], place: Place, stands_in: bool, usual: bool = True) -> Band | None:
    """The band of a number: of the entries that fit the one with the most criteria, the later of equals.

    Where another dataset stands in, only entries that name it hold. For a number that is not the recipe's `usual` one
    (of some queries, with other labels, with changed configuration) a band's value holds only if it names the table.
    """
    fitting = [
        band
        for band in bands
        if all(_fits(place, key, value) for key, value in criteria(band).items())
        and (band.dataset is not None or not stands_in)
        and (usual or band.value is None or band.table is not None)
    ]
    return max(reversed(fitting), key=lambda band: len(criteria(band)), default=None)


def _fits(place: Place, key: str, value: str) -> bool:
    return getattr(place, key) == value or (key == "dataset" and place.collection == value)


def verdict(value: float | None, printed: float | None, band: Band | None, wrong: str) -> str:
    """`match`, `near`, `off`, `printed number is wrong (why)`, or nothing where there is nothing to compare with.

    Our `value` in percent is compared with the band's value, else with the printed one; `wrong` is why that is wrong.
    """
    expected = printed if band is None or band.value is None else band.value
    if wrong and (band is None or band.value is None):
        return f"printed number is wrong ({wrong})"
    if value is None or expected is None or band is None:
        return ""
    distance = round(abs(value - expected), 6)  # 0.3 away is within 0.3, whatever the last bits say
    return "match" if distance <= band.tolerance else "near" if distance <= band.near else "off"


MOST_DIFFERENCES = 12  # of a row from its neighbour


@dataclass(frozen=True)
class Numbers:
    """A block with what follows from it: bootstrap bounds of shape (systems, measures), uncorrected p by system."""

    block: Block
    low: Floats64
    high: Floats64
    p: dict[System, Floats64]


class Position(NamedTuple):
    """Where a row's number of a column stands: the numbers of its place, and the indices of system and measure."""

    numbers: Numbers
    system: int
    measure: int


class Filling:
    """The numbers of a table's systems, place by place; `scored` are those of `fill`."""

    def __init__(self, layout: Layout, scored: Sequence[Scored]) -> None:
        self.layout = layout
        places = dict.fromkeys(score.place for score in scored)
        self.numbers = {at: _numbers(layout, [score for score in scored if score.place == at]) for at in places}
        self.columns = _columns(layout, self.numbers)
        self.corrected = {column.id: self._corrected(column) for column in self.columns}

    def position(self, row: System, column: Column) -> Position | None:
        """Where a row's number of a column stands; None where it has none."""
        for (dataset, _, _), numbers in self.numbers.items():
            block = numbers.block
            if dataset == column.dataset and row in block.systems and column.measure in block.measures:
                return Position(numbers, block.systems.index(row), block.measures.index(column.measure))
        return None

    def _corrected(self, column: Column) -> dict[System, float]:
        """Holm-corrected p of a column by row."""
        p = {}
        for row in self.layout.rows:
            position = self.position(row.id, column)
            if position and row.id in position.numbers.p:
                p[row.id] = position.numbers.p[row.id][position.measure]
        return dict(zip(p, holm(np.array(list(p.values()))).tolist(), strict=True)) if p else {}

    def cell(self, row: LayoutRow, column: Column) -> Cell:
        """A row's number in a column, without its verdict."""
        printed, position = row.printed.get(column.id), self.position(row.id, column)
        if position is None:
            return Cell(column.measure, printed)
        numbers, system, measure = position
        block, means = numbers.block, numbers.block.values.mean(axis=1)
        base = block.systems.index(row.baseline) if row.baseline in block.systems else None
        deviation, scored, p = block.deviation(system), block.scored[system], self.corrected[column.id].get(row.id)
        on = self.layout.printed_on
        paper = row.dataset or column.dataset or (on.dataset if on else "")
        split = column.split or (on.split if on and not column.dataset else "")
        first = scored[0].row
        elsewhere = bool(paper) and (first.collection != paper or split not in ("", first.split))
        return Cell(
            column.measure,
            printed,
            percent(means[system, measure]),
            percent(numbers.low[system, measure]),
            percent(numbers.high[system, measure]),
            percent(means[system, measure] - means[base, measure]) if base is not None else None,
            None if p is None else round(p, 6),
            sd=None if deviation is None else percent(deviation[measure]),
            seeds=[percent(mean) for mean in block.means[:, system, measure]],
            stages=[Path(run_folder(score.artifact)).name for score in scored],
            dataset=first.dataset,
            split=first.split,
            stands_in=elsewhere or any(score.row.instead for score in scored),
        )

    def describe(self, column: Column) -> FilledColumn:
        """A column with the paper's dataset and split, and ours."""
        own = [(place, numbers.block) for place, numbers in self.numbers.items() if place[0] == column.dataset]
        (_, dataset, split), queries = (own[0][0], own[0][1].queries) if own else (("", "", ""), 0)
        name, printed_dataset, printed_split = column.dataset_name, column.dataset, column.split
        if (on := self.layout.printed_on) and not column.dataset:
            name, printed_dataset, printed_split = "", on.dataset, on.split
        return FilledColumn(
            column.measure, column.name, column.label, name, printed_dataset, printed_split, dataset, split, queries
        )


def fill(
    layout: Layout,
    scored: Sequence[Scored],
    table: str = "",
    bands: Sequence[Band] = (),
    absent: dict[System, str] | None = None,
) -> Table:
    """Compute a layout's numbers.

    Each visible row is tested against its baseline by the paired randomisation test, on per-query means over seeds, and
    the p-values of a column are Holm-corrected over the table's comparisons.

    Args:
        layout: rows and columns.
        scored: the scores of every row that is not quoted, the hidden ones included.
        table: the name by which bands select it.
        bands: tolerances.
        absent: rows without scores, and why.
    """
    filling = Filling(layout, scored)
    rows: list[Row] = []
    previous: Scored | None = None
    for row in layout.rows:
        if row.hidden:
            continue
        own = [score for score in scored if score.system == row.id]
        cells = [_judge(filling.cell(row, c), layout, row, c, table, bands, own) for c in filling.columns]
        rows.append(_row(row, cells, own, previous, (absent or {}).get(row.id, "")))
        previous = own[0] if own else previous
    first = next(iter(filling.numbers.values())).block
    return Table(
        title=layout.title,
        paper=layout.paper,
        printed_on=layout.printed_on,
        decimals=layout.decimals,
        note=layout.note,
        names=[column.label for column in filling.columns],
        dataset=first.scored[0][0].row.dataset,
        split=first.scored[0][0].row.split,
        queries=first.queries,
        rows=rows,
        columns=[filling.describe(column) for column in filling.columns],
        seeds=list(dict.fromkeys(score.row.seed for score in scored)),
    )


def _numbers(layout: Layout, scored: list[Scored]) -> Numbers:
    """The intervals and tests of the systems of one place."""
    block = read_block(scored, [row.id for row in layout.rows])
    systems, queries, measures = block.values.shape
    flat = block.values.transpose(1, 0, 2).reshape(queries, systems * measures)
    low, high = (bound.reshape(systems, measures) for bound in bootstrap_interval(flat))
    at = {system: i for i, system in enumerate(block.systems)}
    tested = [(r.id, r.baseline) for r in layout.rows if r.baseline in at and r.id in at and not r.hidden]
    p: dict[System, Floats64] = {}
    if tested:
        differences = np.stack([block.values[at[own]] - block.values[at[base]] for own, base in tested if base], axis=1)
        by_test = randomisation_test(differences.reshape(queries, -1)).reshape(len(tested), measures)
        p = {own: by_test[i] for i, (own, _) in enumerate(tested)}
    return Numbers(block, low, high, p)


def _columns(layout: Layout, numbers: dict[tuple[str, str, str], Numbers]) -> list[Column]:
    """The layout's columns that are measured or printed (answers give no recall); all measures without columns."""
    measured = {(place[0], measure): None for place, own in numbers.items() for measure in own.block.measures}
    if not layout.columns:
        return [Column(measure=measure, name=measure) for _, measure in measured]
    printed = {column for row in layout.rows for column, value in row.printed.items() if value is not None}
    columns = [c for c in layout.columns if (c.dataset, c.measure) in measured or c.id in printed]
    if not any((c.dataset, c.measure) in measured for c in columns):
        computed = ", ".join(dict.fromkeys(measure for _, measure in measured))
        raise UserError(f"{layout.title}: none of its measures was computed, only {computed}")
    return columns


def _judge(
    cell: Cell, layout: Layout, row: LayoutRow, column: Column, table: str, bands: Sequence[Band], own: list[Scored]
) -> Cell:
    """A cell with its verdict."""
    collection = next((score.row.collection for score in own if score.row.dataset == cell.dataset), "")
    place = Place(row.system, row.first_stage, row.run, cell.dataset, collection, cell.split, cell.measure, table)
    usual = not (layout.subset or row.labels or row.variant or row.with_)
    elsewhere = cell.stands_in or not layout.printed_on
    band = select_band(bands, place, elsewhere, usual) if cell.value is not None else None
    printed = None if cell.stands_in else cell.printed
    judgement = verdict(cell.value, printed, band, row.wrong.get(column.id, ""))
    return replace(cell, verdict=judgement, band=band if judgement else None)


def _row(row: LayoutRow, cells: list[Cell], own: list[Scored], previous: Scored | None, absent: str) -> Row:
    """A row with its lineage; a quoted one has none."""
    if not own:
        return Row(row.system, row.first_stage, "", "", "", cells, quoted=True, absent=absent)
    folder = run_folder(own[0].artifact)
    tested = any(cell.change is not None for cell in cells)
    return Row(
        row.system,
        row.first_stage,
        system_name(row.baseline) if row.baseline and tested else "",
        Path(folder).name,
        folder,
        cells,
        lineage=[
            Lineage(
                **asdict(origin(score.artifact)),
                column=score.row.column,
                dataset=score.row.dataset,
                split=score.row.split,
                seed=score.row.seed,
            )
            for score in own
        ],
        differs=differences(own[0].artifact, previous.artifact) if previous else [],
        neighbour=system_name(previous.system) if previous else "",
        instead="; ".join(dict.fromkeys(score.row.instead for score in own if score.row.instead)),
        absent=absent,
    )


def differences(scores: Artifact, other: Artifact) -> list[str]:
    """How the run of one score differs from that of another, a line for each root of it."""
    runs = [open_upstream(artifact).get("run") for artifact in (scores, other)]
    if runs[0] is None or runs[1] is None:
        return []
    lines = [
        f"{cause.stage.kind} {stage_name(cause.stage.key)}: {cause.what} is {cause.now}, there {cause.before}"
        for cause in causes(runs[0], runs[1])
    ]
    rest = len(lines) - MOST_DIFFERENCES
    return lines[:MOST_DIFFERENCES] + ([f"and {rest} more: tandem why {scores.key} {other.key}"] if rest > 0 else [])
