"""Where a dataset is: here, to be downloaded and how much, or to be asked for. Looks only, and changes nothing."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.data.fetch import data_folder, readable
from tandem.data.files import Downloads
from tandem.data.irds_needs import Need, Wanted, home, needs
from tandem.errors import UserError
from tandem.planning.config import complete, read_yaml

# ---- tandem.data.catalogue
Spec = Mapping[str, Any]
DERIVED = ("of", "corpus_of", "queries_of")  # keys that name other datasets
Missing = dict[str, int | None]  # what is to be downloaded → its size, None if unknown


@dataclass(frozen=True)
class Presence:
    """Where a dataset is.

    Attributes:
        state: `here`, `download`, `licence` (must be asked for), `local` (made on this machine) or `missing` (its
            `path` names nothing).
        place: the folder it is in or will be in; for `licence` where to ask.
        bytes: what is still to be downloaded, as far as sizes are known; None if none is.
        exact: whether `bytes` is all of it.
    """

    state: str
    place: str = ""
    bytes: int | None = None
    exact: bool = True


def presence(name: str, spec: Spec, datasets: Mapping[str, Spec] | None = None) -> Presence:
    """Where a dataset is.

    Args:
        name: its name.
        spec: its entry, as in config/datasets/.
        datasets: all entries, for those made of others.
    """
    return presences([name], {**(datasets or {}), name: spec})[name]


def presences(names: Iterable[str], datasets: Mapping[str, Spec]) -> dict[str, Presence]:
    """Where several datasets are, by name: ir_datasets is asked once for all, which takes a second or two."""
    wanted = {name: _wanted(datasets[name], datasets) for name in names}
    told = needs(tuple(dict.fromkeys(one for many in wanted.values() for one in many)))
    return {
        name: _presence(name, datasets, [need for one in many for need in told[one]]) for name, many in wanted.items()
    }


def _presence(name: str, datasets: Mapping[str, Spec], needed: list[Need]) -> Presence:
    """`presence`, knowing what ir_datasets needs for it."""
    spec = datasets[name]
    if spec.get("path"):
        return Presence("here" if Path(spec["path"]).exists() else "missing", str(spec["path"]))
    files = dict(_files(name, spec, datasets))
    public = spec.get("access") != "licence"
    absent = [need for need in needed if not any((home() / path).exists() for path in need.paths)]
    if any(need.asked for need in absent) or not (public or needed or files):
        return Presence("licence", str(spec.get("where", "")))
    if not needed and not files:
        return Presence("local")
    missing: Missing = {need.paths[0]: need.size for need in absent} | _not_fetched(files)
    place = str(home() if needed else data_folder())
    if not missing:
        return Presence("here", place)
    known = [size for size in missing.values() if size is not None]
    if not known and "bytes" in spec:
        return Presence("download", place, spec["bytes"])
    return Presence("download", place, sum(known) or None, exact=len(known) == len(missing))


def _parts(spec: Spec, datasets: Mapping[str, Spec]) -> list[tuple[str, Spec]]:
    """The datasets that one is made of, with their names."""
    told = [one for key in DERIVED if key in spec for one in ([spec[key]] if isinstance(spec[key], str) else spec[key])]
    return [(name, datasets[name]) for name in told if name in datasets]


def _wanted(spec: Spec, datasets: Mapping[str, Spec]) -> list[Wanted]:
    """What a dataset, or those it is made of, read of ir_datasets."""
    wanted: list[Wanted] = []
    if spec.get("source") == "ir_datasets" and isinstance(spec.get("id"), str):
        # without splits they are found by name, as the source does
        splits = spec.get("splits") or [spec["id"], *(f"{spec['id']}/{split}" for split in ("train", "dev", "test"))]
        named = splits.values() if isinstance(splits, Mapping) else splits
        ids = [one for told in named for one in ([told] if isinstance(told, str) else told)]
        wanted += [(spec["id"], "docs"), *((one, part) for one in ids for part in ("queries", "qrels"))]
    return wanted + [one for _, part in _parts(spec, datasets) for one in _wanted(part, datasets)]


def _files(name: str, spec: Spec, datasets: Mapping[str, Spec]) -> Iterator[tuple[str, Spec]]:
    """(dataset, `files`) of a dataset and of those it is made of."""
    if spec.get("files"):
        yield name, spec["files"]
    for other, part in _parts(spec, datasets):
        yield from _files(other, part, datasets)


def _not_fetched(files: Mapping[str, Spec]) -> Missing:
    """URLs of files that are not here, with sizes."""
    missing: Missing = {}
    for dataset, told in files.items():
        downloads = Downloads(dataset, told)
        for name, entry in told.items():
            if not downloads.here(name):
                missing[entry["url"]] = entry.get("bytes") or missing.get(entry["url"])
    return missing


# ---- tandem.data.catalogue
ROOT = Path(__file__).parents[3]  # the checkout
COLUMNS = ("dataset", "passages", "queries", "state", "licence")


def main(words: list[str]) -> None:
    """Print the catalogue: `--datasets FILE.json` (entries by name), or without it that of the checkout."""
    if words and (len(words) != 2 or words[0] != "--datasets"):
        raise UserError(f"datasets: {' '.join(words)!r} is unknown; allowed is --datasets FILE.json")
    if words:
        datasets: Any = _read(Path(words[1]))
    else:
        datasets = complete(read_yaml(ROOT / "config/config.yaml"), ROOT)["datasets"]
    print(table(datasets), file=sys.stdout)


def table(datasets: Mapping[str, Spec]) -> str:
    """The catalogue as text, by name; the parts `<group>-…` of a group are counted in its line."""
    groups = {name: spec["of"] for name, spec in datasets.items() if spec.get("source") == "group"}
    parts = {part for name, of in groups.items() for part in of if part.startswith(f"{name}-")}
    found = presences([name for name in sorted(datasets) if name not in parts], datasets)
    rows = [COLUMNS, *(_row(name, datasets[name], one) for name, one in found.items())]
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


def state(found: Presence) -> str:
    """A dataset's state in a few words."""
    match found.state:
        case "download":
            size = readable(found.bytes) if found.bytes else "of unknown size"
            return f"download {size}{'' if found.exact or not found.bytes else ' or more'}"
        case "licence":
            return f"licence: {found.place}"
        case "here" | "missing":
            return f"{found.state}: {found.place}"
        case _:
            return found.state


def _row(name: str, spec: Spec, found: Presence) -> tuple[str, ...]:
    counts = dict(spec.get("counts", {}))
    passages = f"{counts.pop('passages'):,}" if "passages" in counts else ""
    queries = " · ".join(f"{split} {count:,}" for split, count in counts.items() if not split.endswith("_qrels"))
    of = f" ({len(spec['of'])} datasets)" if spec.get("source") == "group" else ""
    return f"{name}{of}", passages, queries, state(found), spec.get("licence", "")


def _read(path: Path) -> Any:
    """The entries in a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); --datasets takes a JSON file of entries by name") from None
