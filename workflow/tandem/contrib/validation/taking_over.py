"""Make the trained model from one of its checkpoints."""

import json

from tandem.cluster.progress import warn
from tandem.contrib.validation.outcomes import warn_of_few_queries, warn_of_no_gain
from tandem.contrib.validation.selection import (
    find_best,
    read_statistics,
    read_validation_value,
    read_worth,
)
from tandem.errors import UserError
from tandem.evaluation.measure_names import is_share
from tandem.extras.validation.validation_points import ValidationPoint
from tandem.stages import declaration
from tandem.stages.training import ModelParams
from tandem.store.files import link, write_json
from tandem.store.job import Job, writing

# facts that a model takes over from its checkpoint
_FACTS_OF_A_CHECKPOINT = ("lists", "steps", "planned_steps", "sizes", "precision", "device")


def take_over(job: Job[ModelParams]) -> None:
    """Turn one of the inputs `checkpoint.<n>` into the model: the last, or by `validation.<n>` the best.

    Its files are hard links to the checkpoint's if the file system has them; the log is that of the whole training.
    """
    checkpoints = job.many("checkpoint")
    validations = job.many("validation")
    if validations and len(validations) != len(checkpoints):
        counts = f"{len(checkpoints)} checkpoints, but {len(validations)} validations"
        raise UserError(f"model: {counts}; one each is needed")
    steps = [int(checkpoint.manifest.facts["steps"]) for checkpoint in checkpoints]
    worths = [read_worth(validation) for validation in validations]
    history = [
        ValidationPoint(step, {"": value}) for step, value in zip(steps, worths, strict=False)
    ]
    index = find_best(worths) if worths else len(checkpoints) - 1
    selected = checkpoints[index]
    last = checkpoints[-1]
    with writing(job) as draft:
        for name in selected.manifest.files:
            source = last if name == "log.parquet" else selected
            link(source.path(name), draft.path(name))

        model = json.loads(selected.path("model.json").read_text(encoding="utf-8"))
        model["best"] = None
        measure = ""
        if validations:
            measure, value = read_validation_value(validations[index])
            model["best"] = [value, steps[index]]
        model["checkpoint"] = selected.key
        draft.path("model.json").unlink()  # a link: writing into it would change the checkpoint's
        write_json(draft.path("model.json"), model)

        facts = selected.manifest.facts
        draft.facts |= {name: facts[name] for name in _FACTS_OF_A_CHECKPOINT if name in facts}
        draft.facts["checkpoint"] = selected.key
        draft.facts["at_chance"] = last.manifest.facts.get("at_chance", False)
        lines = [warn_of_no_gain(history, "dev", f"dev {measure}")]
        chosen = validations[index] if validations else None
        # the effect of chance on a mean rank is not known
        if chosen and not declaration(chosen.kind).lower_is_better and is_share(measure):
            queries = read_statistics(chosen)["queries"]
            lines.append(warn_of_few_queries("dev", queries, measure))
        for line in filter(None, lines):
            warn(job, draft, line)
