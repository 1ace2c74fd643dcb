"""The stage `given`: the negatives of a dataset's own training lists as a run, so that candidates can be drawn from it.

A run has no order but that of its scores, so a negative's score is minus its place in the list: what the format lists
first ranks first. DPR's pools list hard negatives before the others, RocketQA's files what their sampler drew.
"""

from collections.abc import Iterator

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.runs import write_run
from tandem.errors import UserError
from tandem.store.job import Job, writing


def run(job: Job) -> None:
    """Write run.trec from the lists of the input `dataset`.

    Parameters: `split`; `depth`, the most negatives of a query. A query without a negative has no line.
    """
    collection = Collection(job.inputs["dataset"])
    queries = collection.queries(job.params["split"])
    with writing(job) as draft, Progress(f"given {job.key}", len(queries), "queries") as progress:
        lists = _negatives(collection, queries, job.params["depth"], progress)
        lines = write_run(draft.path("run.trec"), lists, job.key)
        if not lines:
            where = f"{collection.artifact.folder}: its training lists hold no negative"
            raise UserError(f"{where} for a query of split {job.params['split']}; name a run instead of given")
        draft.facts.update(queries=progress.done, lines=lines, without_negative=len(queries) - progress.done)


def _negatives(
    collection: Collection, queries: dict[str, str], depth: int, progress: Progress
) -> Iterator[tuple[str, list[str], list[float]]]:
    """(query id, passage ids, scores) of every query with a negative; a passage that is also a positive is none."""
    for query, listed in collection.lists():
        if query in queries:
            positives = {doc for doc, label, _ in listed if label > 0}
            docs = list(dict.fromkeys(doc for doc, _, _ in listed if doc not in positives))[:depth]
            if docs:
                progress.add(1)
                yield query, docs, [-float(place) for place in range(1, len(docs) + 1)]
