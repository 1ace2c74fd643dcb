"""Find the parts of a system that score passages from the stages that write its run."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tandem.data.collection import LISTS
from tandem.errors import UserError, nearest
from tandem.extras.plan import FullPlan
from tandem.extras.targets import Configuration
from tandem.plan.context import list_blocks, plans_reranking, plans_run
from tandem.plan.graph import Stage, upstream_first
from tandem.stages.base import Json
from tandem.stages.data import ANALYZERS
from tandem.store.artifact import open_artifact

BM25, DUAL, CROSS = PART_COLUMNS = ("BM25", "DE", "CE")
# names in expressions whose runs cannot answer new queries: a dataset's own lists, and weights of terms in Lucene
_RUNS_ALONE = ("given", "lucene")
# column by the kind of model that gives a run its scores
_COLUMN_BY_SCORING = {"lexical": BM25, "dual": DUAL, "cross": CROSS}


@dataclass(frozen=True)
class SystemPart:
    """A model or a BM25 index that scores passages."""

    column: str  # `BM25`, `DE` or `CE`
    name: str  # of the model, ensemble or BM25 variant
    key: str
    params: Json  # its stage's parameters, which determine its scores
    needs: dict[str, Stage]  # role → stage whose artifact it reads

    @property
    def label(self) -> str:
        """Return the name of its scores, such as `BM25`, `DE de_bm25neg` or `CE ce_deneg`."""
        return BM25 if self.name == "bm25" else f"{self.column} {self.name}"


def resolve_system(plan: FullPlan, system: str) -> Stage:
    """Return the stage of a system's run on the reported split.

    Raises:
        UserError: the system is unknown, or unable to answer new queries.
    """
    require_system(plan, system)
    run = plan.planner.run(system, plan.split, "the system")
    for fixed in list_fixed_runs(run):
        name = fixed.name.rpartition(".")[0]
        what = "has texts that were generated for known queries"
        if not _has_generated_texts(fixed):
            what = f"is a run of the stage {fixed.kind}"
        raise UserError(f"{name} {what}, which answers no new query; name another system")
    return run


def require_system(plan: FullPlan, system: str) -> None:
    """Refuse an expression that has an unknown or missing name, or is only a cross-encoder."""
    settings, planner = plan.settings, plan.planner
    blocks = ("models", *list_blocks(plans_run))
    blocks_of_parts = (*list_blocks(plans_reranking), "encoders", "indexes")
    systems = [name for block in blocks for name in getattr(settings, block)]
    parts = [name for block in blocks_of_parts for name in getattr(settings, block)]
    systems += ["bm25", *(f"bm25.{name}" for name in ANALYZERS), "encoder"]

    known = {*systems, *parts, *_RUNS_ALONE}
    for name in system.replace("@", "+").split("+"):
        if not name:
            raise UserError(f"{system} is not a system: a name is missing beside + or @")
        if (
            name not in known
            and planner.ctx.model_name(name) not in known
            and not planner.ctx.untrained(name)
        ):
            raise UserError(f"{name} is not a system{nearest(name, systems, parts)}")
    is_cross = system in settings.models and settings.models[system].objective == "cross"
    if "+" not in system and (is_cross or system in settings.rerankers):
        raise UserError(
            f"{system} is a cross-encoder, which re-ranks a list; say whose: bm25+{system}"
        )


def require_given_lists(run: Stage) -> None:
    """Refuse the run `given`, or a run made from it, if the dataset is built and has no training lists."""
    given = [other for other in list_all_runs(run) if other.kind == "given"]
    for dataset in filter(is_built, (other.upstream["dataset"] for other in given)):
        files = open_artifact(Path(dataset.folder), verify=False).manifest.files
        if LISTS not in files:
            problem = f"dataset {dataset.dataset} has no training lists of its own"
            raise UserError(f"given: {problem}; name another run")


def list_source_runs(run: Stage) -> list[Stage]:
    """Return the runs from which a run is made, in order: the run that it re-ranks, or the runs that it fuses."""
    roles = [role for role in run.upstream if role.split(".")[0] == "run"]
    # Shorter names first: `run.10` follows `run.9`.
    roles.sort(key=lambda role: (len(role), role))
    return [run.upstream[role] for role in roles]


def list_all_runs(run: Stage) -> list[Stage]:
    """Return a run and all runs from which it is made, first stages first."""
    runs = []
    for source in list_source_runs(run):
        runs += list_all_runs(source)
    return [*runs, run]


def list_fixed_runs(run: Stage) -> list[Stage]:
    """Return which of a run and its sources cannot be computed for a new query, such as a run by a plugin's scorer."""
    return [
        other
        for other in list_all_runs(run)
        if not other.declared.scoring.by
        or other.values.get("scorer")
        or _has_generated_texts(other)
    ]


