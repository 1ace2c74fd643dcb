"""A layout made into a table: means, intervals, tests and verdicts of its systems."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.errors import UserError
from tandem.reporting.bands import Bands, known, verdict
from tandem.reporting.behind import difference, lineage
from tandem.reporting.layout import Column, Layout, LayoutRow, System, name
from tandem.reporting.results import Cell, Row, Table, percent
from tandem.reporting.seeds import Block, Scored, read_block
from tandem.scoring.significance import bootstrap_interval, holm, randomisation_test

Floats64 = NDArray[np.float64]


@dataclass(frozen=True)
class Numbers:
    """A block with what follows from it: bootstrap bounds of shape (systems, measures), uncorrected p by system."""

    block: Block
    low: Floats64
    high: Floats64
    p: dict[System, Floats64]


def fill(
    layout: Layout, scored: Sequence[Scored], bands: Bands | None = None, absent: dict[System, str] | None = None
) -> Table:
    """Compute a layout's numbers.

    Each visible row is tested against its baseline by the paired randomisation test, on per-query means over seeds, and
    the p-values of a column are Holm-corrected over the table's comparisons.

    Args:
        layout: rows and columns.
        scored: the scores of every row that is not quoted, the hidden ones included.
        bands: what the verdicts go by.
        absent: rows without scores, and why they have none.
    """
    ids = [row.id for row in layout.rows]
    places = dict.fromkeys(one.place for one in scored)
    numbers = {at: _numbers(layout, [one for one in scored if one.place == at], ids) for at in places}
    columns = _columns(layout, numbers)
    corrected = {column.id: _corrected(layout, column, numbers) for column in columns}
    rows: list[Row] = []
    before: LayoutRow | None = None
    for row in layout.rows:
        if row.hidden:
            continue
        own = [one for one in scored if one.system == row.id]
        made = {c.id: _cell(layout, row, c, numbers, corrected[c.id].get(row.id)) for c in columns}
        judged = [_judged(made[c.id], layout, row, c, bands or Bands(), own) for c in columns]
        neighbour = [one for one in scored if before and one.system == before.id]
        rows.append(_row(row, judged, own, neighbour, (absent or {}).get(row.id, "")))
        before = row if own else before
    first = next(iter(numbers.values())).block
    place = first.scored[0][0]
    fixed = (layout.title, layout.paper, layout.printed_on, layout.decimals, layout.note, [c.label for c in columns])
    seeds = list(dict.fromkeys(one.seed for one in scored))
    told = [_told(layout, column, numbers) for column in columns]
    return Table(*fixed, place.dataset, place.split, first.queries, rows, told, seeds)


def _numbers(layout: Layout, scored: list[Scored], ids: list[System]) -> Numbers:
    """The intervals and tests of the systems of one place."""
    block = read_block(scored, ids)
    systems, queries, measures = block.values.shape
    flat = block.values.transpose(1, 0, 2).reshape(queries, systems * measures)
    low, high = (bound.reshape(systems, measures) for bound in bootstrap_interval(flat))
    at = {system: i for i, system in enumerate(block.systems)}
    tested = [(r.id, r.baseline) for r in layout.rows if r.baseline in at and r.id in at and not r.hidden]
    p: dict[System, Floats64] = {}
    if tested:
        differences = np.stack([block.values[at[own]] - block.values[at[base]] for own, base in tested if base], axis=1)
        found = randomisation_test(differences.reshape(queries, -1)).reshape(len(tested), measures)
        p = {own: found[i] for i, (own, _) in enumerate(tested)}
    return Numbers(block, low, high, p)


def _columns(layout: Layout, numbers: dict[tuple[str, str, str], Numbers]) -> list[Column]:
    """The layout's columns that are measured or printed; all measures for a layout without columns.

    A dataset may measure less than a table shows: answers do not tell a recall.
    """
    measured = {(at[0], measure): None for at, found in numbers.items() for measure in found.block.measures}
    if not layout.columns:
        return [Column(measure, measure) for _, measure in measured]
    printed = {column for row in layout.rows for column, value in row.printed.items() if value is not None}
    columns = [c for c in layout.columns if (c.dataset, c.measure) in measured or c.id in printed]
    if not any((c.dataset, c.measure) in measured for c in columns):
        have = ", ".join(dict.fromkeys(measure for _, measure in measured))
        raise UserError(f"{layout.title}: none of its measures was computed, only {have}")
    return columns


def _of(row: System, column: Column, numbers: dict[tuple[str, str, str], Numbers]) -> tuple[Numbers, int, int] | None:
    """Where a row's number of a column stands: the numbers, and the places of system and measure in them."""
    for at, found in numbers.items():
        block = found.block
        if at[0] == column.dataset and row in block.systems and column.measure in block.measures:
            return found, block.systems.index(row), block.measures.index(column.measure)
    return None


