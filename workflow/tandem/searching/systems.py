"""What a system searches with: the parts that score passages, read off the stages that write its run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tandem.errors import UserError, nearest
from tandem.extras.plan import FullPlan
from tandem.plan.graph import Stage
from tandem.stages.lexical import ANALYZERS

BM25, DUAL, CROSS = COLUMNS = ("BM25", "DE", "CE")
KINDS = {"bm25": BM25, "retrieve": DUAL, "ann": DUAL, "rerank": CROSS}  # of runs that have a part of their own
SECTIONS = (
    "models",
    "sparse",
    "runs",
    "indexes",
    "fusions",
    "ensembles",
    "aggregations",
)  # where names of systems are from


@dataclass(frozen=True)
class Part:
    """Something that scores passages.

    Attributes:
        column: `BM25`, `DE` or `CE`.
        name: of the model, ensemble or BM25 variant.
        key: what tells it from every other part.
        params: what decides its scores, as its stage has it.
        needs: role → stage whose artifact it reads.
    """

    column: str
    name: str
    key: str
    params: dict[str, Any]
    needs: dict[str, Stage]

    @property
    def label(self) -> str:
        """What its scores are called: `BM25`, `DE de_bm25neg`, `CE ce_deneg`."""
        return BM25 if self.name == "bm25" else f"{self.column} {self.name}"

    @property
    def told(self) -> dict[str, Any]:
        """What a worker must know, as JSON."""
        needs = {role: stage.folder for role, stage in self.needs.items()}
        return {"column": self.column, "params": self.params, "in": needs}


def resolve(plan: FullPlan, system: str) -> Stage:
    """The stage of a system's run on the split that is reported.

    Raises:
        UserError: a name that is unknown, with the nearest that is not, or a system that answers no new query.
    """
    settings, planner = plan.settings, plan.planner
    names = [name for section in SECTIONS for name in getattr(settings, section)]
    known = ["bm25", *(f"bm25.{name}" for name in ANALYZERS), *names]
    for name in system.replace("@", "+").split("+"):
        if name not in known and planner.ctx.model_name(name) not in known:
            raise UserError(f"{name} is no system{nearest(name, known)}")
    if "+" not in system and system in settings.models and settings.models[system].objective == "cross":
        raise UserError(f"{system} is a cross-encoder, which re-ranks a list; say whose: bm25+{system}")
    run = planner.run(system, plan.split, "the system")
    if (fixed := next(_fixed(run), None)) is not None:
        name = fixed.name.rpartition(".")[0]
        raise UserError(f"{name} is a run of the stage {fixed.kind}, which answers no new query; name another system")
    return run


def made_of(run: Stage) -> list[Stage]:
    """The runs that a run is made from, in order: one that is re-ranked, or those that are fused."""
    roles = sorted((role for role in run.upstream if role.split(".")[0] == "run"), key=lambda role: (len(role), role))
    return [run.upstream[role] for role in roles]


def part(run: Stage) -> Part:
    """What gives a run its scores: a run of a kind of `KINDS`."""
    name, above = run.name.rpartition(".")[0], dict(run.upstream)
    if run.kind == "bm25":
        return Part(BM25, name, run.key, run.values, above)
    if KINDS[run.kind] == DUAL:
        del above["queries"]
        vectors = above["passages"]
        above |= {role: vectors.upstream[role] for role in ("model", "tokens")}
        return Part(DUAL, name, run.key, {**vectors.values, **run.values}, above)
    del above["run"]
    judge = name.rpartition("+")[2]
    models = "+".join(stage.key for role, stage in sorted(above.items()) if role.split(".")[0] in ("model", "judge"))
    return Part(CROSS, judge, models, run.values, above)


def _fixed(run: Stage) -> Iterator[Stage]:
    """Those of a run and what it is made from that answer only the queries they were made for."""
    for one in made_of(run):
        yield from _fixed(one)
    if run.kind not in (*KINDS, "fuse"):
        yield run


def parts(run: Stage) -> Iterator[Part]:
    """The parts of a run, first stages first."""
    for one in made_of(run):
        yield from parts(one)
    if run.kind in KINDS:
        yield part(run)


def needs(run: Stage) -> Iterator[Stage]:
    """Every artifact that a search of a run reads."""
    for one in made_of(run):
        yield from needs(one)
    if run.kind in KINDS:
        yield from part(run).needs.values()
    elif "tuned" in run.upstream:
        yield run.upstream["tuned"]


def beside(plan: FullPlan, run: Stage) -> list[Part]:
    """Parts whose scores may stand beside those of a run, in the order of preference.

    BM25 of the configuration; then what the tables' systems use, the last row first, but before all others those that
    share a part with the run.
    """
    own = {one.key for one in parts(run)}
    scores = plan.tables.wanted_scores()
    runs = [stage.upstream["run"] for stage in reversed(scores) if stage.dataset == run.dataset]
    shown = [list(parts(one)) for one in runs if not any(_fixed(one))]
    shown.sort(key=lambda used: own.isdisjoint(one.key for one in used))
    return [part(resolve(plan, "bm25")), *(one for used in shown for one in used)]
