"""Which artifacts fit together: a run of the split that is asked about."""

from pathlib import Path

from tandem.errors import UserError
from tandem.store.job import Job


def run_path(job: Job) -> Path:
    """The file of the input `run`; a `UserError` if it was searched for another split than `job.params["split"]`."""
    source, split = job.inputs["run"], job.params["split"]
    searched = source.params.get("split", split)
    if searched != split:
        raise UserError(f"{source.folder}: is a run of split {searched}, but split is {split}; give a run of {split}")
    return source.path("run.trec")
