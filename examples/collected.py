"""Functions for the scripts that write a collection, a folder in BEIR's layout, from one published file."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tandem.errors import UserError
from tandem.store.files import replacing, sha256


def bring(
    about: str,
    described: str,
    write: Callable[[Path, Path], str],
    measured: Mapping[str, str],
) -> None:
    """Write the folder that the command line names; if anything fails, no folder is left.

    Args:
        about: the text of `--help`.
        described: the file that is needed and its source, for `--help` and for the error if it is missing.
        write: writes the collection's files from the file into a folder; returns a summary of what it wrote.
        measured: sha256 of the files of the folder with which the pages of docs/results were measured.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help=described)
    parser.add_argument("folder", type=Path, help="the collection; it must not exist yet")
    options = parser.parse_args()
    file, folder = options.file, options.folder
    if folder.exists():
        sys.exit(f"{folder}: is there already; remove it, or name another folder")
    if not file.is_file():
        sys.exit(f"{file}: no such file; needed is {described}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(folder) as draft:
            (draft / "qrels").mkdir(parents=True)
            written = write(file, draft)
    except UserError as error:
        sys.exit(f"{error}; needed is {described}")
    print(f"{folder}: written; {written}")
    for name, digest in measured.items():
        if (found := sha256(folder / name)) != digest:
            print(f"{folder / name} is not the one that docs/results was measured with: {found}")


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as JSON objects, one per line."""
    write_lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def write_judgements(folder: Path, split: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Write a split's pairs of a query and a relevant passage."""
    lines = (f"{query}\t{passage}\t1" for query, passage in pairs)
    write_lines(folder / f"qrels/{split}.tsv", ["query-id\tcorpus-id\tscore", *lines])


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8, whatever the system's own encoding."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def join_words(text: str) -> str:
    """Return a text with one space between its words, whatever white space separates them."""
    return " ".join(text.split())
