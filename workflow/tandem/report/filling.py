"""Fill a layout into a table: means, intervals and tests of its systems, and verdicts by tolerance bands."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from tandem.config.table_layouts import TABLE_PARTS, Band
from tandem.evaluation.layouts import Column, Layout, LayoutRow, System, TablePlan, name_system
from tandem.evaluation.measure_names import is_share
from tandem.evaluation.significance import correct_by_holm
from tandem.report.results import (
    Cell,
    FilledColumn,
    FilledOrder,
    FilledRow,
    Lineage,
    Table,
)
from tandem.report.scored import (
    Position,
    ScoreBlock,
    ScoredRow,
    describe_origin,
    name_unit,
    read_blocks,
    run_folder,
    scale_value,
)
from tandem.store.artifact import Artifact
from tandem.store.job import load
from tandem.store.lineage import causes, open_upstream, stage_name

# keys that select a band
_CRITERIA = ("table", "row", "first_stage", "recipe", "dataset", "split", "queries", "measure")
_MOST_DIFFERENCES = 12  # of a row from its neighbour


@dataclass(frozen=True)
class Place:
    """Describe what a table's number measures; `collection` is the layout's name for its dataset."""

    row: str
    first_stage: str
    recipe: str
    dataset: str
    collection: str
    split: str
    measure: str
    table: str = ""
    queries: int = 0


def fill_table(plan: TablePlan, scored: Sequence[ScoredRow]) -> Table:
    """Compute the numbers of a planned table from the scores of every row that has some, hidden rows included.

    Each visible row is tested against its baseline (`run_seeded_test`), and a column's p-values are
    Holm-corrected over the comparisons in that column.
    """
    layout = plan.layout
    reasons: dict[System, dict[str, None]] = {}
    for planned in plan.rows:
        if planned.absent:
            reasons.setdefault(planned.id, {})[planned.absent] = None
    absent = {system: "; ".join(own) for system, own in reasons.items()}
    places = dict.fromkeys(score.place for score in scored)
    blocks = [
        block
        for place in places
        for block in read_blocks([score for score in scored if score.place == place], layout)
    ]
    columns = _list_columns(layout, blocks)
    positions = [_list_positions(layout, column, blocks) for column in columns]
    corrected = [_correct(own) for own in positions]
    rows: list[FilledRow] = []
    previous: ScoredRow | None = None
    for row in layout.rows:
        if row.hidden:
            continue
        own = [score for score in scored if score.system == row.id]
        cells = []
        for column, own_positions, p in zip(columns, positions, corrected, strict=True):
            cell = _fill_cell(layout, row, column, own_positions, p.get(row.id))
            queries = own_positions[row.id].block.queries if row.id in own_positions else 0
            collection = next(
                (score.row.collection for score in own if score.row.dataset == cell.dataset), ""
            )
            what = (
                row.system,
                row.first_stage,
                row.run,
                cell.dataset,
                collection,
                cell.split,
                cell.measure,
            )
            cells.append(
                _judge(cell, layout, row, column, Place(*what, plan.name, queries), plan.bands)
            )
        rows.append(_fill_row(layout, row, cells, own, previous, absent.get(row.id, "")))
        previous = own[0] if own else previous
    notes = load("extras.report.untested_rows:list_untested")(layout, columns, positions)
    orders: list[FilledOrder] = []
    if layout.orders:
        orders, untested = load(TABLE_PARTS["orders"])(layout, columns, positions)
        notes += untested
    return Table(
        title=layout.title,
        paper=layout.paper,
        printed_on=layout.printed_on,
        decimals=layout.decimals,
        note=layout.note,
        columns=[_describe(layout, column, blocks) for column in columns],
        rows=rows,
        seeds=list(dict.fromkeys(score.row.seed for score in scored)),
        best=load("extras.report.best_system:find_best_system")(
            layout, columns[0], positions[0], rows
        ),
        notes=notes,
        orders=orders,
    )


def _list_columns(layout: Layout, blocks: Sequence[ScoreBlock]) -> list[Column]:
    """Return the layout's columns that are measured or printed; planning has checked that some are measured.

    A layout without columns has all measures.
    """
    measured = {(block.place[0], measure): None for block in blocks for measure in block.measures}
    if not layout.columns:
        return [Column(measure=measure, name=measure) for _, measure in measured]
    return [
        c for c in layout.columns if (c.dataset, c.measure) in measured or c.id in layout.printed
    ]


def _list_positions(
    layout: Layout, column: Column, blocks: Sequence[ScoreBlock]
) -> dict[System, Position]:
    positions: dict[System, Position] = {}
    for block in blocks:
        if block.place[0] == column.dataset and column.measure in block.measures:
            for at, system in enumerate(block.systems):
                positions.setdefault(
                    system, Position(block, at, block.measures.index(column.measure))
                )
    return {row.id: positions[row.id] for row in layout.rows if row.id in positions}


def _correct(positions: dict[System, Position]) -> dict[System, float]:
    p = {row: at.block.p[row][at.measure] for row, at in positions.items() if row in at.block.p}
    return dict(zip(p, correct_by_holm(np.array([*p.values()])).tolist(), strict=True))


def _fill_cell(
    layout: Layout,
    row: LayoutRow,
    column: Column,
    positions: dict[System, Position],
    p: float | None,
) -> Cell:
    """Return a row's number in a column, without its verdict."""
    printed = row.printed.get(column.id)
    position = positions.get(row.id)
    if position is None:
        return Cell(column.measure, printed)
    block, system, measure = position
    scored = block.scored[system]
    seeds = block.values[:, system, :, measure].mean(axis=1)
    base = _find_other(position, row.baseline) if row.id in block.p else None
    touched = len({score.artifact.key for score in scored}) > 1  # whether seeds change the scores
    on = layout.printed_on
    paper = row.dataset or column.dataset or (on.dataset if on else "")
    split = column.split or (on.split if on and not column.dataset else "")
    first = scored[0].row
    scale = partial(scale_value, measure=column.measure)
    elsewhere = bool(paper) and (first.collection != paper or split not in ("", first.split))
    return Cell(
        column.measure,
        printed,
        scale(position.mean),
        scale(block.low[system, measure]),
        scale(block.high[system, measure]),
        scale(position.mean - base.mean) if base else None,
        None if p is None else round(p, 6),
        margin=scale(block.margins[row.id][measure]) if row.id in block.margins else None,
        sd=scale(seeds.std(ddof=1)) if touched else None,
        seeds=[scale(mean) for mean in seeds],
        stages=[Path(run_folder(score.artifact)).name for score in scored],
        dataset=first.dataset,
        split=first.split,
        labels=scored[0].labels,
        stands_in=elsewhere or any(score.row.instead for score in scored),
    )


