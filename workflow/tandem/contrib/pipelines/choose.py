"""Stage `choose_pipeline` finds the best of several systems on dev; stage `pipeline` writes that system's run.

A system is a run, or a first stage whose first `depth` passages are re-ranked by a cross-encoder. A run that is
re-ranked more deeply contains the scores for every smaller depth, so that it is cut and nothing is scored again.
"""

from collections.abc import Iterator, Sequence
from math import fsum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel

from tandem.cluster.progress import Progress, say, warn
from tandem.contrib.pipelines.options import ChoosePipelineParams, PipelineParams
from tandem.data.columns import DatasetNames
from tandem.data.runs import append_below, get_scored_depth, iter_ranking, iter_run
from tandem.errors import UserError
from tandem.evaluation.measure_names import parse_measures
from tandem.evaluation.measures import CHOSEN, ScoredRanking, evaluate
from tandem.evaluation.scores import read_relevance
from tandem.extras.absent_lines import write_whole_run
from tandem.extras.best_setting import GRID, count_left_out, warn_undecided
from tandem.retrieval.inputs import require_dataset
from tandem.store.artifact import Artifact
from tandem.store.files import csv_text, write_json, write_text
from tandem.store.job import Job, writing
from tandem.store.lineage import stage_name

# roles of inputs, which get a number: a system's run, and the run that it re-ranks
_RUN = "run"
_FIRST = "first"


class Chosen(BaseModel):
    """The content of chosen.json: the run's number, how many passages it re-ranks (null: none), its name and value."""

    run: int
    depth: int | None
    system: str
    value: float


class SearchSystem(NamedTuple):
    """A run and its number; for a re-ranked run that is cut, also the first stage's run and the depths."""

    number: int
    run: Artifact
    first: Artifact | None = None
    depths: tuple[int | None, ...] = (None,)

    @property
    def name(self) -> str:
        """Return its name in the configuration: the key of its run without split and digest."""
        return stage_name(self.run.key).rpartition(".")[0]


def run_choice(job: Job[ChoosePipelineParams]) -> None:
    """Write grid.csv, every system with its value, and chosen.json, the best one; among equal ones, the first.

    Inputs: dataset; the systems' runs `run.0`, `run.1`, …, and for re-ranked ones the first stages' runs as
    `first.<number>`. A value is the mean of the measure over the queries that the stage `score` counts. Each run is
    read once. Memory: the run's lists down to the measure's cutoff, once per depth.
    """
    params = job.params
    named = list(iterate_systems(job))
    names = DatasetNames(job.inputs["dataset"])
    (measure,) = parse_measures([params.measure])
    judged = read_relevance(
        {"dataset": job.inputs["dataset"]}, params.split, [measure], params.ignore_identical_ids
    )
    # Nothing counts below the cutoff, but for each document that is left out, one more moves up.
    cutoff = measure.params.get("cutoff", params.depth) + count_left_out(
        judged.qrels, params.ignore_identical_ids
    )
    tried: list[Chosen] = []
    with (
        writing(job) as draft,
        Progress(f"choose_pipeline {job.key}", len(named), "systems") as progress,
    ):
        for system in named:
            tops: list[list[ScoredRanking]] = [[] for _ in system.depths]
            for lists in iterate_rankings(system, names):
                for top, (query, docs, scores) in zip(tops, lists, strict=True):
                    top.append((query, docs[:cutoff], scores[:cutoff]))
            for depth, top in zip(system.depths, tops, strict=True):
                scored = evaluate(
                    [measure], judged.qrels, top, judged.queries, params.ignore_identical_ids
                )
                value = fsum(scored.values[:, 0]) / len(judged.queries)
                tried.append(
                    Chosen(run=system.number, depth=depth, system=system.name, value=value)
                )
            progress.add(1)
        table = ((each.system, each.depth, each.value) for each in tried)
        write_text(draft.path(GRID), csv_text(["system", "re-ranked", params.measure], table))
        chosen = max(tried, key=lambda each: each.value)  # among equals, max takes the first
        write_json(draft.path(CHOSEN), chosen.model_dump())
        draft.facts |= {
            "systems": len(tried),
            "queries": len(judged.queries),
            "chosen": chosen.model_dump(),
        }
        for line in warn_undecided(chosen.value, "systems", params.measure, params.split):
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
    own = job.many(_RUN)[chosen.run]
    first = None
    top = ""
    deepest = chosen.depth
    if deepest is None:
        deepest = get_scored_depth(own)
    else:
        first = job.inputs.get(f"{_FIRST}.{chosen.run}")
        top = f", the first {chosen.depth} re-ranked"
    system = SearchSystem(chosen.run, own, first, (chosen.depth,))

    by = choice.params_as(ChoosePipelineParams)
    systems = choice.manifest.facts["systems"]
    note = f"{system.name}{top}: chosen of {systems} by {by.measure} on {by.split} ({chosen.value:.4f})"
    say(f"pipeline {job.key} · {note}")
    with writing(job) as draft:
        # With a single depth, each query has one list.
        ranked = (
            ranked for (ranked,) in iterate_rankings(system, DatasetNames(job.inputs["dataset"]))
        )
        lines = write_whole_run(job, draft, ranked)
        if by.split == job.params.split:
            warn(job, draft, f"chosen on {by.split}, the queries that are scored")
        draft.facts |= {"lines": lines, "scored_depth": deepest, "notes": [note]}


def iterate_systems(job: Job[ChoosePipelineParams]) -> Iterator[SearchSystem]:
    """Yield the systems to choose from: each run, and a re-ranked run at each depth, in ascending order."""
    runs = job.many(_RUN)
    require_dataset(job, *(f"{_RUN}.{number}" for number in range(len(runs))))
    for number, own in enumerate(runs):
        first = job.inputs.get(f"{_FIRST}.{number}")
        if first is None:
            yield SearchSystem(number, own)
            continue
        if Path(own.upstream["run"]).name != first.key:
            raise UserError(
                f"{own.folder}: re-ranks {own.upstream['run']}, but {_FIRST}.{number} is {first.folder}"
            )
        deepest = max(job.params.depths)
        if deepest > own.params["depth"]:
            raise UserError(
                f"{own.folder}: re-ranks {own.params['depth']} passages, but depths has {deepest}"
            )
        yield SearchSystem(number, own, first, tuple(sorted(job.params.depths)))


def iterate_rankings(
    system: SearchSystem, names: DatasetNames
) -> Iterator[Sequence[ScoredRanking]]:
    """Yield for each query its (query, documents, scores) at each depth of a system, as `rerank` writes them."""
    dataset = names.collection.artifact
    if system.first is None:
        for query, docs, scores in iter_ranking(system.run, dataset, names):
            yield [(query, docs, scores)]
        return
    first_stage = iter_run(system.first, dataset, names)
    re_ranked = iter_run(system.run, dataset, names)
    for (query, docs, _), (other_query, scored_docs, values) in zip(
        first_stage, re_ranked, strict=True
    ):
        if query != other_query:
            raise UserError(
                f"{system.run.folder}: query {other_query} stands where its first stage has {query}"
            )
        score_of = dict(zip(scored_docs, values.tolist(), strict=True))
        lists = []
        for depth in system.depths:
            # the first documents by their scores, the others in their old order
            top = np.array([score_of[doc] for doc in docs[:depth]], np.float32)
            order = np.argsort(-top, kind="stable").tolist()
            in_order = [docs[index] for index in order]
            in_order += docs[len(top) :]
            lists.append((query, in_order, append_below(top[order], len(docs))))
        yield lists
