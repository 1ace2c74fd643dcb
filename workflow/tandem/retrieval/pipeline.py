"""Stages `choose_pipeline`, which of several systems is best on dev, and `pipeline`, the run of that system.

A system is a run, or a first stage of which a cross-encoder re-ranks the first `depth` passages. A run that is
re-ranked more deeply holds the scores of every smaller depth: it is cut, and nothing is scored anew.
"""

from collections.abc import Iterator, Sequence
from math import fsum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel

from tandem.cluster.progress import Progress, say, warn
from tandem.data.columns import Names
from tandem.data.runs import followed, iter_ranking, iter_run, scored_depth, write_run
from tandem.errors import UserError
from tandem.evaluation.measures import CHOSEN, GRID, ScoredRanking, evaluate, most_left_out, parse_measures, undecided
from tandem.evaluation.scores import relevance
from tandem.retrieval.inputs import require_dataset
from tandem.stages.retrieval import ChoosePipelineParams, PipelineParams
from tandem.store.artifact import Artifact
from tandem.store.files import csv_text, write_json, write_text
from tandem.store.job import Job, writing
from tandem.store.lineage import stage_name

RUN, FIRST = "run", "first"  # roles, each with a number: a system's run, and the run that it re-ranks


class Chosen(BaseModel):
    """chosen.json: the number of the system's run, how many passages it re-ranks (null: none), its name and value."""

    run: int
    depth: int | None
    system: str
    value: float


class SearchSystem(NamedTuple):
    """A run by its number, and where it is a re-ranked one that is cut: its first stage's run and the depths."""

    number: int
    run: Artifact
    first: Artifact | None = None
    depths: tuple[int | None, ...] = (None,)

    @property
    def name(self) -> str:
        """Its name in the configuration: the key of its run without split and digest."""
        return stage_name(self.run.key).rpartition(".")[0]


def run_choice(job: Job[ChoosePipelineParams]) -> None:
    """Write grid.csv, every system with its value, and chosen.json, the best one, of equal ones the first.

    Inputs: dataset; the systems' runs `run.0`, `run.1`, …, and of re-ranked ones the first stages' as `first.<number>`.
    A value is the mean of the measure over the queries that the stage `score` counts. Each run is read once; memory is
    that of its lists down to the measure's cutoff, once per depth.
    """
    params, named, names = job.params, list(systems(job)), Names(job.inputs["dataset"])
    (measure,) = parse_measures([params.measure])
    judged = relevance({"dataset": job.inputs["dataset"]}, params.split, [measure], params.ignore_identical_ids)
    # Below the cutoff nothing counts; as many documents more move up as are left out.
    cutoff = measure.params.get("cutoff", params.depth) + most_left_out(judged.qrels, params.ignore_identical_ids)
    tried: list[Chosen] = []
    with writing(job) as draft, Progress(f"choose_pipeline {job.key}", len(named), "systems") as progress:
        for system in named:
            tops: list[list[ScoredRanking]] = [[] for _ in system.depths]
            for lists in rankings(system, names):
                for top, (query, docs, scores) in zip(tops, lists, strict=True):
                    top.append((query, docs[:cutoff], scores[:cutoff]))
            for depth, top in zip(system.depths, tops, strict=True):
                of_queries = evaluate([measure], judged.qrels, top, judged.queries, params.ignore_identical_ids)
                value = fsum(of_queries.values[:, 0]) / len(judged.queries)
                tried.append(Chosen(run=system.number, depth=depth, system=system.name, value=value))
            progress.add(1)
        table = ((each.system, each.depth, each.value) for each in tried)
        write_text(draft.path(GRID), csv_text(["system", "re-ranked", params.measure], table))
        chosen = max(tried, key=lambda each: each.value)  # of equals, max takes the first
        write_json(draft.path(CHOSEN), chosen.model_dump())
        draft.facts |= {"systems": len(tried), "queries": len(judged.queries), "chosen": chosen.model_dump()}
        for line in undecided(chosen.value, "systems", params.measure, params.split):
            warn(job, draft, line)