def _find_other(position: Position, system: System | None) -> Position | None:
    """Return the same number of another system in the same place; None if that has no such system."""
    systems = position.block.systems
    return position._replace(system=systems.index(system)) if system in systems else None


def _describe(layout: Layout, column: Column, blocks: Sequence[ScoreBlock]) -> FilledColumn:
    """Return a column with the paper's dataset and split, and ours."""
    places = [
        f"{block.place[1]} {block.place[2]}, {block.queries:,} {name_unit(block.scored[0][0].artifact)}"
        for block in blocks
        if block.place[0] == column.dataset
    ]
    printed = column.dataset_name, column.dataset, column.split
    if (on := layout.printed_on) and not column.dataset:
        printed = "", on.dataset, on.split
    is_percent = is_share(column.measure)
    names = column.measure, column.name, column.label
    return FilledColumn(*names, *printed, [*dict.fromkeys(places)], is_percent)


def _judge(
    cell: Cell, layout: Layout, row: LayoutRow, column: Column, place: Place, bands: Sequence[Band]
) -> Cell:
    """Return a cell with its verdict on the printed number, and whether its value was measured here before."""
    usual = not (layout.subset or row.labels or row.variant or row.with_)
    elsewhere = cell.stands_in or not layout.printed_on
    band, earlier = (
        select_band(
            [band for band in bands if (band.sd is not None) == measured], place, elsewhere, usual
        )
        for measured in (False, True)
    )
    band = band if cell.value is not None else None
    judgement = judge_value(
        cell.value, None if cell.stands_in else cell.printed, band, row.wrong.get(column.id, "")
    )
    before = compare_before(cell.value, earlier)
    band = band if judgement else None
    earlier = earlier if before else None
    return replace(cell, verdict=judgement, band=band, before=before, earlier=earlier)


def list_criteria(band: Band) -> dict[str, object]:
    """Return the keys by which an entry is selected, and their values."""
    return {key: value for key in _CRITERIA if (value := getattr(band, key)) is not None}


