"""Which reader reads a file: told by the end of its name, `.gz` left aside."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tandem.data.sources.own import jsonl, parquet, trec, tsv
from tandem.data.sources.own.roles import ANSWERS, PASSAGES, QRELS, Role
from tandem.errors import UserError

Reader = Callable[[Path, Role], Iterator[tuple[str, dict[str, Any]]]]


def ending(path: Path) -> str:
    """The end of a file's name without `.gz`: `.tsv` of `a.tsv.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def reader(path: Path, role: Role) -> Reader:
    """The reader of a file of some role; a `UserError` if its name has an end that none reads."""
    separated = tsv.read_answers if role is ANSWERS else tsv.read
    readers: dict[str, Reader] = {".jsonl": jsonl.read, ".parquet": parquet.read, ".tsv": separated, ".txt": separated}
    if role is PASSAGES:
        readers |= {".trec": trec.read, ".xml": trec.read}
    found = readers.get(ending(path), separated if role is QRELS else None)
    if found is None:
        allowed = ", ".join(readers)
        raise UserError(
            f"{path}: a file that ends in {ending(path) or 'nothing'}; allowed are {allowed}, all but .parquet also .gz"
        )
    return found
