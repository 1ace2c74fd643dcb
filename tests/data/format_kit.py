"""A file format of a dataset, small and right, and the handles by which `test_bad_input.py` spoils it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Content = str | pa.Table
Spoil = Callable[[Path], None]  # works a fault into a folder
Add = Callable[[Path, str, str], None]  # appends a passage: folder, id (unless the format makes its own), text


@dataclass(frozen=True)
class Format:
    """A collection of two passages, d1 and d2, and at least one query with a judgement or an answer.

    Attributes:
        params: the dataset's entry.
        files: name → content.
        corpus: the file with the passages.
        add: appends a passage.
        place: what errors call the corpus, `{0}` the folder; the number of a record follows. By default the file.
        spoil: faults that take more than `add` or the bytes of the corpus file.
    """

    params: dict[str, Any]
    files: dict[str, Content]
    corpus: str
    add: Add
    place: str | None = None
    spoil: dict[str, Spoil] = field(default_factory=dict)

    def build(self, folder: Path) -> None:
        """Write all files."""
        for name, content in self.files.items():
            write(folder / name, content)


def write(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_bytes(content.encode())
    else:
        pq.write_table(content, path)


def append(folder: Path, name: str, text: str) -> None:
    with open(folder / name, "ab") as file:
        file.write(text.encode())


def appended(name: str, text: str) -> Spoil:
    return lambda folder: append(folder, name, text)


def replaced(name: str, content: Content) -> Spoil:
    return lambda folder: write(folder / name, content)


def changed(name: str, change: Callable[[bytes], bytes]) -> Spoil:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes())) and None


def line(name: str, template: str) -> Add:
    """A passage is a line: `{0}` its id, `{1}` its text."""
    return lambda folder, doc, text: append(folder, name, template.format(doc, text))


def json_line(name: str, key: str) -> Add:
    """A passage is a JSON object on a line, `key` its id."""
    return lambda folder, doc, text: append(folder, name, dumps({key: doc, "text": text}) + "\n")


def row(name: str) -> Add:
    """A passage is a row of a Parquet table."""

    def add(folder: Path, doc: str, text: str) -> None:
        old = pq.read_table(folder / name)
        new = pa.table({"doc_id": [doc], "text": [text]})
        write(folder / name, pa.concat_tables([old, new]))

    return add


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def unchecked(*texts: bytes) -> pa.Array:
    """A column of text whose bytes nobody looked at."""
    return pa.Array.from_buffers(pa.string(), len(texts), pa.array(texts, pa.binary()).buffers())
