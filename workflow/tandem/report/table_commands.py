"""The commands `table`, `show` and `report`, and the flags and files that they share with those of extras.

A paper's table in every format; and one HTML page that shows a run and needs no network: tables, the stages behind
every number, training curves, negatives, cost, and an explorer of single queries; extras add sections of their own.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter, Token
from pydantic import TypeAdapter, ValidationError

from tandem.cluster.progress import format_duration
from tandem.config.base import Model
from tandem.errors import UserError, nearest
from tandem.evaluation.layouts import PlannedRow, System, TablePlan, name_system
from tandem.report import formats
from tandem.report.charts import read_vega
from tandem.report.compare import collect_page_data, compare_systems
from tandem.report.filling import fill_table
from tandem.report.page import align_text, render_template, write_latex, write_markdown
from tandem.report.results import Table, find_view, is_sweep, list_table_names, read_table
from tandem.report.scored import (
    ScoredRow,
    collect_lines,
    open_score_artifact,
    read_scored,
    warn_of_few_seeds,
)
from tandem.report.sections import (
    Addition,
    describe_dataset,
    describe_training_list,
    list_trained_models,
)
from tandem.report.stage_graph import draw_graph, group_by_box, list_stage_costs
from tandem.stages.evaluation import ScoreParams
from tandem.store.artifact import MANIFEST, Artifact, open_artifact
from tandem.store.files import write_text
from tandem.store.lineage import input_of, tree, walk

_Plan = TypeVar("_Plan", bound=Model)


def _require_csv(_: Any, out: Path) -> None:
    if out.suffix != ".csv":
        raise UserError(f"--out: is {out}; it must end in .csv, the other formats go beside it")


def _take_first(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"])))


def _parse_json(kind: Any, tokens: Sequence[Token]) -> Any:
    try:
        return TypeAdapter(kind).validate_json(tokens[0].value)
    except ValidationError as error:
        raise UserError(f"{tokens[0].keyword}: {_take_first(error)}") from None


CsvOut = Annotated[Path, Parameter(validator=_require_csv)]  # the other formats go beside it
CsvFiles = Annotated[tuple[Path, ...], Parameter(consume_multiple=True, negative="")]
# by pydantic
JSON = Parameter(
    converter=_parse_json, n_tokens=1, accepts_keys=False, json_list=False, negative=""
)


def read_plan(flag: str, path: Path, kind: type[_Plan], expected: str) -> _Plan:
    """Return a file that planning wrote; a `UserError` where it cannot be read or is not `expected`."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"--{flag}: {path} cannot be read: {os.strerror(error.errno or 0)}"
        ) from None
    except ValidationError as error:
        raise UserError(
            f"--{flag}: {path} is not {expected} ({_take_first(error)}); snakemake writes it"
        ) from None


def write_views(out: Path, texts: Mapping[str, str]) -> None:
    """Write the formats of a table beside one another, by the endings of their files."""
    for suffix, text in texts.items():
        write_text(out.with_suffix(suffix), text)


def write_table(*, plan: Path, out: CsvOut) -> None:
    """Write a table in every format.

    Args:
        plan: the table's layout and bands, and for each row, dataset and seed the folder of its scores; planning
            writes it.
        out: the table as CSV; the others go beside it as .md, .tex, .html and .json, which `show` and `report` read.
    """
    planned = read_plan("plan", plan, TablePlan, "a table's plan")
    scored = read_scored([row for row in planned.rows if not row.absent])
    _check_rows(planned, scored)
    stages = walk(score.artifact for score in scored).values()
    notes, warnings = (collect_lines(stages, fact) for fact in ("notes", "warnings"))
    skipped = planned.skipped.items()
    notes = [
        f"{planned.layout.name_dataset(name)} is not measured: {reason}" for name, reason in skipped
    ] + notes
    table = fill_table(planned, scored)
    if table.has_tests:
        warnings += warn_of_few_seeds(len(table.seeds), stages)
    table = replace(table, notes=notes, warnings=warnings)
    grids = [
        grid for grid in (formats.make_table_grid(table), formats.make_orders_grid(table)) if grid
    ]

    def address(run: str) -> str:
        return os.path.relpath(Path(run) / MANIFEST, out.parent)

    page = render_template("table.html", title=table.heading, table=table, address=address)
    texts = {
        ".md": "\n".join(map(write_markdown, grids)),
        ".tex": "\n".join(map(write_latex, grids)),
        ".html": page,
    }
    write_views(out, texts | {".csv": formats.write_csv(table), ".json": table.to_json()})