def select_band(
    bands: Sequence[Band], place: Place, stands_in: bool, usual: bool = True
) -> Band | None:
    """Return the band of a number: of the entries that fit, the one with the most criteria; of equals, the last.

    If another dataset stands in, only entries that name it apply. For a number that is not the recipe's `usual` one (of
    some queries, with other labels, with changed configuration) a band's value applies only if the band names the
    table.
    """

    def fits(key: str, value: object) -> bool:
        return getattr(place, key) == value or (key == "dataset" and place.collection == value)

    fitting = [
        band
        for band in bands
        if all(fits(key, value) for key, value in list_criteria(band).items())
        and (band.dataset is not None or not stands_in)
        and (usual or band.value is None or band.table is not None)
    ]
    return max(reversed(fitting), key=lambda band: len(list_criteria(band)), default=None)


def judge_value(value: float | None, printed: float | None, band: Band | None, wrong: str) -> str:
    """Return `match`, `near`, `off`, `printed number is wrong (why)`, or "" if there is nothing to compare with.

    Our `value` is compared with the band's value, else with the printed one; `wrong` is why the latter is wrong.
    """
    expected = printed if band is None or band.value is None else band.value
    if wrong and (band is None or band.value is None):
        return f"printed number is wrong ({wrong})"
    if value is None or expected is None or band is None:
        return ""
    distance = _measure_distance(value, expected)
    if distance <= band.width:
        return "match"
    return "near" if distance <= (band.near or 0.0) else "off"


def _measure_distance(value: float, expected: float) -> float:
    return round(abs(value - expected), 6)  # 0.3 away is within 0.3, whatever the last bits are


def compare_before(value: float | None, band: Band | None) -> str:
    """Return `as measured before`, `not as measured before`, or "" if it has not been measured before."""
    if value is None or band is None or band.value is None:
        return ""
    return (
        "as measured before"
        if _measure_distance(value, band.value) <= band.width
        else "not as measured before"
    )


def _fill_row(
    layout: Layout,
    row: LayoutRow,
    cells: list[Cell],
    own: list[ScoredRow],
    previous: ScoredRow | None,
    absent: str,
) -> FilledRow:
    if not own:
        return FilledRow(
            row.system,
            row.first_stage,
            "",
            "",
            "",
            cells,
            quoted=True,
            absent=absent,
            family=row.family,
        )
    folder = run_folder(own[0].artifact)
    tested = any(cell.change is not None for cell in cells)
    searched = {"column", "dataset", "split", "seed"}
    return FilledRow(
        row.system,
        row.first_stage,
        name_system(row.baseline) if row.baseline and tested else "",
        Path(folder).name,
        folder,
        cells,
        lineage=[
            Lineage(**asdict(describe_origin(s.artifact)), **s.row.model_dump(include=searched))
            for s in own
        ],
        differs=explain_differences(own[0].artifact, previous.artifact) if previous else [],
        neighbour=name_system(previous.system) if previous else "",
        instead="; ".join(dict.fromkeys(score.row.instead for score in own if score.row.instead)),
        absent=absent,
        family=row.family,
        costs=load(TABLE_PARTS["costs"])(own[0].artifact) if layout.costs else None,
        same_as=_find_same(own),
    )


def _find_same(own: Sequence[ScoredRow]) -> str:
    """Return the earlier row with the same run; with the columns' datasets if that is so only for some of them."""
    columns: dict[str, dict[str, None]] = {}
    for score in own:
        if score.row.same_as:
            columns.setdefault(score.row.same_as, {})[score.row.column] = None
    everywhere = all(score.row.same_as for score in own)
    return ", ".join(
        name if everywhere else f"{name} ({', '.join(where)})" for name, where in columns.items()
    )


def explain_differences(scores: Artifact, other: Artifact) -> list[str]:
    """Return the differences between the runs of two scores, a line for each cause."""
    runs = [open_upstream(artifact).get("run") for artifact in (scores, other)]
    if runs[0] is None or runs[1] is None:
        return []
    lines = [
        f"{cause.stage.kind} {stage_name(cause.stage.key)}: {cause.what} is {cause.now}, there {cause.before}"
        for cause in causes(runs[0], runs[1])
    ]
    rest = len(lines) - _MOST_DIFFERENCES
    return lines[:_MOST_DIFFERENCES] + (
        [f"and {rest} more: tandem why {scores.key} {other.key}"] if rest > 0 else []
    )
