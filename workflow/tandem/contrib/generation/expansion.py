"""Stage `expansion`: a run over passages with appended generated queries, as a run over the passages themselves."""

from pathlib import Path

from tandem.contrib.generation.options import ExpansionParams
from tandem.data.runs import iter_run, write_run
from tandem.errors import UserError
from tandem.retrieval.inputs import require_dataset
from tandem.store.job import Job, writing


def run(job: Job[ExpansionParams]) -> None:
    """Write the lists of the input `run`, which is over `expanded`, as lists over `dataset`; ids and scores stay."""
    require_dataset(job, "run", of="expanded")
    expanded, dataset = job.inputs["expanded"], job.inputs["dataset"]
    source = Path(expanded.upstream["of"]).name
    if source != dataset.key:
        raise UserError(
            f"{job.kind}: {expanded.folder} has the passages of {source}; expected those of {dataset.key}"
        )
    depth = job.params.depth
    lists = (
        (query, docs[:depth], scores[:depth])
        for query, docs, scores in iter_run(job.inputs["run"], expanded)
    )
    with writing(job) as draft:
        draft.facts["lines"] = write_run(job, draft, lists)