def _has_generated_texts(run: Stage) -> bool:
    """Return whether generated texts are appended to the queries of a run."""
    return "generated" in run.upstream


def find_part(run: Stage) -> SystemPart:
    """Return the part that gives a run its scores; the run is not a fusion."""
    name, column = run.name.rpartition(".")[0], _COLUMN_BY_SCORING[run.declared.scoring.by]
    needs = dict(run.upstream)
    if column == BM25:
        return SystemPart(BM25, name, run.key, run.values, needs)

    if column == DUAL:
        del needs["queries"]
        vectors = needs["passages"]
        needs |= {role: vectors.upstream[role] for role in ("model", "tokens")}
        return SystemPart(DUAL, name, run.key, {**vectors.values, **run.values}, needs)

    del needs["run"]
    models = [
        stage.key
        for role, stage in sorted(needs.items())
        if role.split(".")[0] in ("model", "judge")
    ]
    return SystemPart(CROSS, name.rpartition("+")[2], "+".join(models), run.values, needs)


def list_parts(run: Stage) -> list[SystemPart]:
    """Return the parts of a run, first stages first."""
    return [
        find_part(other)
        for other in list_all_runs(run)
        if other.declared.scoring.by in _COLUMN_BY_SCORING
    ]


def list_needed_stages(run: Stage) -> list[Stage]:
    """Return every artifact that a search of a run reads."""
    stages = [stage for part in list_parts(run) for stage in part.needs.values()]
    stages += [other.upstream["tuned"] for other in list_all_runs(run) if "tuned" in other.upstream]
    return stages


def list_comparable_parts(plan: FullPlan, run: Stage) -> list[SystemPart]:
    """Return parts whose scores may be shown next to those of a run, in the order of preference.

    First BM25, then the parts of the tables' systems: systems that share a part with the run come first, and within
    both groups the last row of the tables comes first.
    """
    own = {part.key for part in list_parts(run)}
    scores = [
        stage for stage in reversed(plan.tables.requested_scores()) if stage.dataset == run.dataset
    ]
    runs = [stage.upstream["run"] for stage in scores]
    systems = [list_parts(other) for other in runs if not list_fixed_runs(other)]
    systems.sort(key=lambda parts: own.isdisjoint(part.key for part in parts))

    bm25 = find_part(resolve_system(plan, "bm25"))
    return [bm25, *(part for parts in systems for part in parts)]


def is_built(stage: Stage) -> bool:
    """Return whether a stage is finished."""
    return Path(stage.manifest).is_file()


def require_built(stages: Iterable[Stage], system: str, configuration: Configuration) -> None:
    """Refuse to begin before every artifact is finished and its files have the sizes in its manifest.

    Checksums are left to the stages, since those of a large corpus would take longer than many searches.

    Args:
        system: the expression that needs the stages' artifacts.
        configuration: for the command that builds what is missing.
    """
    needed = dict.fromkeys(stages)
    missing = [stage for stage in needed if not is_built(stage)]
    above = {other.key for stage in upstream_first(missing) for other in stage.upstream.values()}
    # building these also builds what they need
    last = [stage for stage in missing if stage.key not in above]
    if last:
        # plan again: the stages that Snakemake knows without `systems`
        requested = configuration.plan().stages
        planned = all((stage.kind, stage.key) in requested for stage in last)
        names = ", ".join(f"{stage.kind} {stage.key}" for stage in last)
        command = configuration.snakemake(
            [stage.manifest for stage in last], "" if planned else system
        )
        raise UserError(f"{system} cannot be used before {names} is built; build it: {command}")
    for stage in needed:
        for name, file in open_artifact(Path(stage.folder), verify=False).manifest.files.items():
            path = Path(stage.folder, name)
            if not path.is_file() or path.stat().st_size != file.bytes:
                problem = f"{path}: missing or changed since it was written"
                raise UserError(f"{problem}; delete {stage.manifest} and rebuild")
