"""Small artifacts of every kind, made on the spot and scored by the real stage."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from tandem.data.runs import write_run
from tandem.evaluation.scores import run as score
from tandem.stages import KINDS
from tandem.store.artifact import open_artifact
from tandem.store.job import Job, writing

MEASURES = ["RR@10", "nDCG@10", "Success@1", "Success@50", "R@50"]


def unchecked(kind, params):
    """Parameters of a made-up artifact: of the kind's model, whatever they are; scores are real."""
    model = KINDS[kind].params if kind in KINDS else None
    if model is None or kind == "score":
        return params
    values = {
        "model_config": ConfigDict(extra="allow"),
        "__annotations__": dict.fromkeys(params, Any),
    }
    loose = type(f"Toy{model.__name__}", (model,), values)
    return loose.model_construct(**params)


@dataclass
class World:
    """Makes artifacts below `results/toy`; a key's digest follows from its params and inputs, as the graph's does."""

    root: Path
    rows: list[dict[str, str]] = field(default_factory=list)

    def job(self, kind, name, params, **inputs):
        text = json.dumps(
            [kind, params, {role: artifact.key for role, artifact in inputs.items()}],
            sort_keys=True,
        )
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return Job(
            kind,
            self.root / "results/toy" / kind / f"{name}-{digest}",
            unchecked(kind, params),
            inputs,
        )

    def make(self, kind, name, params, files=None, **inputs):
        """An artifact of text files; `files` may be a function of the draft, or the lists of a run."""
        job = self.job(
            kind,
            name,
            params,
            **{role.replace("_", "."): artifact for role, artifact in inputs.items()},
        )
        with writing(job) as draft:
            if callable(files):
                files(draft)
            elif isinstance(files, list):
                write_run(job, draft, files)
            else:
                for file, content in (files or {"data.txt": name}).items():
                    draft.path(file).write_text(content, encoding="utf-8")
        return open_artifact(job.out)

    def score(self, system, first_stage, run, dataset, measures=MEASURES, **more):
        """Score a run with the real stage and note it as a row."""
        job = self.job(
            "score",
            run.key.rpartition("-")[0],
            {"measures": measures, "split": "test"},
            dataset=dataset,
            run=run,
            **more,
        )
        score(job)
        self.rows.append({"system": system, "first_stage": first_stage, "scores": str(job.out)})
        return open_artifact(job.out)

    def select(self, *systems):
        """Rows of some systems as JSON, in that order."""
        by_system = {(row["system"], row["first_stage"]): row for row in self.rows}
        return json.dumps([by_system[system] for system in systems])
