"""The stages of a run: kinds of work and what each took, the cost of each stage, and their graph."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter

import altair
from jinja2.filters import do_filesizeformat
from markupsafe import Markup

from tandem.cluster.progress import duration
from tandem.report.charts import colours, draw_svg, inline, specification
from tandem.report.page import PageTable
from tandem.stages.base import BOXES
from tandem.store.lineage import BuiltStage

_PURPOSES = {
    ("Retrieval", "Training lists"): "negatives of the next model",
    ("Training", "Training lists"): "denoising",
    ("Training", "Training"): "starts from another",
}
STAGE_WIDTH, STAGE_HEIGHT = 200, 70  # of the graph of all stages, in pixels
_LETTERS = 25  # of a stage's name in the graph


@dataclass(frozen=True)
class StageBox:
    """A kind of work: its stages, how many of them there are, their time and bytes, and what it takes from others."""

    name: str
    stages: list[BuiltStage]
    inputs: list[str]

    @property
    def cost(self) -> str:
        """`3 stages · 2 min 10 s · 4.1 MB`."""
        size = do_filesizeformat(sum(stage.artifact.manifest.bytes for stage in self.stages), True)
        time = duration(sum(stage.seconds for stage in self.stages))
        return f"{len(self.stages)} stage{'s' * (len(self.stages) > 1)} · {time} · {size}"


def box_of(stage: BuiltStage) -> str:
    """The kind of work that a stage belongs to."""
    return stage.declared.box


def group_by_box(stages: dict[str, BuiltStage]) -> list[StageBox]:
    """The kinds of work that a run has, in the order in which it passes them."""
    boxes = []
    for name in BOXES:
        own = [stage for stage in stages.values() if box_of(stage) == name]
        sources = {box_of(stages[key]) for stage in own for key in stage.upstream.values()}
        purposes = {source: _PURPOSES.get((source, name), "") for source in sorted(sources, key=BOXES.index)}
        inputs = [f"{source} ({why})" if why else source for source, why in purposes.items() if why or source != name]
        boxes += [StageBox(name, own, inputs)] if own else []
    return boxes


def stage_costs(stages: Iterable[BuiltStage]) -> PageTable:
    """Time, memory and bytes of each stage."""
    stages = list(stages)
    total = sum(stage.seconds for stage in stages) or 1.0
    head = ["Stage", "Work", "Seconds", "% of the time", "Peak memory, MiB", "On disk, kB"]
    rows = []
    for stage in stages:
        manifest = stage.artifact.manifest
        memory = f"{manifest.peak_memory_mib:,}" if manifest.peak_memory_mib else "–"
        time = [f"{stage.seconds:,.1f}", f"{100 * stage.seconds / total:.1f}"]
        rows.append([stage.key, box_of(stage), *time, memory, f"{manifest.bytes / 1000:,.1f}"])
    links = {(row, 0): f"#stage-{stage.key}" for row, stage in enumerate(stages)}
    return PageTable("Cost of each stage", head, rows, links=links)


def direct_inputs(stages: dict[str, BuiltStage]) -> dict[str, list[str]]:
    """Key → its inputs, without those that are inputs of its other inputs: the dataset is above everything."""
    above: dict[str, set[str]] = {}
    direct: dict[str, list[str]] = {}
    for key, stage in stages.items():
        inputs = sorted(set(stage.upstream.values()))
        above[key] = set(inputs).union(*(above[other] for other in inputs))
        direct[key] = [own for own in inputs if not any(own in above[other] for other in inputs)]
    return direct


def layers(inputs: dict[str, list[str]]) -> list[list[str]]:
    """Keys by their longest way from a source; within a layer ordered by the mean place of their inputs."""
    rows: list[list[str]] = []
    place: dict[str, float] = {}
    sorter = TopologicalSorter(inputs)
    sorter.prepare()
    while ready := sorter.get_ready():
        sorter.done(*ready)
        middle = {key: sum(place[other] for other in inputs[key]) / max(1, len(inputs[key])) for key in ready}
        rows.append(sorted(ready, key=lambda key: (middle[key], key)))
        place |= {key: at - (len(ready) - 1) / 2 for at, key in enumerate(rows[-1])}
    return rows


def draw_graph(stages: dict[str, BuiltStage]) -> Markup:
    """The graph: inputs above, each box a link to its stage; edges that follow from others are left out."""
    inputs = direct_inputs(stages)
    rows = layers(inputs)
    at = {key: (n - (len(row) - 1) / 2, y) for y, row in enumerate(rows) for n, key in enumerate(row)}
    edges = [
        {"x": at[other][0], "y": at[other][1] + 0.3, "x2": at[key][0], "y2": at[key][1] - 0.3}
        for key, own in inputs.items()
        for other in own
    ]
    boxes = [
        {"x": x, "left": x - 0.46, "right": x + 0.46, "low": y - 0.3, "high": y + 0.3, "y": y, "href": f"#stage-{key}"}
        | {"box": box_of(stage), "name": stage.name[:_LETTERS], "kind": f"{stage.kind} · {duration(stage.seconds)}"}
        for key, stage in stages.items()
        for x, y in [at[key]]
    ]
    x, left = (altair.X(f"{name}:Q").axis(None).scale(nice=False, zero=False) for name in ("x", "left"))
    y, low = (altair.Y(f"{name}:Q").axis(None).scale(nice=False, zero=False, reverse=True) for name in ("y", "low"))
    base = altair.Chart(inline(boxes))
    names = [box for box in BOXES if any(row["box"] == box for row in boxes)]
    chart = altair.layer(
        altair.Chart(inline(edges)).mark_rule(stroke="var(--quiet)", opacity=0.5).encode(x=x, y=y, x2="x2", y2="y2"),
        base.mark_rect(fill="var(--card)", cornerRadius=8, strokeWidth=1.5).encode(
            x=left, x2="right", y=low, y2="high", href="href:N", stroke=colours("box", names, len(names) * STAGE_WIDTH)
        ),
        base.mark_text(dy=-7, fontSize=12.5, fill="var(--ink)").encode(x=x, y=y, text="name:N"),
        base.mark_text(dy=10, fontSize=11, fill="var(--quiet)").encode(x=x, y=y, text="kind:N"),
    )
    size = {"width": max(map(len, rows)) * STAGE_WIDTH, "height": len(rows) * STAGE_HEIGHT}
    drawing = str(draw_svg(specification(chart.properties(**size)))).replace(' aria-hidden="true"', "")
    # Drawn without a page, links get a base address, and no name.
    return Markup(re.sub(r'xlink:href="[^"#]*#stage-([^"]*)"', r'href="#stage-\1" aria-label="\1"', drawing))
