"""The command `report`: one HTML page that shows a run and needs no network.

Tables, the stages behind every number, training curves, negatives, cost, and an explorer of single queries.
"""

import json
from pathlib import Path

from tandem.artifact import open_artifact, write_text
from tandem.progress import duration
from tandem.reporting.audits import parts, sections
from tandem.reporting.dag import draw
from tandem.reporting.explorer import explorer
from tandem.reporting.flags import read_flags, read_rows
from tandem.reporting.layout import name
from tandem.reporting.lineage import Stage, leaves, open_upstream, tree, walk
from tandem.reporting.page import render
from tandem.reporting.results import from_json
from tandem.reporting.sections import cost, negatives, training
from tandem.reporting.tables import open_rows
from tandem.reporting.validations import read_curves


def main(words: list[str]) -> int:
    """`report --tables a.csv,b.csv --rows JSON --out results/report.html [--audits JSON]
    [--validations JSON]`.

    `--tables` are files that `tandem table` wrote; `--rows` lists the systems that the explorer compares, all scored on
    one dataset and split; `--audits` lists manifests of audits whose sections the page has too, `--validations` the
    checkpoints and their values (see `read_curves`).
    """
    flags = read_flags(words, ("tables", "rows", "out"), ("audits", "validations"))
    tables = [from_json(Path(file).with_suffix(".json")) for file in flags["tables"].split(",") if file]
    systems = open_rows(read_rows(flags["rows"]))
    runs = [open_artifact(Path(row.folder), verify=False) for table in tables for row in table.rows]
    audits = [open_artifact(Path(part), verify=False) for part in parts(flags.get("audits", "[]"))]
    curves = read_curves(flags.get("validations", "[]"))
    stages = walk([*systems.values(), *runs, *audits, *(one for curve in curves for one in curve.reduced + curve.full)])
    first = next(iter(systems.values()))
    dataset = open_upstream(first)["dataset"]
    statistics = json.loads(dataset.path("statistics.json").read_text(encoding="utf-8"))
    numbers = {stages[artifact.key].upstream["run"]: name(system) for system, artifact in systems.items()}
    numbers |= {row.stage: name((row.system, row.first_stage)) for table in tables for row in table.rows}
    page = render(
        "report.html",
        tables=tables,
        dataset=dataset,
        split=first.params["split"],
        facts=leaves(statistics),
        stages=stages,
        trees=[(title, tree(stages, key)) for key, title in numbers.items()],
        dag=draw(stages),
        training=training(stages.values(), curves),
        negatives=negatives(stages.values()),
        cost=cost(stages.values()),
        total=duration(sum(stage.seconds for stage in stages.values())),
        commits=_commits(stages),
        explorer=explorer(systems),
        audited=bool(audits),
        **sections(stages),
        duration=duration,
    )
    write_text(Path(flags["out"]), page)
    return 0


def _commits(stages: dict[str, Stage]) -> list[str]:
    """The commits the stages were run at, shortened, `+` where the checkout had changes."""
    told = {(stage.artifact.manifest["commit"], stage.artifact.manifest["dirty"]) for stage in stages.values()}
    return sorted(f"{(commit or 'unknown')[:10]}{'+' if dirty else ''}" for commit, dirty in told)
