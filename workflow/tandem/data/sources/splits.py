"""Files named by split in a dataset's entry: `queries: {train: train.tsv, test: test.tsv}`."""

from pathlib import Path
from typing import Any

from tandem.data.files import Files
from tandem.data.select import SPLIT, order
from tandem.errors import UserError


def files_by_split(key: str, told: Any, files: Files) -> dict[str, Path]:
    """Split → file, in the order train, dev, test, others; nothing of None.

    Raises:
        UserError: no mapping from names of splits, or a file that is not there.
    """
    if told is None:
        return {}
    if not isinstance(told, dict) or not all(isinstance(split, str) and SPLIT.fullmatch(split) for split in told):
        raise UserError(f"{key}: {told!r}; a file by split is needed, as in {key}: {{test: FILE}}")
    return {split: files.find(told[split]) for split in sorted(told, key=order)}
