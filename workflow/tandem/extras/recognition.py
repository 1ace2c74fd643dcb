"""Recognise the format of files by their names, and where names do not suffice by their first bytes."""

from pathlib import Path

from tandem.config.datasets import sources
from tandem.data.sources import dataset_format
from tandem.errors import UserError, printable
from tandem.extras.listing import FolderListing
from tandem.plan.context import strings
from tandem.stages.base import Json

# ends of the names of files that hold texts
TEXT_ENDS = (".tsv", ".txt", ".csv", ".jsonl", ".ndjson", ".json", ".parquet", ".trec", ".xml")
IRDS = "ir_datasets:"
_BEIR_FILES = {"corpus.jsonl", "queries.jsonl"}
LAST_RESORT = "files"  # recognised by words in names, where no format's own names fit


def find_entry(data: list[str]) -> tuple[Json, str]:
    """Return the dataset's source with its keys, and the folder of its files; no folder for ir_datasets.

    Raises:
        UserError: nothing is named, no format fits, a name is not UTF-8, or the folder holds the working folder, whose
            results would change it.
    """
    if not all(name.strip() for name in data or [""]):
        raise UserError(f"--data names nothing; allowed: a folder, an archive, files, or {IRDS}ID")
    if data[0].startswith(IRDS):
        return {"source": "ir_datasets", "id": data[0].removeprefix(IRDS)}, ""
    listing = FolderListing.of([Path(name) for name in data])
    formats = [name for name in dataset_format if sources()[name].reads_files]
    # `beir` first: the names of its files are the most certain sign
    formats.sort(key=lambda name: (name == LAST_RESORT, name != "beir"))
    for source in formats:
        keys = dataset_format[source].recognise(listing)
        if keys is not None:
            if source != LAST_RESORT and Path.cwd().is_relative_to(listing.folder.absolute()):
                raise UserError(
                    f"--data {listing.folder}: holds the working folder; put the data into one of its own"
                )
            for name in (str(listing.place), *strings(keys)):
                _require_utf8(name)
            return {"source": source, **keys}, str(listing.place)
    present = sorted(_BEIR_FILES.intersection(listing.names))
    if len(present) == 1 and listing.matching("qrels/*.tsv"):
        [missing] = _BEIR_FILES.difference(present)
        raise UserError(f"--data {data[0]}: {missing} is missing beside {present[0]} and qrels/")
    names = ", ".join(listing.names[:8]) or "nothing"
    hint = f"names with the words corpus, queries, qrels that end in {', '.join(TEXT_ENDS)}, or see docs/formats.md"
    raise UserError(f"--data {data[0]}: no format is recognised (found: {names}); allowed: {hint}")


def _require_utf8(name: str) -> None:
    """Refuse a file's name in another encoding: neither a configuration nor a fingerprint can hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UserError(f"--data {printable(name)}: its name is not UTF-8; rename it") from None
