"""Which checkpoint becomes the model: the last, or the one that validates best, the start among them."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tandem.cluster.progress import warn
from tandem.errors import UserError
from tandem.stages.training import ModelParams
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing
from tandem.training.history import Point, no_gain

LOWER = ("average_rank",)  # kinds of validations whose value is better, the lower it is
FACTS = ("lists", "steps", "precision", "device")


def validated(validation: Artifact) -> tuple[str, float]:
    """The measure of a validation and its mean over queries."""
    means = json.loads(validation.path("statistics.json").read_text(encoding="utf-8"))["mean"]
    ((measure, value),) = means.items()
    return str(measure), float(value)


def worth(validation: Artifact) -> float:
    """A validation's value, turned so that higher is better."""
    value = validated(validation)[1]
    return -value if validation.manifest.kind in LOWER else value


def best(worths: Sequence[float]) -> int:
    """Index of the highest value, the first of equal ones."""
    return max(range(len(worths)), key=lambda at: (worths[at], -at))


def take_over(job: Job[ModelParams]) -> None:
    """Turn one of the inputs `checkpoint.<n>` into the model: the last, or by `validation.<n>` the best.

    Its files are hard links to the checkpoint's where the file system has them; the log is that of the whole training.
    """
    checkpoints, validations = job.many("checkpoint"), job.many("validation")
    if validations and len(validations) != len(checkpoints):
        counts = f"{len(checkpoints)} checkpoints, but {len(validations)} validations"
        raise UserError(f"model: {counts}; one each is needed")
    steps = [int(checkpoint.manifest.facts["steps"]) for checkpoint in checkpoints]
    worths = [worth(validation) for validation in validations]
    history = [Point(step, {"": value}) for step, value in zip(steps, worths, strict=False)]
    at = best(worths) if worths else len(checkpoints) - 1
    selected, last = checkpoints[at], checkpoints[-1]
    with writing(job) as draft:
        for name in selected.manifest.files:
            link(selected.path(name) if name != "log.parquet" else last.path(name), draft.path(name))
        model = json.loads(selected.path("model.json").read_text(encoding="utf-8"))
        measure, value = validated(validations[at]) if validations else ("", 0.0)
        draft.path("model.json").unlink()
        chosen = [value, steps[at]] if validations else None
        write_json(draft.path("model.json"), model | {"best": chosen, "checkpoint": selected.key})
        draft.facts |= {name: selected.manifest.facts[name] for name in FACTS} | {"checkpoint": selected.key}
        draft.facts["at_chance"] = last.manifest.facts.get("at_chance", False)
        if line := no_gain(history, "dev", f"dev {measure}"):
            warn(job, draft, line)


def link(source: Path, target: Path) -> None:
    """A hard link to a file, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
