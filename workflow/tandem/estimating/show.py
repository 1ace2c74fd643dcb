"""The command `estimate`: one line per stage and their sum, for a configuration and a machine."""

import json
from pathlib import Path
from typing import Any

from tandem.config.loading import gathered
from tandem.errors import UserError
from tandem.estimating.costs import Cost, cost, setting, totals, upstream_first
from tandem.estimating.hardware import WORK, Hardware
from tandem.estimating.volumes import Volumes
from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[3]  # the checkout
HEAD = ("stage", "TFLOP", "device time", "wall", "memory", "disk", "took")


def main(words: list[str]) -> int:
    """`estimate [--config FILE] [--hardware NAME] [FILE.yaml …]`: prints a table of what a configuration would cost.

    Args:
        words: YAML files laid upon config/config.yaml; `--config` a whole configuration as JSON, as the Snakefile has
            it; `--hardware` an entry of config/hardware/, else `execution.hardware`.
    """
    told, files, hardware = None, [], None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("--config", "--hardware") and rest:
            text = rest.pop(0)
            told, hardware = (json.loads(Path(text).read_text()), hardware) if word == "--config" else (told, text)
        elif word.startswith("--"):
            raise UserError(f"estimate: {word} is no flag, or has no value; allowed: --hardware NAME, FILE.yaml …")
        else:
            files.append(Path(word))
    plan = FullPlan(gathered(files, ROOT) if told is None else told, ROOT)
    chosen = Hardware.load(ROOT / "config/hardware", hardware or plan.settings.execution.hardware)
    print(render(plan, chosen), end="")
    return 0


def render(plan: FullPlan, hardware: Hardware) -> str:
    """The table as Markdown, below it what the machine is taken to do."""
    about = setting(plan.document(), hardware)
    plan.tables.files()
    stages = upstream_first(plan.tables.wanted_scores())
    known = [found for stage in stages if (found := cost(stage, about, hardware))]
    rows = [_row(one) for one in known]
    summed = totals(known)
    rows.append(["**all**", *_figures(summed), ""])
    lines = [f"| {' | '.join(row)} |" for row in [list(HEAD), ["---", *["--:"] * (len(HEAD) - 1)], *rows]]
    sizes = {stage.dataset: about.sizes(stage) for stage in stages if stage.kind == "dataset"}
    notes = [f"{name}: {_told(found)}" for name, found in sizes.items()]
    mfu = ", ".join(f"{kind} {hardware.mfu[kind]:.2f}" for kind in WORK)
    notes.append(f"{hardware.name}: {hardware.peak:g} TFLOP/s, of which models reach {mfu}")
    notes += [f"{what}: {text}" for what, text in hardware.origin.items()]
    return "\n".join([*lines, "", *notes, ""])


def _row(one: Cost) -> list[str]:
    """A stage's cells."""
    took = "" if one.measured is None else clock(one.measured)
    return [f"{one.stage.kind} {one.stage.name}", *_figures(vars(one)), took]


def _figures(told: dict[str, Any]) -> list[str]:
    """Operations, times, memory and disk for a person."""
    operations = f"{told['operations'] / 1e12:,.1f}" if told["operations"] else ""
    device = clock(told["seconds"]) if told["seconds"] else ""
    return [operations, device, clock(told["wall"]), size(told["memory"]), size(told["disk"])]


def _told(found: Volumes) -> str:
    """A collection's size for a person."""
    queries = ", ".join(f"{count:,} {split}" for split, count in found.queries.items())
    origin = "counted" if found.counted else "as the catalogue says, with typical lengths"
    return f"{found.passages:,} passages, queries: {queries} ({origin})"


def clock(seconds: float) -> str:
    """`12 s`, `3.4 min`, `13.1 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:,.1f} h"


def size(count: float) -> str:
    """Bytes as MiB or GiB."""
    return f"{count / (1 << 20):,.0f} MiB" if count < 1 << 30 else f"{count / (1 << 30):,.1f} GiB"
