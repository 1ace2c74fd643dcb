"""The parts of a system that score passages, found from the stages that write its run."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tandem.errors import UserError, nearest
from tandem.extras.operations.targets import Configuration
from tandem.extras.plan import FullPlan
from tandem.plan.context import RERANKERS, RUNS
from tandem.plan.graph import Stage, upstream_first
from tandem.stages.base import Json
from tandem.stages.data import ANALYZERS
from tandem.store.artifact import open_artifact

BM25, DUAL, CROSS = COLUMNS = ("BM25", "DE", "CE")
COLUMN_OF = {"lexical": BM25, "dual": DUAL, "cross": CROSS}  # by what gives a run its scores


@dataclass(frozen=True)
class Scorer:
    """Something that scores passages."""

    column: str  # `BM25`, `DE` or `CE`
    name: str  # of the model, ensemble or BM25 variant
    key: str
    params: Json  # what decides its scores, as its stage has it
    needs: dict[str, Stage]  # role → stage whose artifact it reads

    @property
    def label(self) -> str:
        """The name of its scores: `BM25`, `DE de_bm25neg`, `CE ce_deneg`."""
        return BM25 if self.name == "bm25" else f"{self.column} {self.name}"


def resolve(plan: FullPlan, system: str) -> Stage:
    """The stage of a system's run on the reported split; a `UserError` if unknown or unable to answer new queries."""
    settings, planner = plan.settings, plan.planner
    systems = [name for block in ("models", *RUNS) for name in getattr(settings, block)]
    parts = [name for block in (*RERANKERS, "encoders", "indexes") for name in getattr(settings, block)]
    systems += ["bm25", *(f"bm25.{name}" for name in ANALYZERS), "encoder"]
    known = {*systems, *parts}
    for name in system.replace("@", "+").split("+"):
        if name not in known and planner.ctx.model_name(name) not in known and not planner.ctx.untrained(name):
            raise UserError(f"{name} is not a system{nearest(name, systems, parts)}")
    is_cross = system in settings.models and settings.models[system].objective == "cross"
    if "+" not in system and (is_cross or system in settings.rerankers):
        raise UserError(f"{system} is a cross-encoder, which re-ranks a list; say whose: bm25+{system}")
    run = planner.run(system, plan.split, "the system")
    for fixed in fixed_runs(run):
        name = fixed.name.rpartition(".")[0]
        raise UserError(f"{name} is a run of the stage {fixed.kind}, which answers no new query; name another system")
    return run


def source_runs(run: Stage) -> list[Stage]:
    """The runs that a run is made from, in order: the one that it re-ranks, or those that it fuses."""
    roles = sorted((role for role in run.upstream if role.split(".")[0] == "run"), key=lambda role: (len(role), role))
    return [run.upstream[role] for role in roles]


def all_runs(run: Stage) -> list[Stage]:
    """A run and those that it is made from, first stages first."""
    return [*(above for source in source_runs(run) for above in all_runs(source)), run]


def fixed_runs(run: Stage) -> list[Stage]:
    """The runs, of a run and its sources, that cannot be made for a new query, such as those of a plugin's scorer."""
    return [each for each in all_runs(run) if not each.declared.scoring.by or each.values.get("scorer")]


def part(run: Stage) -> Scorer:
    """Return the part that gives a run its scores, unless that is a fusion."""
    name, above, column = run.name.rpartition(".")[0], dict(run.upstream), COLUMN_OF[run.declared.scoring.by]
    if column == BM25:
        return Scorer(BM25, name, run.key, run.values, above)
    if column == DUAL:
        del above["queries"]
        vectors = above["passages"]
        above |= {role: vectors.upstream[role] for role in ("model", "tokens")}
        return Scorer(DUAL, name, run.key, {**vectors.values, **run.values}, above)
    del above["run"]
    models = "+".join(stage.key for role, stage in sorted(above.items()) if role.split(".")[0] in ("model", "judge"))
    return Scorer(CROSS, name.rpartition("+")[2], models, run.values, above)


def parts(run: Stage) -> list[Scorer]:
    """The parts of a run, first stages first."""
    return [part(other) for other in all_runs(run) if other.declared.scoring.by in COLUMN_OF]


def needs(run: Stage) -> list[Stage]:
    """Every artifact that a search of a run reads."""
    tuned = [other.upstream["tuned"] for other in all_runs(run) if "tuned" in other.upstream]
    return [stage for scorer in parts(run) for stage in scorer.needs.values()] + tuned


def comparable_parts(plan: FullPlan, run: Stage) -> list[Scorer]:
    """Parts whose scores may stand beside those of a run, in the order of preference.

    BM25; then the tables' systems, the last row first, but before all others those that share a part with the run.
    """
    own = {scorer.key for scorer in parts(run)}
    runs = [s.upstream["run"] for s in reversed(plan.tables.requested_scores()) if s.dataset == run.dataset]
    others = [parts(other) for other in runs if not fixed_runs(other)]
    others.sort(key=lambda used: own.isdisjoint(scorer.key for scorer in used))
    return [part(resolve(plan, "bm25")), *(scorer for used in others for scorer in used)]


def is_built(stage: Stage) -> bool:
    """Whether a stage is finished."""
    return Path(stage.manifest).is_file()


def require_built(stages: Iterable[Stage], system: str, configuration: Configuration) -> None:
    """Refuse to begin before every artifact is finished and its files have the sizes in its manifest.

    Checksums are left to the stages: of a large corpus they would take longer than many searches.

    Args:
        system: the expression that needs the stages' artifacts.
        configuration: for the command that builds what is missing.
    """
    needed = dict.fromkeys(stages)
    missing = [stage for stage in needed if not is_built(stage)]
    above = {other.key for stage in upstream_first(missing) for other in stage.upstream.values()}
    if last := [stage for stage in missing if stage.key not in above]:
        requested = configuration.plan().stages  # planned anew: what Snakemake knows without `systems`
        planned = all((stage.kind, stage.key) in requested for stage in last)
        names = ", ".join(f"{stage.kind} {stage.key}" for stage in last)
        command = configuration.snakemake([stage.manifest for stage in last], "" if planned else system)
        raise UserError(f"{system} cannot be used before {names} is built; build it: {command}")
    for stage in needed:
        for name, file in open_artifact(Path(stage.folder), verify=False).manifest.files.items():
            path = Path(stage.folder, name)
            if not path.is_file() or path.stat().st_size != file.bytes:
                problem = f"{path}: missing or changed since it was written"
                raise UserError(f"{problem}; delete {stage.manifest} and rebuild")
