"""Refuse files that have changed between planning and the stage that reads them.

A stage's key holds a fingerprint of the user's files, which planning computes. The stage must read the same content, or
its result would be found again under the key of another one.
"""

from pathlib import Path

from tandem.config.datasets import entry_model
from tandem.config.parsing import read
from tandem.config.references import parameters_of
from tandem.data.sources import DatasetJob, dataset_format
from tandem.errors import UserError
from tandem.plan.dataset_stages import list_read_files
from tandem.store.files import fingerprint


def require_planned_files(job: DatasetJob) -> None:
    """Refuse the files of a dataset's `path` if they are not those with which its stage was planned.

    A job without a fingerprint, one that somebody runs by hand, takes the files as they are.
    """
    expected = job.params.fingerprint
    if expected is None:
        return
    model = parameters_of(entry_model(dataset_format[job.params.source]))
    entry = read(model, {"source": job.params.source, **(job.params.model_extra or {})})
    path = Path(str(job.execution.path))
    files = list_read_files(f"dataset {job.key}", entry, path)
    require_unchanged(path, expected, fingerprint(path, files))


def require_unchanged(path: Path, expected: str | None, digest: str | None) -> None:
    """Refuse a path whose digest is not the one that was planned; None: none was planned."""
    if expected and digest != expected:
        raise UserError(f"{path}: has changed since this stage was planned; run the command again")