def _corrected(layout: Layout, column: Column, numbers: dict[tuple[str, str, str], Numbers]) -> dict[System, float]:
    """Holm-corrected p of a column by row."""
    raw = {}
    for row in layout.rows:
        place = _of(row.id, column, numbers)
        if place and row.id in place[0].p:
            raw[row.id] = place[0].p[row.id][place[2]]
    if not raw:
        return {}
    return dict(zip(raw, holm(np.array(list(raw.values()))).tolist(), strict=True))


def _cell(
    layout: Layout,
    row: LayoutRow,
    column: Column,
    numbers: dict[tuple[str, str, str], Numbers],
    p: float | None,
) -> Cell:
    """A row's number in a column, without its verdict."""
    printed, place = row.printed.get(column.id), _of(row.id, column, numbers)
    if place is None:
        return Cell(column.measure, printed, None, None, None, None, None)
    found, system, measure = place
    block, means = found.block, found.block.values.mean(axis=1)
    base = block.systems.index(row.baseline) if row.baseline in block.systems else None
    spread, scored = block.spread(system), block.scored[system]
    paper = row.dataset or column.dataset or (layout.printed_on or {}).get("dataset", "")
    split = column.split or ("" if column.dataset else (layout.printed_on or {}).get("split", ""))
    elsewhere = bool(paper) and (scored[0].collection != paper or split not in ("", scored[0].split))
    return Cell(
        column.measure,
        printed,
        percent(means[system, measure]),
        percent(found.low[system, measure]),
        percent(found.high[system, measure]),
        percent(means[system, measure] - means[base, measure]) if base is not None else None,
        None if p is None else round(p, 6),
        sd=None if spread is None else percent(spread[measure]),
        seeds=[percent(mean) for mean in block.means[:, system, measure]],
        stages=[_run(one) for one in scored],
        dataset=scored[0].dataset,
        split=scored[0].split,
        stands_in=elsewhere or any(one.instead for one in scored),
    )


def _judged(cell: Cell, layout: Layout, row: LayoutRow, column: Column, bands: Bands, own: list[Scored]) -> Cell:
    """A cell with its verdict."""
    told = {"row": row.system, "first_stage": row.first_stage, "recipe": row.run, "measure": cell.measure}
    known_as = next((one.collection for one in own if one.dataset == cell.dataset), "")
    where = {"dataset": cell.dataset, "split": cell.split, "collection": known_as}
    plain = not (layout.subset or row.labels or row.variant or row.changes)
    elsewhere = cell.stands_in or not layout.printed_on
    band = bands.of({**told, **where}, elsewhere, plain) if cell.value is not None else None
    printed = None if cell.stands_in else cell.printed
    said = verdict(cell.value, printed, band, row.wrong.get(column.id, ""))
    return replace(cell, verdict=said, band=known(band) if said else None)


def _row(row: LayoutRow, cells: list[Cell], own: list[Scored], neighbour: list[Scored], absent: str) -> Row:
    """A row with its lineage; a quoted one has none."""
    if not own:
        return Row(row.system, row.first_stage, "", "", "", cells, quoted=True, absent=absent)
    folder = own[0].artifact.upstream.get("run") or str(own[0].artifact.folder)
    tested = any(cell.change is not None for cell in cells)
    return Row(
        row.system,
        row.first_stage,
        name(row.baseline) if row.baseline and tested else "",
        Path(folder).name,
        folder,
        cells,
        lineage=[lineage(one) for one in own],
        differs=difference(own[0].artifact, neighbour[0].artifact) if neighbour else [],
        neighbour=name(neighbour[0].system) if neighbour else "",
        instead="; ".join(dict.fromkeys(one.instead for one in own if one.instead)),
        absent=absent,
    )


def _told(layout: Layout, column: Column, numbers: dict[tuple[str, str, str], Numbers]) -> dict[str, Any]:
    """What a column is: the measure, the paper's dataset and split, ours with its queries."""
    own = [(at, found.block) for at, found in numbers.items() if at[0] == column.dataset]
    (_, dataset, split), queries = (own[0][0], own[0][1].queries) if own else (("", "", ""), 0)
    paper = {"dataset_name": column.dataset_name, "printed_dataset": column.dataset, "printed_split": column.split}
    if layout.printed_on and not column.dataset:
        there = layout.printed_on
        paper = {"dataset_name": "", "printed_dataset": there["dataset"], "printed_split": there["split"]}
    named = {"measure": column.measure, "name": column.name, "label": column.label}
    return {**named, **paper, "dataset": dataset, "split": split, "queries": queries}


def _run(scored: Scored) -> str:
    """The key of the run that was scored; of the scores themselves for a group of datasets."""
    return Path(scored.artifact.upstream.get("run") or scored.artifact.folder).name