def _check_rows(plan: TablePlan, scored: Sequence[ScoredRow]) -> None:
    """Refuse scores unless they are of exactly the layout's rows that are not quoted."""
    needed = [row.id for row in plan.layout.rows if not row.quoted]
    present = [score.system for score in scored]
    absent = [row.id for row in plan.rows if row.absent]
    wrong = [(system, "has no scores") for system in needed if system not in present + absent]
    wrong += [(system, "is not a row of the layout") for system in present if system not in needed]
    if wrong:
        system, problem = wrong[0]
        names = ", ".join(map(name_system, needed))
        raise UserError(f"{plan.name}: {name_system(system)} {problem}; its rows are {names}")


def show(table: Path, /) -> None:
    """Print a table, aligned, with every p-value, and the orders that are tested below it.

    Args:
        table: a file results/tables/<table>.csv, written by Snakemake, or the table's name alone: `summary`, of
            mine.yaml `mine/summary`.
    """
    own = table.with_suffix(".json")
    named = table.suffix != ".csv" and not own.is_file()  # a name may hold dots
    path = find_view(str(table)) if named else own
    if path.is_file() and is_sweep(path):
        page = path.with_suffix(".html")
        text = path.with_suffix(".md")
        raise UserError(f"{table}: is a sweep, not a table; open its page {page}, or {text}")
    if named and not path.is_file() and (finished := list_table_names()):
        raise UserError(f"{table}: is not a table{nearest(str(table), finished)}")
    filled = read_table(path)
    print(align_text(formats.make_table_grid(filled, terminal=True)))
    if orders := formats.make_orders_grid(filled):
        print(f"\n{align_text(orders)}")


def write_report(
    tables: Sequence[Table],
    compared: Sequence[PlannedRow],
    out: Path,
    additions: Sequence[Addition] = (),
) -> None:
    """Write the page: tables, the systems that are compared query by query, and what extras add.

    Raises:
        UserError: no system, or one that is there twice.
    """
    systems = open_systems(compared)
    rows = [row for table in tables for row in table.rows]
    folders = [
        folder
        for row in rows
        for folder in ([run.folder for run in row.lineage] or [row.folder])
        if folder
    ]
    runs = [open_artifact(Path(folder), verify=False) for folder in dict.fromkeys(folders)]
    stages = walk(
        [
            *systems.values(),
            *runs,
            *(artifact for addition in additions for artifact in addition.artifacts),
        ]
    )
    sections = [addition.section(stages) for addition in additions if addition.section]
    first = next(iter(systems.values()))
    # of datasets: its scores are means of theirs, of no single query
    is_group = "run" not in first.upstream
    statistics = (
        {}
        if is_group
        else json.loads(input_of(first, "dataset").path("statistics.json").read_text("utf-8"))
    )
    numbers = {
        stages[scores.key].upstream.get("run", scores.key): name_system(s)
        for s, scores in systems.items()
    }
    numbers |= {row.stage: name_system(row.id) for row in rows if row.stage}
    grid, chart = (None, None) if is_group else compare_systems(systems)
    commits = {
        (stage.artifact.manifest.commit, stage.artifact.manifest.dirty) for stage in stages.values()
    }
    page = render_template(
        "report.html",
        tables=tables,
        dataset=first.folder.parts[-3],
        split=first.params_as(ScoreParams).split,
        passages=statistics.get("passages", {}).get("count"),
        facts=describe_dataset(statistics),
        stages=stages,
        warnings=collect_lines(stages.values()),
        trees=[(title, tree(stages, key)) for key, title in numbers.items()],
        boxes=group_by_box(stages),
        graph=draw_graph(stages),
        training=list_trained_models(
            stages.values(), [charts for addition in additions for charts in addition.training]
        ),
        negatives=[
            describe_training_list(stage)
            for stage in stages.values()
            if stage.declared.holds == "lists"
        ],
        cost=list_stage_costs(stages.values()),
        sections=[section for section in sections if section],
        wins=grid,
        differences=chart,
        explorer=None if is_group else collect_page_data(systems),
        vega=read_vega,
        total=format_duration(sum(stage.seconds for stage in stages.values())),
        commits=sorted(
            f"{(commit or 'unknown')[:10]}{'+' if dirty else ''}" for commit, dirty in commits
        ),
    )
    write_text(out, page)


def open_systems(rows: Sequence[PlannedRow]) -> dict[System, Artifact]:
    """Return the score artifact of each system, verified."""
    if not rows:
        raise UserError("--rows: is empty; name at least one system with its scores")
    systems: dict[System, Artifact] = {}
    for row in rows:
        if row.id in systems:
            raise UserError(
                f"--rows: {name_system(row.id)} is there twice; each system and first stage once"
            )
        systems[row.id] = open_score_artifact(row.scores)
    return systems
