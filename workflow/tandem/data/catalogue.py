"""The command `datasets`: the catalogue and one's own datasets, and where each is.

A dataset is here, to be downloaded (and how much), or available on request. Nothing is changed to find out.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.data.fetch import data_folder, readable
from tandem.data.files import Downloads
from tandem.data.irds_needs import Need, Part, home, needs
from tandem.errors import UserError
from tandem.planning.config import complete, read_yaml

ROOT = Path(__file__).parents[3]  # the checkout
COLUMNS = ("dataset", "passages", "queries", "state", "licence")
UPSTREAM_KEYS = ("of", "corpus_of", "queries_of")  # keys that name other datasets

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Presence:
    """Where a dataset is.

    Attributes:
        state: `here`, `download`, `licence` (on request), `local` (made on this machine) or `missing` (its `path` does
            not exist).
        place: the folder it is in or will be in; for `licence` where to ask.
        bytes: what remains to be downloaded, as far as sizes are known; None if no size is.
        exact: whether `bytes` is all of it.
    """

    state: str
    place: str = ""
    bytes: int | None = None
    exact: bool = True

    def __str__(self) -> str:
        """The state in a few words."""
        match self.state:
            case "download":
                size = readable(self.bytes) if self.bytes else "of unknown size"
                return f"download {size}{'' if self.exact or not self.bytes else ' or more'}"
            case "licence":
                return f"licence: {self.place}"
            case "here" | "missing":
                return f"{self.state}: {self.place}"
            case _:
                return self.state


def main(words: list[str]) -> None:
    """Print the catalogue: `--datasets FILE.json` (entries by name), or without it that of the checkout."""
    if words and (len(words) != 2 or words[0] != "--datasets"):
        raise UserError(f"datasets: {' '.join(words)!r} is unknown; allowed is --datasets FILE.json")
    if words:
        datasets: Any = _read(Path(words[1]))
    else:
        datasets = complete(read_yaml(ROOT / "config/config.yaml"), ROOT)["datasets"]
    print(format_catalogue(datasets), file=sys.stdout)


def _read(path: Path) -> Any:
    """The entries in a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); --datasets takes a JSON file of entries by name") from None


def format_catalogue(datasets: Mapping[str, Spec]) -> str:
    """The catalogue as text, by name; the parts `<group>-…` of a group are counted in its line."""
    groups = {name: spec["of"] for name, spec in datasets.items() if spec.get("source") == "group"}
    parts = {part for name, of in groups.items() for part in of if part.startswith(f"{name}-")}
    by_name = presences([name for name in sorted(datasets) if name not in parts], datasets)
    rows = [COLUMNS, *(_row(name, datasets[name], presence) for name, presence in by_name.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = (COLUMNS.index("passages"),)
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _row(name: str, spec: Spec, presence: Presence) -> tuple[str, ...]:
    counts = dict(spec.get("counts") or {})
    passages = f"{counts.pop('passages'):,}" if "passages" in counts else ""
    queries = " · ".join(f"{split} {count:,}" for split, count in counts.items() if not split.endswith("_qrels"))
    of = f" ({len(spec['of'])} datasets)" if spec.get("source") == "group" else ""
    return f"{name}{of}", passages, queries, str(presence), spec.get("licence") or ""


def presences(names: Iterable[str], datasets: Mapping[str, Spec]) -> dict[str, Presence]:
    """Where several datasets are, by name: one query of ir_datasets for all, which takes a second or two.

    Args:
        names: the datasets.
        datasets: all entries, as in config/datasets/, for those made of others.
    """
    parts = {name: _irds_parts(datasets[name], datasets) for name in names}
    downloads = needs(tuple(dict.fromkeys(part for many in parts.values() for part in many)))
    return {
        name: _presence(name, datasets, [need for part in many for need in downloads[part]])
        for name, many in parts.items()
    }


def _presence(name: str, datasets: Mapping[str, Spec], needed: list[Need]) -> Presence:
    """Where a dataset is; `needed` are the downloads of ir_datasets for it."""
    spec = datasets[name]
    if spec.get("path"):
        return Presence("here" if Path(spec["path"]).exists() else "missing", str(spec["path"]))
    files = dict(_files(name, spec, datasets))
    public = spec.get("access") != "licence"
    absent = [need for need in needed if not any((home() / path).exists() for path in need.paths)]
    if any(need.on_request for need in absent) or not (public or needed or files):
        return Presence("licence", str(spec.get("where") or ""))
    if not needed and not files:
        return Presence("local")
    missing = {need.paths[0]: need.size for need in absent} | _missing_urls(files)
    place = str(home() if needed else data_folder())
    if not missing:
        return Presence("here", place)
    known = [size for size in missing.values() if size is not None]
    if not known and spec.get("bytes") is not None:
        return Presence("download", place, spec["bytes"])
    return Presence("download", place, sum(known) or None, exact=len(known) == len(missing))


def _parts(spec: Spec, datasets: Mapping[str, Spec]) -> list[tuple[str, Spec]]:
    """The datasets that a dataset is made of, with their names."""
    values = [spec[key] for key in UPSTREAM_KEYS if spec.get(key)]
    names = [name for value in values for name in ([value] if isinstance(value, str) else value)]
    return [(name, datasets[name]) for name in names if name in datasets]


def _irds_parts(spec: Spec, datasets: Mapping[str, Spec]) -> list[Part]:
    """The parts of ir_datasets that a dataset, or those it is made of, reads."""
    parts: list[Part] = []
    if spec.get("source") == "ir_datasets" and isinstance(spec.get("id"), str):
        # without splits they are found by name, as the source does
        splits = spec.get("splits") or [spec["id"], *(f"{spec['id']}/{split}" for split in ("train", "dev", "test"))]
        values = splits.values() if isinstance(splits, Mapping) else splits
        ids = [name for value in values for name in ([value] if isinstance(value, str) else value)]
        parts += [(spec["id"], "docs"), *((name, part) for name in ids for part in ("queries", "qrels"))]
    return parts + [part for _, other in _parts(spec, datasets) for part in _irds_parts(other, datasets)]


def _files(name: str, spec: Spec, datasets: Mapping[str, Spec]) -> Iterator[tuple[str, Spec]]:
    """(dataset, `files`) of a dataset and of those it is made of."""
    if spec.get("files"):
        yield name, spec["files"]
    for other, part in _parts(spec, datasets):
        yield from _files(other, part, datasets)


def _missing_urls(files: Mapping[str, Spec]) -> dict[str, int | None]:
    """URLs of missing files, with sizes; None where unknown."""
    missing: dict[str, int | None] = {}
    for dataset, entries in files.items():
        downloads = Downloads(dataset, entries)
        for name, file in downloads.files.items():
            if not downloads.is_present(name):
                missing[file.url] = file.bytes or missing.get(file.url)
    return missing
