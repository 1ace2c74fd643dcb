"""Plan the entries of `runs`: released files, and runs that a stage of a plugin writes."""

from pathlib import Path

from tandem.config.parsing import read
from tandem.contrib.released_runs.options import ImportedRun
from tandem.contrib.released_runs.run_formats import check_run
from tandem.errors import UserError, nearest
from tandem.plan.context import Context, json_of, plans_run
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references
from tandem.plan.reported import searched
from tandem.stages import KINDS, Params
from tandem.stages.base import Json
from tandem.store.files import fingerprint


def _find_entry(ctx: Context, name: str) -> ImportedRun:
    return ctx.settings.entries("runs", ImportedRun)[name]


@plans_run("runs")
def plan_entry_of_runs(ctx: Context, name: str, split: str, where: str, data: str) -> Stage:
    """Plan a run of a released file, or of the kind of stage that the entry names."""
    kind = _find_entry(ctx, name).stage
    return (
        _plan_by_kind(ctx, name, kind, split, data) if kind else import_run(ctx, name, split, data)
    )


def import_run(ctx: Context, name: str, split: str, data: str) -> Stage:
    """Plan the stage that imports a released run."""
    entry = _find_entry(ctx, name)
    at = f"runs.{name}.paths.{split}"
    path = Path(entry.paths.get(split, ""))
    if not path.is_file():
        problem = f"{path} is not a file" if split in entry.paths else "missing"
        raise UserError(f"{at}: {problem}; splits with a file: {', '.join(entry.paths) or 'none'}")
    try:
        check_run(path, entry.format)
    except UserError as error:
        raise UserError(f"{at}: {error}") from None

    params = {
        **json_of(entry, "format", "ties"),
        **searched(ctx, split, data),
        "fingerprint": fingerprint(path),
    }
    upstream = {"dataset": dataset(ctx, data)}
    return ctx.stage("imported", data, f"{name}.{split}", params, upstream, {"path": str(path)})


def _plan_by_kind(ctx: Context, name: str, kind: str, split: str, data: str) -> Stage:
    """Plan the stage of a kind that an entry names, with its own parameters."""
    entry = _find_entry(ctx, name)
    at = f"runs.{name}"
    allowed = [known for known, declared in KINDS.items() if declared.in_runs]
    if kind not in allowed:
        raise UserError(
            f"{at}.stage: {kind} is not a kind of stage for `runs`{nearest(kind, allowed)}"
        )

    model = KINDS[kind].params
    of_runs = searched(ctx, split, data)
    params: Json | Params = {**of_runs, **entry.params}
    if model:
        lacking = of_runs.keys() - entry.params.keys() - model.model_fields.keys()
        if lacking:
            names = " and ".join(sorted(lacking))
            raise UserError(
                f"{at}.stage: {kind} has no parameter {names}, as runs do; derive its model from RunParams"
            )
        params = read(model, params, f"{at}.params")

    with ctx.opening("runs", name):
        inputs = plan_references(ctx, entry, at, Scope(data, split))
    return ctx.stage(
        kind, data, f"{name}.{split}", params, {"dataset": dataset(ctx, data), **inputs}
    )
