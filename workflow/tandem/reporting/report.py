"""The command `report`: one HTML page that shows a run and needs no network.

Tables, the stages behind every number, training curves, negatives, cost, and an explorer of single queries.
"""

import json
from pathlib import Path
from typing import Any

from tandem.cluster.progress import duration
from tandem.reporting.analyses import sheets
from tandem.reporting.audits import parts, sections
from tandem.reporting.compare import compare
from tandem.reporting.dag import draw
from tandem.reporting.described import described
from tandem.reporting.explorer import explorer
from tandem.reporting.flags import read_flags, read_rows
from tandem.reporting.layout import name
from tandem.reporting.overview import boxes as boxed
from tandem.reporting.overview import overview
from tandem.reporting.page import render
from tandem.reporting.results import Row, from_json
from tandem.reporting.sections import cost, cost_chart, negatives, training
from tandem.reporting.sweep_page import Shown, shown
from tandem.reporting.sweep_results import read
from tandem.reporting.tables import open_rows
from tandem.reporting.validations import read_curves
from tandem.reporting.vega import bundle
from tandem.store.artifact import open_artifact
from tandem.store.files import write_text
from tandem.store.lineage import Stage, input_of, tree, walk


def main(words: list[str]) -> int:
    """`report --tables a.csv,b.csv --rows JSON --out results/report.html [--audits JSON] [--validations JSON]
    [--sweeps JSON] [--analyses JSON]`.

    `--tables` are files that `tandem table` wrote; `--rows` lists the systems that are compared, all scored on one
    dataset and split; `--audits` lists manifests of audits whose sections the page has too, `--validations` the
    checkpoints and their values (see `read_curves`), `--sweeps` files that `tandem sweep` wrote, `--analyses` manifests
    of error analyses.
    """
    flags = read_flags(words, ("tables", "rows", "out"), ("audits", "validations", "sweeps", "analyses"))
    tables = [from_json(Path(file).with_suffix(".json")) for file in flags["tables"].split(",") if file]
    systems = open_rows(read_rows(flags["rows"]))
    folders = dict.fromkeys(folder for table in tables for row in table.rows for folder in behind(row))
    runs = [open_artifact(Path(folder), verify=False) for folder in folders]
    audits, analyses = (
        [open_artifact(Path(part), verify=False) for part in parts(flags.get(flag, "[]"), flag)]
        for flag in ("audits", "analyses")
    )
    curves = read_curves(flags.get("validations", "[]"))
    stages = walk(
        [*systems.values(), *runs, *audits, *analyses, *(one for curve in curves for one in curve.reduced + curve.full)]
    )
    first = next(iter(systems.values()))
    is_group = "run" not in first.upstream  # of datasets: its scores are means of theirs, of no single query
    statistics = {} if is_group else json.loads(input_of(first, "dataset").path("statistics.json").read_text("utf-8"))
    numbers = {stages[one.key].upstream.get("run", one.key): name(system) for system, one in systems.items()}
    numbers |= {row.stage: name((row.system, row.first_stage)) for table in tables for row in table.rows if row.stage}
    boxes = boxed(stages.values())
    page = render(
        "report.html",
        tables=tables,
        dataset=first.folder.parts[-3],
        systems=len(systems),
        split=first.params["split"],
        passages=statistics.get("passages", {}).get("count"),
        facts=described(statistics),
        stages=stages,
        trees=[(title, tree(stages, key)) for key, title in numbers.items()],
        overview=overview(boxes),
        boxes=boxes,
        dag=draw(stages),
        training=training(stages.values(), curves),
        negatives=negatives(stages.values()),
        cost=cost(stages.values()),
        cost_chart=cost_chart(boxes),
        sweeps=sweeps(parts(flags.get("sweeps", "[]"), "sweeps"), stages),
        analyses=sheets(stages.values()),
        comparison=None if is_group else compare(systems),
        vega=bundle,
        total=duration(sum(stage.seconds for stage in stages.values())),
        commits=_commits(stages),
        explorer=None if is_group else explorer(systems),
        audited=bool(audits),
        **sections(stages),
        duration=duration,
    )
    write_text(Path(flags["out"]), page)
    return 0


def behind(row: Row) -> list[str]:
    """Folders of the runs that a row's numbers were measured on."""
    return [told["folder"] for told in row.lineage] or [row.folder] * bool(row.folder)


def sweeps(files: list[str], stages: dict[str, Stage]) -> list[Shown]:
    """What `_sweeps.html` shows of the files that `tandem sweep` wrote; runs that the page has lead to their stage."""

    def address(told: dict[str, Any]) -> str:
        """A run's entry among the stages."""
        return f"#stage-{told['run']}" if told["run"] in stages else ""

    return [shown(read(Path(file).with_suffix(".json")), address) for file in files]


def _commits(stages: dict[str, Stage]) -> list[str]:
    """The commits the stages were run at, shortened, `+` where the checkout had changes."""
    told = {(stage.artifact.manifest.commit, stage.artifact.manifest.dirty) for stage in stages.values()}
    return sorted(f"{(commit or 'unknown')[:10]}{'+' if dirty else ''}" for commit, dirty in told)
