"""One HTML page that shows a run and needs no network.

It has tables, the stages behind every number, training curves, negatives, cost, and a view of single queries; packages
add sections of their own.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tandem.cluster.progress import format_duration
from tandem.errors import UserError
from tandem.evaluation.layouts import PlannedRow, System, name_system
from tandem.evaluation.scores import list_shared_measures, read_scores
from tandem.extras.report.charts import read_vega
from tandem.extras.report.compare import collect_page_data, compare_systems
from tandem.extras.report.page import render_template
from tandem.extras.report.sections import (
    Addition,
    describe_dataset,
    describe_training_list,
    list_trained_models,
)
from tandem.extras.report.stage_graph import draw_graph, group_by_box, list_stage_costs
from tandem.extras.report.table_answers import answer_question, rank_rows
from tandem.extras.stage_tree import tree
from tandem.report.results import Table
from tandem.report.scored import collect_lines, open_score_artifact
from tandem.stages.evaluation import ScoreParams
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_text
from tandem.store.lineage import input_of, walk


def write_report(
    tables: Sequence[Table],
    compared: Sequence[PlannedRow],
    out: Path,
    additions: Sequence[Addition] = (),
) -> None:
    """Write the page: tables, the systems that are compared query by query, and what packages add.

    Raises:
        UserError: no system, or one that is given twice.
    """
    systems = open_systems(compared)
    rows = [row for table in tables for row in table.rows]
    folders: list[str] = []
    for row in rows:
        folders += [run.folder for run in row.lineage] or [row.folder]
    distinct = dict.fromkeys(filter(None, folders))
    runs = [open_artifact(Path(folder), verify=False) for folder in distinct]
    stages = walk(
        [
            *systems.values(),
            *runs,
            *(artifact for addition in additions for artifact in addition.artifacts),
        ]
    )
    sections = [addition.section(stages) for addition in additions if addition.section]
    first = next(iter(systems.values()))
    # a group of datasets: its scores are means over theirs, and belong to no single query
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
        sentences=answer_question(tables[0]) if tables else [],
        rank_rows=rank_rows,
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
    """Return the score artifact of each system, verified.

    Systems are left out if their corrected labels leave other queries with a relevant passage than the first system's,
    or if they have no measure in common with those before.
    """
    if not rows:
        raise UserError("--rows: is empty; name at least one system with its scores")
    systems: dict[System, Artifact] = {}
    for row in rows:
        if row.id in systems:
            raise UserError(
                f"--rows: {name_system(row.id)} is there twice; each system and first stage once"
            )
        systems[row.id] = open_score_artifact(row.scores)

    first = next(iter(systems.values()))
    queries, _ = read_scores(first, [])
    compared: dict[System, Artifact] = {}
    for system, scores in systems.items():
        same_labels = scores.upstream.get("labels") == first.upstream.get("labels")
        if (same_labels or read_scores(scores, [])[0] == queries) and list_shared_measures(
            [*compared.values(), scores]
        ):
            compared[system] = scores
    return compared
