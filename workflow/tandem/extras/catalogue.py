"""The command `datasets`: the catalogue and one's own datasets, and where each is.

A dataset is here, is to be downloaded (with the size), or is available on request. The command changes nothing.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tandem import ROOT
from tandem.config.datasets import Dataset, Group, sources
from tandem.config.loading import load_settings
from tandem.config.merging import gathered
from tandem.config.parsing import read
from tandem.data.dataset_files import Downloads
from tandem.data.fetch import get_data_folder
from tandem.data.splits import USUAL_SPLITS
from tandem.errors import UserError
from tandem.extras.byte_sizes import format_bytes
from tandem.extras.irds_needs import IrdsPart, Need, find_needs, get_home

_COLUMNS = ("dataset", "passages", "queries", "state", "licence")
_UPSTREAM_KEYS = ("of", "corpus_of", "queries_of")  # keys that name other datasets

Entries = Mapping[str, Dataset]


@dataclass(frozen=True)
class Presence:
    """Where a dataset is: `here`, `download`, `licence` (on request), `local` (made here), `missing` (no `path`).

    `place` is its folder, or for `licence` where to ask. `bytes` is what remains to be downloaded: exactly that, or at
    least that if not `exact`.
    """

    state: str
    place: str = ""
    bytes: int | None = None
    exact: bool = True

    def __str__(self) -> str:
        """Return the state in a few words."""
        if self.state != "download":
            return f"{self.state}: {self.place}" if self.place else self.state
        if not self.bytes:
            return "download of unknown size"
        more = "" if self.exact else " or more"
        return f"download {format_bytes(self.bytes)}{more}"


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
    """Return JSON entries, by name, as models of their sources; a `UserError` for an entry without a known source."""
    models = sources()
    for name, entry in entries.items():
        source = entry.get("source") if isinstance(entry, dict) else None
        if not isinstance(source, str) or source not in models:
            raise UserError(
                f"datasets.{name}: no entry with a source; allowed are {', '.join(sorted(models))}"
            )
    return {
        name: read(models[entry["source"]], entry, f"datasets.{name}")
        for name, entry in entries.items()
    }


def format_catalogue(datasets: Entries) -> str:
    """Return the catalogue as text, by name; the parts `<group>-…` of a group are counted in its line."""
    parts: set[str] = set()
    for name, entry in datasets.items():
        if isinstance(entry, Group):
            parts.update(part for part in entry.of if part.startswith(f"{name}-"))
    names = [name for name in sorted(datasets) if name not in parts]

    rows = [_COLUMNS]
    for name, presence in locate_datasets(names, datasets).items():
        rows.append(_format_row(name, datasets[name], presence))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if column == "passages" else "<" for column in _COLUMNS]

    lines = []
    for row in rows:
        cells = [
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _format_row(name: str, entry: Dataset, presence: Presence) -> tuple[str, str, str, str, str]:
    counts = dict(entry.counts or {})
    passages = f"{counts.pop('passages'):,}" if "passages" in counts else ""
    queries = " · ".join(
        f"{split} {count:,}" for split, count in counts.items() if not split.endswith("_qrels")
    )
    members = f" ({len(entry.of)} datasets)" if isinstance(entry, Group) else ""
    return f"{name}{members}", passages, queries, str(presence), entry.licence or ""


def locate_datasets(names: Iterable[str], datasets: Entries) -> dict[str, Presence]:
    """Return where the named datasets are; ir_datasets is queried once for all, which takes a second or two."""
    parts: dict[str, list[IrdsPart]] = {}
    for name in names:
        parts[name] = []
        for _, entry in _walk_family(name, datasets):
            parts[name] += _list_irds_parts(entry)
    distinct = dict.fromkeys(chain.from_iterable(parts.values()))
    known = find_needs(tuple(distinct))

    presences = {}
    for name, own in parts.items():
        needed = list(chain.from_iterable(known[part] for part in own))
        presences[name] = _locate_dataset(name, datasets, needed)
    return presences


def _locate_dataset(name: str, datasets: Entries, needed: list[Need]) -> Presence:
    """Return where a dataset is; `needed` are the downloads of ir_datasets for it."""
    entry = datasets[name]
    family = list(_walk_family(name, datasets))
    for _, member in family:
        if member.path and not Path(member.path).exists():
            return Presence("missing", member.path)
    if entry.path:
        return Presence("here", entry.path)

    files = {other: member.files for other, member in family if member.files}
    home = get_home()
    absent = [need for need in needed if not any(Path(home, path).exists() for path in need.paths)]
    is_public = entry.access != "licence" or needed or files
    if any(need.on_request for need in absent) or not is_public:
        return Presence("licence", entry.where or "")
    if not needed and not files:
        return Presence("local")

    missing = {need.paths[0]: need.size for need in absent}
    for dataset, entries in files.items():
        downloads = Downloads(dataset, entries)
        for key, file in entries.items():
            if not downloads.is_present(key):
                missing[file.url] = file.bytes or missing.get(file.url)
    place = str(get_home() if needed else get_data_folder())
    if not missing:
        return Presence("here", place)

    known = [size for size in missing.values() if size is not None]
    if not known and entry.bytes is not None:
        return Presence("download", place, entry.bytes)
    return Presence("download", place, sum(known) or None, exact=len(known) == len(missing))


def _walk_family(name: str, datasets: Entries) -> Iterator[tuple[str, Dataset]]:
    """Yield a dataset and those that it is made of, each once, even if one is made of itself."""
    names = [name]
    for member in names:  # grows during the loop
        entry = datasets[member]
        yield member, entry
        for key in _UPSTREAM_KEYS:
            value = getattr(entry, key, None) or ()
            others = (value,) if isinstance(value, str) else value
            names += [other for other in others if other in datasets and other not in names]


def _list_irds_parts(entry: Dataset) -> list[IrdsPart]:
    """Return the parts of ir_datasets that a dataset reads."""
    values = entry.model_dump()
    collection = values["id"] if entry.source == "ir_datasets" else None
    if collection is None:
        return []
    if values["splits"]:
        names = list(chain.from_iterable(values["splits"].values()))
    else:  # the source finds splits by name, too
        names = [collection, *(f"{collection}/{split}" for split in USUAL_SPLITS)]
    parts = [(collection, "docs")]
    for name in names:
        parts += [(name, "queries"), (name, "qrels")]
    return parts
