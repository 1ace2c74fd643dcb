"""The command `datasets`: the catalogue and one's own datasets, and where each is.

A dataset is here, to be downloaded (and how much), or available on request. Nothing is changed to find out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tandem import ROOT
from tandem.config.datasets import Dataset, Group, IrDatasets, sources
from tandem.config.loading import load_settings
from tandem.config.merging import gathered
from tandem.config.validation import read
from tandem.data.fetch import format_bytes, get_data_folder
from tandem.data.files import Downloads
from tandem.data.sources.irds import IrdsPart, Need, find_needs, get_home
from tandem.data.splits import USUAL_SPLITS
from tandem.errors import UserError

_COLUMNS = ("dataset", "passages", "queries", "state", "licence")
_UPSTREAM_KEYS = ("of", "corpus_of", "queries_of")  # keys that name other datasets

Entries = Mapping[str, Dataset]


@dataclass(frozen=True)
class Presence:
    """Say where a dataset is: `here`, `download`, `licence` (on request), `local` (made here), `missing` (no `path`).

    `place` is its folder, or for `licence` where to ask. `bytes` remain to be downloaded, all if `exact`.
    """

    state: str
    place: str = ""
    bytes: int | None = None
    exact: bool = True

    def __str__(self) -> str:
        """Return the state in a few words."""
        if self.state == "download":
            size = format_bytes(self.bytes) if self.bytes else "of unknown size"
            return f"download {size}{'' if self.exact or not self.bytes else ' or more'}"
        return f"{self.state}: {self.place}" if self.place else self.state


def print_catalogue(*, datasets: Path | None = None) -> None:
    """Print the catalogue of datasets and your own: where each is, and how much would be downloaded.

    Args:
        datasets: a JSON file of entries by name instead of the checkout's.
    """
    if datasets is None:
        print(format_catalogue(load_settings(gathered([], ROOT), ROOT).datasets))
        return
    try:
        entries = json.loads(datasets.read_text(encoding="utf-8"))
        if not isinstance(entries, dict):
            raise ValueError(f"a JSON {type(entries).__name__}")
    except (OSError, ValueError) as error:
        where = f"{datasets}: cannot be read ({error})"
        raise UserError(f"{where}; --datasets takes a JSON file of entries by name") from None
    print(format_catalogue(read_entries(entries)))


def read_entries(entries: Mapping[str, Any]) -> dict[str, Dataset]:
    """Return JSON entries, by name, as models of their sources; a `UserError` for one of no known source."""
    models = sources()
    for name, entry in entries.items():
        if not isinstance(entry, dict) or entry.get("source") not in models:
            raise UserError(f"datasets.{name}: no entry with a source; allowed are {', '.join(sorted(models))}")
    return {name: read(models[entry["source"]], entry, f"datasets.{name}") for name, entry in entries.items()}


def format_catalogue(datasets: Entries) -> str:
    """Return the catalogue as text, by name; the parts `<group>-…` of a group are counted in its line."""
    groups = {name: entry.of for name, entry in datasets.items() if isinstance(entry, Group)}
    parts = {part for name, of in groups.items() for part in of if part.startswith(f"{name}-")}
    by_name = locate_datasets([name for name in sorted(datasets) if name not in parts], datasets)
    rows = [_COLUMNS, *(_format_row(name, datasets[name], presence) for name, presence in by_name.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if column == "passages" else "<" for column in _COLUMNS]
    lines = (zip(row, sides, widths, strict=True) for row in rows)
    return "\n".join("  ".join(f"{cell:{side}{width}}" for cell, side, width in line).rstrip() for line in lines)


def _format_row(name: str, entry: Dataset, presence: Presence) -> tuple[str, ...]:
    counts = dict(entry.counts or {})
    passages = f"{counts.pop('passages'):,}" if "passages" in counts else ""
    queries = " · ".join(f"{split} {count:,}" for split, count in counts.items() if not split.endswith("_qrels"))
    of = f" ({len(entry.of)} datasets)" if isinstance(entry, Group) else ""
    return f"{name}{of}", passages, queries, str(presence), entry.licence or ""


def locate_datasets(names: Iterable[str], datasets: Entries) -> dict[str, Presence]:
    """Return where some of all datasets are, by name: one query of ir_datasets for all, which takes a second or two."""
    parts = {
        name: [part for _, entry in _walk_family(name, datasets) for part in _list_irds_parts(entry)] for name in names
    }
    known = find_needs(tuple(dict.fromkeys(chain.from_iterable(parts.values()))))
    downloads = {name: [need for part in own for need in known[part]] for name, own in parts.items()}
    return {name: _locate_dataset(name, datasets, needed) for name, needed in downloads.items()}


def _locate_dataset(name: str, datasets: Entries, needed: list[Need]) -> Presence:
    """Return where a dataset is; `needed` are the downloads of ir_datasets for it."""
    entry = datasets[name]
    paths = [made_of.path for _, made_of in _walk_family(name, datasets) if made_of.path]
    if absent_path := next((path for path in paths if not Path(path).exists()), None):
        return Presence("missing", absent_path)
    if entry.path:
        return Presence("here", entry.path)
    files = {other: made_of.files for other, made_of in _walk_family(name, datasets) if made_of.files}
    public = entry.access != "licence"
    absent = [need for need in needed if not any((get_home() / path).exists() for path in need.paths)]
    if any(need.on_request for need in absent) or not (public or needed or files):
        return Presence("licence", entry.where or "")
    if not needed and not files:
        return Presence("local")
    missing = {need.paths[0]: need.size for need in absent}
    for dataset, entries in files.items():
        downloads = Downloads(dataset, entries)
        for file in (file for key, file in entries.items() if not downloads.is_present(key)):
            missing[file.url] = file.bytes or missing.get(file.url)
    place = str(get_home() if needed else get_data_folder())
    if not missing:
        return Presence("here", place)
    known = [size for size in missing.values() if size is not None]
    if not known and entry.bytes is not None:
        return Presence("download", place, entry.bytes)
    return Presence("download", place, sum(known) or None, exact=len(known) == len(missing))


def _walk_family(name: str, datasets: Entries) -> Iterator[tuple[str, Dataset]]:
    """Yield a dataset and those that it is made of."""
    entry = datasets[name]
    yield name, entry
    for key in _UPSTREAM_KEYS:
        value = getattr(entry, key, None) or ()
        for other in (value,) if isinstance(value, str) else value:
            if other in datasets:
                yield from _walk_family(other, datasets)


def _list_irds_parts(entry: Dataset) -> list[IrdsPart]:
    """Return the parts of ir_datasets that a dataset reads."""
    if not isinstance(entry, IrDatasets) or entry.id is None:
        return []
    # without splits they are found by name, as the source does
    by_name = (entry.id, *(f"{entry.id}/{split}" for split in USUAL_SPLITS))
    ids = chain.from_iterable(entry.splits.values()) if entry.splits else by_name
    return [(entry.id, "docs"), *((name, part) for name in ids for part in ("queries", "qrels"))]
