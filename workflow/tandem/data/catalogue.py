"""The command `datasets`: one line for each dataset of the catalogue and of one's own."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem.config.loading import load_settings, read_yaml
from tandem.data.download import readable
from tandem.data.presence import Presence, Spec, presences
from tandem.errors import UserError

ROOT = Path(__file__).parents[3]  # the checkout
COLUMNS = ("dataset", "passages", "queries", "state", "licence")


def main(words: list[str]) -> None:
    """Print the catalogue: `--datasets FILE.json` (entries by name), or without it that of the checkout."""
    if words and (len(words) != 2 or words[0] != "--datasets"):
        raise UserError(f"datasets: {' '.join(words)!r} is unknown; allowed is --datasets FILE.json")
    if words:
        datasets: Any = _read(Path(words[1]))
    else:
        datasets = {
            name: entry.model_dump(mode="json", by_alias=True, exclude_unset=True)
            for name, entry in load_settings(read_yaml(ROOT / "config/config.yaml"), ROOT).datasets.items()
        }
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
