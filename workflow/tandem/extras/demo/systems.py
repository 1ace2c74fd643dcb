"""What a system searches with: the parts that score passages, read off the stages that write its run."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem.errors import UserError, nearest
from tandem.extras.operations.configurations import Configuration
from tandem.extras.plan import FullPlan
from tandem.plan.graph import Stage
from tandem.stages.base import Json
from tandem.stages.lexical import ANALYZERS
from tandem.store.artifact import MANIFEST, open_artifact

BM25, DUAL, CROSS = COLUMNS = ("BM25", "DE", "CE")
KINDS = {"bm25": BM25, "retrieve": DUAL, "ann": DUAL, "rerank": CROSS}  # of runs that have a part of their own
SECTIONS = ("models", "sparse", "runs", "indexes", "fusions", "ensembles", "aggregations")  # that name systems


@dataclass(frozen=True)
class Part:
    """Something that scores passages.

    Attributes:
        column: `BM25`, `DE` or `CE`.
        name: of the model, ensemble or BM25 variant.
        key: differs from that of every other part.
        params: what decides its scores, as its stage has it.
        needs: role → stage whose artifact it reads.
    """

    column: str
    name: str
    key: str
    params: Json
    needs: dict[str, Stage]

    @property
    def label(self) -> str:
        """What its scores are called: `BM25`, `DE de_bm25neg`, `CE ce_deneg`."""
        return BM25 if self.name == "bm25" else f"{self.column} {self.name}"


def resolve(plan: FullPlan, system: str) -> Stage:
    """The stage of a system's run on the split that is reported.

    Raises:
        UserError: a name that is unknown, with the nearest known one, or a system that answers no new query.
    """
    settings, planner = plan.settings, plan.planner
    names = [name for section in SECTIONS for name in getattr(settings, section)]
    known = ["bm25", *(f"bm25.{name}" for name in ANALYZERS), *names]
    for name in system.replace("@", "+").split("+"):
        if name not in known and planner.ctx.model_name(name) not in known:
            raise UserError(f"{name} is not a system{nearest(name, known)}")
    if "+" not in system and system in settings.models and settings.models[system].objective == "cross":
        raise UserError(f"{system} is a cross-encoder, which re-ranks a list; say whose: bm25+{system}")
    run = planner.run(system, plan.split, "the system")
    if (fixed := next(_fixed_runs(run), None)) is not None:
        name = fixed.name.rpartition(".")[0]
        raise UserError(f"{name} is a run of the stage {fixed.kind}, which answers no new query; name another system")
    return run


def source_runs(run: Stage) -> list[Stage]:
    """The runs that a run is made from, in order: one that is re-ranked, or those that are fused."""
    roles = sorted((role for role in run.upstream if role.split(".")[0] == "run"), key=lambda role: (len(role), role))
    return [run.upstream[role] for role in roles]


def _fixed_runs(run: Stage) -> Iterator[Stage]:
    """Those of a run and its sources that answer only the queries they were made for."""
    for source in source_runs(run):
        yield from _fixed_runs(source)
    if run.kind not in (*KINDS, "fuse"):
        yield run


def part(run: Stage) -> Part:
    """What gives a run of a kind in `KINDS` its scores."""
    name, above = run.name.rpartition(".")[0], dict(run.upstream)
    if run.kind == "bm25":
        return Part(BM25, name, run.key, run.values, above)
    if KINDS[run.kind] == DUAL:
        del above["queries"]
        vectors = above["passages"]
        above |= {role: vectors.upstream[role] for role in ("model", "tokens")}
        return Part(DUAL, name, run.key, {**vectors.values, **run.values}, above)
    del above["run"]
    models = "+".join(stage.key for role, stage in sorted(above.items()) if role.split(".")[0] in ("model", "judge"))
    return Part(CROSS, name.rpartition("+")[2], models, run.values, above)


def parts(run: Stage) -> Iterator[Part]:
    """The parts of a run, first stages first."""
    for source in source_runs(run):
        yield from parts(source)
    if run.kind in KINDS:
        yield part(run)


def needs(run: Stage) -> Iterator[Stage]:
    """Every artifact that a search of a run reads."""
    for source in source_runs(run):
        yield from needs(source)
    if run.kind in KINDS:
        yield from part(run).needs.values()
    elif "tuned" in run.upstream:
        yield run.upstream["tuned"]


def comparable_parts(plan: FullPlan, run: Stage) -> list[Part]:
    """Parts whose scores may stand beside those of a run, in the order of preference.

    BM25 of the configuration; then what the tables' systems use, the last row first, but before all others those that
    share a part with the run.
    """
    own = {one.key for one in parts(run)}
    scores = plan.tables.wanted_scores()
    runs = [stage.upstream["run"] for stage in reversed(scores) if stage.dataset == run.dataset]
    others = [list(parts(other)) for other in runs if not any(_fixed_runs(other))]
    others.sort(key=lambda used: own.isdisjoint(one.key for one in used))
    return [part(resolve(plan, "bm25")), *(one for used in others for one in used)]


def is_built(stages: Iterable[Stage]) -> bool:
    """Whether all of some artifacts are finished."""
    return all(Path(stage.manifest).is_file() for stage in stages)


def require_built(
    stages: Iterable[Stage], requested: set[tuple[str, str]], system: str, configuration: Configuration
) -> None:
    """Refuse to begin before every artifact is finished and its files have the sizes in its manifest.

    Checksums are left to the stages: of a large corpus they would take longer than many searches.

    Args:
        stages: whose artifacts are read.
        requested: (kind, key) of the configuration's own stages, which Snakemake plans without `systems`.
        system: the expression that needs them.
        configuration: for the command that builds what is missing.
    Raises:
        UserError: one line with all that is missing and the command, or with the first file that is damaged.
    """
    needed = list(dict.fromkeys(stages))
    missing = [stage for stage in needed if not is_built([stage])]
    above = {other.key for stage in missing for other in _ancestors(stage)}
    if last := [stage for stage in missing if stage.key not in above]:
        planned = all((stage.kind, stage.key) in requested for stage in last)
        names = ", ".join(f"{stage.kind} {stage.key}" for stage in last)
        command = configuration.snakemake([stage.manifest for stage in last], "" if planned else system)
        raise UserError(f"{system} cannot be used before {names} is built; build it: {command}")
    for stage in needed:
        _check_sizes(Path(stage.folder))


def _ancestors(stage: Stage) -> Iterator[Stage]:
    for upstream in stage.upstream.values():
        yield upstream
        yield from _ancestors(upstream)


def _check_sizes(folder: Path) -> None:
    for name, file in open_artifact(folder, verify=False).manifest.files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != file.bytes:
            raise UserError(f"{path}: missing or changed since it was written; delete {folder / MANIFEST} and rebuild")
