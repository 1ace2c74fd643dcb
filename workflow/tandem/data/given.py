"""Stage `given`: write a dataset's own training lists as a run, from which negatives are drawn as from any other."""

from collections.abc import Iterator

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.runs import write_run
from tandem.errors import UserError
from tandem.stages.data import GivenParams
from tandem.store.job import Job, writing

_Negatives = tuple[str, list[str], list[float]]  # query id, passage ids, scores


def run_given(job: Job[GivenParams]) -> None:
    """Write a run of the negatives of the training lists of the input `dataset`, to draw candidates from.

    A run has no order but that of its scores, so a negative's score is minus its place in the list: what the format
    lists first ranks first. DPR's pools list hard negatives before the others, RocketQA's files what their sampler
    drew. A query without a negative has no line.
    """
    collection = Collection(job.inputs["dataset"])
    queries = collection.queries(job.params.split)
    with writing(job) as draft, Progress(f"given {job.key}", len(queries), "queries") as progress:
        lines = write_run(
            job, draft, _rank_negatives(collection, queries, job.params.depth, progress)
        )
        if not lines:
            error = f"{collection.artifact.folder}: its training lists hold no negative"
            raise UserError(
                f"{error} for a query of split {job.params.split}; name a run instead of given"
            )
        draft.facts.update(
            queries=progress.done, lines=lines, without_negative=len(queries) - progress.done
        )


def _rank_negatives(
    collection: Collection, queries: dict[str, str], depth: int, progress: Progress
) -> Iterator[_Negatives]:
    """Yield the negatives of every query that has one; a passage that is also a positive is not a negative."""
    for query, listed in collection.lists():
        if query not in queries:
            continue
        positives = {doc for doc, label, _ in listed if label > 0}
        negatives = dict.fromkeys(doc for doc, _, _ in listed if doc not in positives)
        docs = list(negatives)[:depth]
        if docs:
            progress.add(1)
            yield query, docs, [-float(place) for place in range(1, len(docs) + 1)]
