"""`tandem export --mteb`: a system's scores as the files that MTEB's `ResultCache` reads, one a task.

The format is that of mteb 2.26: `results/<model>/<revision>/<task>.json` (`TaskResult`) beside `model_meta.json`. Not
written are measures of confidence (nAUC), and times, which are in the manifests.
"""

from datetime import datetime
from pathlib import Path

from tandem.config.datasets import Group, MtebTask
from tandem.errors import UserError
from tandem.evaluation.scores import score_run
from tandem.extras.demo.systems import require_built
from tandem.extras.operations.configurations import Configuration
from tandem.plan.context import Context
from tandem.plan.datasets import run_depth
from tandem.plan.graph import Stage
from tandem.stages.base import Json
from tandem.stages.evaluation import ScoreParams
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import Job

CUTOFFS = (1, 3, 5, 10, 20, 100, 1000)
MEASURES = {"ndcg": "nDCG", "map": "AP", "recall": "R", "precision": "P", "mrr": "RR", "hit_rate": "Success"}
CUT = ("test_queries", "train_from_test", "near_duplicates")  # keys by which a dataset is no longer MTEB's


def write_results(configuration: Configuration, system: str, folder: Path) -> list[str]:
    """Write a system's results on the configuration's dataset, or on all of a group, and return the names of the tasks.

    Raises:
        UserError: a dataset that is no task of MTEB, or a run that is not built.
    """
    plan = configuration.plan()
    requested, data, ctx = set(plan.stages), plan.settings.dataset, plan.planner.ctx
    entry = ctx.dataset_entry(data)
    names = entry.of if isinstance(entry, Group) else (data,)
    tasks = {name: task_of(ctx, name) for name in names}
    whole = plan.planner.score(system, "the system")
    scores = whole.upstream.values() if isinstance(entry, Group) else [whole]
    needed = [stage.upstream[role] for stage in scores for role in ("dataset", "run")]
    require_built(needed, requested, system, configuration)
    model = {"name": f"tandem/{system}", "revision": whole.digest}
    place = folder / "results" / model["name"].replace("/", "__") / model["revision"]
    for (name, task), score in zip(tasks.items(), scores, strict=True):
        depth = run_depth(ctx, score.values["split"], name)
        write_json(place / f"{task.task}.json", task_result(task, score, depth, languages(ctx, name)))
    write_json(place / "model_meta.json", model | UNKNOWN)
    return [task.task for task in tasks.values()]


# What MTEB's `ModelMeta` asks of a model and a run does not say.
UNKNOWN: Json = {
    **dict.fromkeys(("loader", "release_date", "languages", "n_parameters", "memory_usage_mb", "max_tokens")),
    **dict.fromkeys(("embed_dim", "license", "open_weights", "public_training_code", "public_training_data")),
    **dict.fromkeys(("similarity_fn_name", "use_instructions", "training_datasets")),
    "framework": [],
}


def task_of(ctx: Context, name: str) -> MtebTask:
    """The task of MTEB that a dataset is."""
    entry, at = ctx.dataset_entry(name), f"datasets.{name}"
    if entry.mteb is None:
        raise UserError(f"{at}.mteb is missing; say which task of MTEB it is: mteb: {{task: …, split: test}}")
    if entry.relevance == "answers":
        raise UserError(f"{at}.relevance is answers; the tasks of MTEB are scored by qrels")
    for key in CUT:
        if (value := getattr(entry, key)) is not None:
            raise UserError(f"{at}.{key} is {value}, which the task {entry.mteb.task} is not; set it to null")
    return entry.mteb


def languages(ctx: Context, name: str) -> list[str]:
    """The languages of a dataset as MTEB writes them."""
    entry = ctx.dataset_entry(name)
    if entry.mteb and entry.mteb.languages:
        return list(entry.mteb.languages)
    if entry.language != "en":
        raise UserError(f"datasets.{name}.mteb.languages is missing; say it as MTEB does, such as deu-Latn")
    return ["eng-Latn"]


def task_result(task: MtebTask, score: Stage, depth: int, languages: list[str]) -> Json:
    """MTEB's `TaskResult` of a run, by the stage that scores it, as far down as the run goes."""
    keys = {f"{key}_at_{k}": f"{name}@{k}" for k in CUTOFFS if k <= depth for key, name in MEASURES.items()}
    if task.main_score not in keys:
        raise UserError(f"mteb.main_score is {task.main_score}, but runs are {depth} deep; known: {', '.join(keys)}")
    inputs = {role: open_artifact(Path(score.upstream[role].folder)) for role in ("dataset", "run")}
    params = ScoreParams.model_validate({**score.values, "measures": list(keys.values())})
    result, _ = score_run(Job("score", Path(score.folder), params, inputs))
    means = dict(zip(keys, result.values.mean(axis=0).round(6).tolist(), strict=True))
    values = {**means, "accuracy": means["recall_at_1"], "main_score": means[task.main_score]}
    return {
        "dataset_revision": f"tandem-{inputs['dataset'].manifest.facts['checksum']}",
        "task_name": task.task,
        "mteb_version": None,
        "scores": {task.split: [{**values, "hf_subset": task.subset, "languages": languages}]},
        "evaluation_time": None,
        "kg_co2_emissions": None,
        "date": datetime.fromisoformat(inputs["run"].manifest.finished).timestamp(),
    }