def run(job: Job[PipelineParams]) -> None:
    """Write the run of the system that the input `chosen` names; the other inputs are as in `run_choice`."""
    choice = job.inputs["chosen"]
    chosen = Chosen.model_validate_json(choice.path(CHOSEN).read_text(encoding="utf-8"))
    roles = {role for role in job.inputs if role != "chosen"}
    if set(choice.upstream) != roles:
        problem = f"chose among {', '.join(sorted(choice.upstream))}, but these are {', '.join(sorted(roles))}"
        raise UserError(f"{choice.folder}: {problem}; choose among these systems")
    require_dataset(job, *(role for role in roles if role != "dataset"))
    own = job.many(RUN)[chosen.run]
    first = job.inputs.get(f"{FIRST}.{chosen.run}") if chosen.depth is not None else None
    system = SearchSystem(chosen.run, own, first, (chosen.depth,))
    on, measure = choice.params_as(ChoosePipelineParams).split, choice.params_as(ChoosePipelineParams).measure
    top = f", the first {chosen.depth} re-ranked" if chosen.depth is not None else ""
    note = f"{system.name}{top}: chosen of {choice.manifest.facts['systems']} by {measure} on {on} ({chosen.value:.4f})"
    say(f"pipeline {job.key} · {note}")
    with writing(job) as draft:
        ranked = (ranked for (ranked,) in rankings(system, Names(job.inputs["dataset"])))
        lines = write_run(job, draft, ranked, keep_absent=True)
        if on == job.params.split:
            warn(job, draft, f"chosen on {on}, the queries that are scored")
        deepest = scored_depth(own) if chosen.depth is None else chosen.depth
        draft.facts |= {"lines": lines, "scored_depth": deepest, "notes": [note]}


def systems(job: Job[ChoosePipelineParams]) -> Iterator[SearchSystem]:
    """The systems to choose from: each run, a re-ranked one at each depth, shallow ones first."""
    runs = job.many(RUN)
    require_dataset(job, *(f"{RUN}.{number}" for number in range(len(runs))))
    for number, own in enumerate(runs):
        first = job.inputs.get(f"{FIRST}.{number}")
        if first is None:
            yield SearchSystem(number, own)
            continue
        if Path(own.upstream["run"]).name != first.key:
            raise UserError(f"{own.folder}: re-ranks {own.upstream['run']}, but {FIRST}.{number} is {first.folder}")
        if (deepest := max(job.params.depths)) > own.params["depth"]:
            raise UserError(f"{own.folder}: re-ranks {own.params['depth']} passages, but depths has {deepest}")
        yield SearchSystem(number, own, first, tuple(sorted(job.params.depths)))


def rankings(system: SearchSystem, names: Names) -> Iterator[Sequence[ScoredRanking]]:
    """Query by query, (query, documents, scores) at each depth of a system, as the stage `rerank` would write them."""
    dataset = names.collection.artifact
    if system.first is None:
        for query, docs, scores in iter_ranking(system.run, dataset, names):
            yield [(query, docs, scores)]
        return
    deep = iter_run(system.run, dataset, names)
    for (query, ranked, _), (again, reranked, values) in zip(iter_run(system.first, dataset, names), deep, strict=True):
        if query != again:
            raise UserError(f"{system.run.folder}: query {again} stands where its first stage has {query}")
        own = dict(zip(reranked, values.tolist(), strict=True))
        lists = []
        for depth in system.depths:  # the first documents by their scores, the others as they stood
            top = np.array([own[doc] for doc in ranked[:depth]], np.float32)
            order = np.argsort(-top, kind="stable").tolist()
            docs = [*(ranked[at] for at in order), *ranked[len(top) :]]
            lists.append((query, docs, followed(top[order], len(ranked))))
        yield lists
