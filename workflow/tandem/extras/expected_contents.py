"""What a dataset's entry expects of its source: counts, and a checksum of the rows."""

from tandem.data.splits import count_keys
from tandem.data.statistics import SplitStatistics
from tandem.data.validate import Warnings
from tandem.errors import nearest
from tandem.extras.unchanged_files import require_planned_files
from tandem.stages.data import DatasetParams
from tandem.store.job import Job


def compare_expected(
    job: Job[DatasetParams],
    checksum: str,
    passages: int,
    splits: dict[str, SplitStatistics],
    warnings: Warnings,
) -> None:
    """Warn if the source is not the one that the configuration was written for.

    Raises:
        UserError: the source's files have changed while they were read.
    """
    require_planned_files(job)
    expected = job.execution.checksum or job.params.checksum
    if expected and expected != checksum:
        warnings.add(
            f"the source's checksum is {checksum}, expected {expected}: its content has changed"
        )

    actual = {"passages": passages}
    actual |= {split: counts["queries"] for split, counts in splits.items()}
    actual |= {f"{split}_qrels": counts["qrels"] for split, counts in splits.items()}
    # labels that near-duplicates received, or that were dropped, differ from those of the source
    changes_qrels = job.params.near_duplicates is not None or job.params.unknown_documents == "drop"
    allowed = count_keys(splits)
    for name, number in (job.execution.counts or {}).items():
        if name not in allowed:
            warnings.add(f"counts.{name} is neither passages nor a split{nearest(name, actual)}")
            continue
        if changes_qrels and name.endswith("_qrels"):
            continue
        is_cut = job.params.most_queries(name.removesuffix("_qrels")) is not None
        count = actual.get(name, 0)
        if count != number and not is_cut:
            is_plain = name == "passages" or name.endswith("_qrels")
            what = name.replace("_", " ") if is_plain else f"{name} queries"
            warnings.add(f"{count:,} {what}, expected {number:,}")
