"""The command `audits`: one page, and one table, of what the audits of a dataset found."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tandem.cluster.progress import duration
from tandem.errors import UserError
from tandem.reporting.audit_false_negatives import false_negatives
from tandem.reporting.audit_noise import noise
from tandem.reporting.audit_similar import similar
from tandem.reporting.described import described
from tandem.reporting.flags import read_flags, read_json
from tandem.reporting.page import render
from tandem.reporting.plain import csv_lines
from tandem.stages.flags import flatten
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_text
from tandem.store.lineage import Stage, walk

HEADER = ["audit", "finding", "where", "count", "share", "stage"]
# Of summary.json: how was looked, and what is a drawing.
UNTOLD = ("histogram", "depth", "top", "threshold")


def main(words: list[str]) -> int:
    """`audits --parts JSON --out results/audits.html --table results/tables/audits.csv`.

    `--parts` is a JSON list of manifests: of audits, relabellings, and of the scores that show their effect.
    """
    flags = read_flags(words, ("parts", "out", "table"))
    stages = walk([open_artifact(Path(part)) for part in parts(flags["parts"])])
    found = sections(stages)
    dataset = next(stage for stage in stages.values() if stage.kind == "dataset")
    facts = described(json.loads(dataset.artifact.path("statistics.json").read_text(encoding="utf-8")))
    page = render("audits.html", dataset=dataset, facts=facts, stages=stages, duration=duration, **found)
    write_text(Path(flags["table"]), _csv(stages))
    write_text(Path(flags["out"]), page)
    return 0


def sections(stages: dict[str, Stage]) -> dict[str, Any]:
    """What `_audits.html` shows of some stages: each audit among them."""
    every = stages.values()
    return {"noise": noise(every), "similar": similar(every), "false_negatives": false_negatives(every)}


def parts(text: str, flag: str = "parts") -> list[str]:
    """`--parts` and its like: a JSON list of files."""
    told = read_json(flag, text)
    if not isinstance(told, list) or not all(isinstance(part, str) for part in told):
        raise UserError(f"--{flag}: is not a JSON list of files")
    return told


def _csv(stages: dict[str, Stage]) -> str:
    """Every number of every audit, a line each."""
    audits = [stage for stage in stages.values() if stage.kind in LINES]
    return csv_lines(HEADER, ([a.kind, *line, a.key] for a in audits for line in LINES[a.kind](a.artifact)))


def _noise(artifact: Artifact) -> Iterator[list[str]]:
    """finding, where, count, share."""
    with open(artifact.path("noise.csv"), encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            yield [line[name] for name in HEADER[1:5]]


def _summary(artifact: Artifact) -> Iterator[list[str]]:
    """The same of summary.json: what it calls percent is a share."""
    for path, value in flatten(json.loads(artifact.path("summary.json").read_text(encoding="utf-8"))).items():
        if path.split(".")[0] not in UNTOLD and isinstance(value, (int, float)) and not isinstance(value, bool):
            is_share = "percent" in path
            yield [path, "", "" if is_share else str(value), f"{value / 100:.6f}" if is_share else ""]


LINES: dict[str, Callable[[Artifact], Iterator[list[str]]]] = {
    "noise": _noise,
    "similar_queries": _summary,
    "false_negatives": _summary,
}
