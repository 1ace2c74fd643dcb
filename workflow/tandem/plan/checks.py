"""Whether a configuration is right: what it names is planned, wanted or not, and mistakes are reported all at once."""

from collections.abc import Callable
from functools import partial

from tandem.config.indexes import Index
from tandem.config.settings import Settings
from tandem.errors import Unavailable, UserError
from tandem.plan import audits, fusions, lexical, runs
from tandem.plan.graph import Stages
from tandem.plan.planner import Planner, run_needs
from tandem.plan.rerankers import check_llm, check_name
from tandem.retrieval.indexes.types import check as check_index


def check_all(settings: Settings) -> None:
    """Plan whatever the configuration names, wanted or not: mistakes are reported all at once."""
    planner, wrong = Planner(settings, Stages()), check_measures(settings)
    checks: list[Callable[[], object]] = [
        *(partial(planner.encoder, name) for name, entry in settings.encoders.items() if entry.source == "pretrain"),
        *(partial(planner.model, name, f"models.{name}") for name in settings.models),
        *(partial(check_name, planner.ctx, "rerankers", name) for name in settings.rerankers),
        *(partial(check_name, planner.ctx, "llm_rerankers", name) for name in settings.llm_rerankers),
        *(partial(planner.model, name, f"rerankers.{name}") for name in settings.rerankers),
        *(partial(check_llm, entry, f"llm_rerankers.{name}") for name, entry in settings.llm_rerankers.items()),
        *(partial(check_llm, entry, "audits.llm_judge") for entry in [settings.audits.llm_judge] if entry),
        partial(audits.check_names, planner.ctx),
        *(partial(_check_ensemble, planner, name) for name in settings.ensembles),
        *(partial(_check_aggregation, planner, name) for name in settings.aggregations),
        *(partial(_check_fusion, planner, name) for name in settings.fusions),
        *(partial(_check_pipeline, planner, name) for name in settings.pipelines),
        *(partial(lexical.check_sparse, planner.ctx, name) for name in settings.sparse),
        *(
            partial(check_index, runs.index_params(entry, settings.seed), f"indexes.{name}")
            for name, entry in settings.indexes.items()
            if isinstance(entry, Index)
        ),
    ]
    for check in checks:
        try:
            check()
        except Unavailable:
            continue
        except UserError as error:
            wrong.append(str(error))
    if wrong:
        raise UserError("\n".join(dict.fromkeys(wrong)))


def check_measures(settings: Settings) -> list[str]:
    """An error for every unknown measure, with its key.

    Layouts and sweeps are not looked at: what they show must be among the measures that are scored.
    """
    # Imported here: a plan is asked for often, and this brings numerical libraries.
    from tandem.evaluation.measures import parse_measures

    named = {"score.usual": settings.score.usual, "score.measures": settings.score.measures or ()}
    named["bm25.tune.measure"] = (settings.bm25.tune.measure,)
    named["validation.measure"] = (settings.validation.measure,)
    named |= {f"fusions.{name}.tune.measure": (entry.tune.measure,) for name, entry in settings.fusions.items()}
    named |= {f"pipelines.{name}.measure": (entry.measure,) for name, entry in settings.pipelines.items()}
    named |= {f"datasets.{name}.measures": entry.measures or () for name, entry in settings.datasets.items()}
    own = {name: model.validation for name, model in settings.models.items()}
    named |= {f"models.{name}.validation.measure": (it.measure,) for name, it in own.items() if it.model_fields_set}
    wrong = []
    for path, measures in ((path, measures) for path, measures in named.items() if measures):
        try:
            parse_measures(list(measures))
        except UserError as error:
            wrong.append(f"{path}: {str(error).removeprefix('measures: ')}")
    return wrong


def _check_ensemble(planner: Planner, name: str) -> None:
    planner.plan_models(planner.settings.ensembles[name].of)
    fusions.check_ensemble(planner.ctx, name)


def _on_some_split(planner: Planner, data: str, attempt: Callable[[str], object]) -> list[UserError]:
    """A released run may have a file for a single split: why it is possible on none; empty if it is on one."""
    wrong = []
    for split in (planner.split(data), "dev", "train"):
        try:
            attempt(split)
            return []
        except UserError as error:
            wrong.append(error)
    return wrong


def _check_aggregation(planner: Planner, name: str) -> None:
    fusions.check_aggregation(planner.ctx, name)
    data = fusions.documents_of(planner.ctx, name)
    wrong = _on_some_split(planner, data, lambda split: planner.run(name, split, f"aggregations.{name}", data))
    if wrong := [error for error in wrong if not isinstance(error, Unavailable)]:
        raise wrong[0]


def _check_fusion(planner: Planner, name: str) -> None:
    ctx, data = planner.ctx, planner.settings.dataset
    fusions.check_fusion(ctx, name)
    planner.prepare(run_needs(ctx, name, data))
    if wrong := _on_some_split(
        planner, data, lambda split: runs.fused_runs(ctx, name, split, f"fusions.{name}.of", data)
    ):
        raise wrong[0]
    if planner.settings.fusions[name].is_tuned:
        fusions.tuning(ctx, name, data)


def _check_pipeline(planner: Planner, name: str) -> None:
    fusions.require_free(planner.ctx, "pipelines", name)
    planner.run(name, planner.split(), f"pipelines.{name}")
