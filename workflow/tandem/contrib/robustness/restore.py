"""Stage `restore_queries`: write a run on broken queries under the names of the original queries.

It can then be compared with runs on the original queries, query by query.
"""

from collections.abc import Iterator
from pathlib import Path

from tandem.cluster.progress import Progress
from tandem.contrib.robustness.options import RestoreQueriesParams
from tandem.contrib.robustness.perturbation import name_copy
from tandem.data.columns import Floats
from tandem.data.runs import get_scored_depth, iter_run, write_run
from tandem.errors import UserError
from tandem.retrieval.inputs import require_dataset
from tandem.store.job import Job, writing


def run(job: Job[RestoreQueriesParams]) -> None:
    """Write the input `run`, which is over `perturbed`, as a run over `dataset`.

    Raises:
        UserError: `perturbed` was made from another dataset, or the run is on other queries.
    """
    perturbed = job.inputs["perturbed"]
    dataset = job.inputs["dataset"]
    require_dataset(job, "run", of="perturbed")
    made_of = Path(perturbed.upstream.get("of", "nothing")).name
    if perturbed.params.get("source") != "perturbed" or made_of != dataset.key:
        raise UserError(
            f"{job.kind}: {perturbed.folder} holds queries of {made_of}; expected broken ones of {dataset.key}"
        )
    before = name_copy(job.params.kind, "")

    def restored(progress: Progress) -> Iterator[tuple[str, list[str], Floats]]:
        """Yield (query, documents, scores) of each query under its original name."""
        for query, docs, scores in iter_run(job.inputs["run"], perturbed):
            if not query.startswith(before):
                raise UserError(
                    f"{job.kind}: {job.inputs['run'].folder} is on query {query}, which is not {before}…"
                )
            progress.add(1)
            yield query.removeprefix(before), docs[: job.params.depth], scores[: job.params.depth]

    with writing(job) as draft, Progress(f"{job.kind} {job.key}", 0, "queries") as progress:
        draft.facts["lines"] = write_run(job, draft, restored(progress))
        draft.facts["scored_depth"] = get_scored_depth(job.inputs["run"])
