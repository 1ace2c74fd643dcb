"""Stage `tune_bm25`: search with every k1 and b of a grid, and measure the runs on a split with labels."""

from itertools import product

import numpy as np

from tandem.cluster.progress import Progress, say, warn
from tandem.contrib.bm25_tuning.options import TuneBm25Params
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.evaluation.measure_names import parse_measures
from tandem.evaluation.measures import CHOSEN, evaluate, list_answerable
from tandem.extras.best_setting import GRID, count_left_out, warn_undecided
from tandem.retrieval.lexical.bm25 import open_lexical_engine, read_queries, require_index
from tandem.store.files import csv_text, write_json, write_text
from tandem.store.job import Job, writing


def run(job: Job[TuneBm25Params]) -> None:
    """Search a split once for every k1 and b; write grid.csv (k1, b, mean) and chosen.json (the best k1, b and mean).

    Inputs and execution are those of `bm25`: one process, one opened index. Among equal means, the first in the order
    of the grid is chosen: by k1, then by b.
    """
    params = job.params
    require_index(job)
    [measure] = parse_measures([params.measure])
    collection = Collection(job.inputs["dataset"])
    qrels = collection.qrels(params.split)
    judged = set(list_answerable(qrels))
    queries = [entry for entry in read_queries(job).items() if entry[0] in judged][: params.queries]
    if not queries:
        raise UserError(
            f"{collection.artifact.folder}: split {params.split} has no relevant judgement to tune on"
        )
    names = [query for query, _ in queries]
    points = list(product(params.k1, params.b))
    depth = params.depth + count_left_out(
        {query: qrels[query] for query in names}, params.ignore_identical_ids
    )
    grid: list[tuple[float, float, float]] = []
    with open_lexical_engine(job) as engine, writing(job) as draft:
        with Progress(f"tune_bm25 {job.key}", len(points) * len(queries), "queries") as progress:
            for k1, b in points:
                hits = engine.search(queries, k1, b, depth, progress)
                ranked = (
                    (query, docs, np.asarray(scores, np.float32)) for query, docs, scores in hits
                )
                evaluation = evaluate([measure], qrels, ranked, names, params.ignore_identical_ids)
                grid.append((k1, b, float(evaluation.values.mean())))
        k1, b, value = max(grid, key=lambda point: point[2])
        write_text(draft.path(GRID), csv_text(["k1", "b", params.measure], grid))
        chosen = {"k1": k1, "b": b, "measure": params.measure, "mean": value}
        write_json(draft.path(CHOSEN), chosen)
        say(f"tune_bm25 {job.key} · {params.measure} {value:.4f} with k1 {k1:g}, b {b:g}")
        draft.facts.update(queries=len(queries), chosen=chosen, **engine.facts)
        for line in warn_undecided(value, "values of k1 and b", params.measure, params.split):
            warn(job, draft, line)
