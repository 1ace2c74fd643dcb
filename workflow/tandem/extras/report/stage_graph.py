"""The stages of a run: kinds of work and the time of each, the cost of each stage, and their graph."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

import altair
from jinja2.filters import do_filesizeformat
from markupsafe import Markup

from tandem.cluster.progress import format_duration
from tandem.extras.report.charts import draw_svg, embed_data, make_specification, set_colours
from tandem.report.grids import PageTable
from tandem.stages.base import BOXES
from tandem.store.lineage import BuiltStage

_PURPOSES = {
    ("Retrieval", "Training lists"): "negatives of the next model",
    ("Training", "Training lists"): "denoising",
    ("Training", "Training"): "starts from another",
}
# sizes in the graph of all stages, in pixels
STAGE_WIDTH = 200
STAGE_HEIGHT = 70
_LETTERS = 25  # letters of a stage's name in the graph


@dataclass(frozen=True)
class StageBox:
    """A kind of work.

    It has its stages, their number, their time and bytes, and its inputs from other kinds.
    """

    name: str
    stages: list[BuiltStage]
    inputs: list[str]

    @property
    def cost(self) -> str:
        """Return `3 stages · 2 min 10 s · 4.1 MB`."""
        size = do_filesizeformat(sum(stage.artifact.manifest.bytes for stage in self.stages), True)
        time = format_duration(sum(stage.seconds for stage in self.stages))
        return f"{len(self.stages)} stage{'s' * (len(self.stages) > 1)} · {time} · {size}"


def find_box(stage: BuiltStage) -> str:
    """Return the kind of work that a stage belongs to."""
    return stage.declared.box


def group_by_box(stages: dict[str, BuiltStage]) -> list[StageBox]:
    """Return the kinds of work in a run, in the order in which the run reaches them."""
    boxes = []
    for name in BOXES:
        own = [stage for stage in stages.values() if find_box(stage) == name]
        if not own:
            continue
        sources: set[str] = set()
        for stage in own:
            sources.update(find_box(stages[key]) for key in stage.upstream.values())
        inputs = []
        for source in sorted(sources, key=BOXES.index):
            purpose = _PURPOSES.get((source, name), "")
            if purpose:
                inputs.append(f"{source} ({purpose})")
            elif source != name:
                inputs.append(source)
        boxes.append(StageBox(name, own, inputs))
    return boxes


def list_stage_costs(stages: Iterable[BuiltStage]) -> PageTable:
    """Return time, memory and bytes of each stage."""
    stages = list(stages)
    total = sum(stage.seconds for stage in stages) or 1.0
    head = ["Stage", "Work", "Seconds", "% of the time", "Peak memory, MiB", "On disk, kB"]
    rows = []
    for stage in stages:
        manifest = stage.artifact.manifest
        memory = f"{manifest.peak_memory_mib:,}" if manifest.peak_memory_mib else "–"
        time = [f"{stage.seconds:,.1f}", f"{100 * stage.seconds / total:.1f}"]
        rows.append([stage.key, find_box(stage), *time, memory, f"{manifest.bytes / 1000:,.1f}"])
    links = {(row, 0): f"#stage-{stage.key}" for row, stage in enumerate(stages)}
    return PageTable("Cost of each stage", head, rows, links=links)


def list_direct_inputs(stages: dict[str, BuiltStage]) -> dict[str, list[str]]:
    """Return key → its inputs, without those that are inputs of its other inputs, as the dataset is of all."""
    above: dict[str, set[str]] = {}
    direct: dict[str, list[str]] = {}
    for key, stage in stages.items():
        inputs = sorted(set(stage.upstream.values()))
        above[key] = set(inputs).union(*(above[other] for other in inputs))
        direct[key] = [own for own in inputs if not any(own in above[other] for other in inputs)]
    return direct


def arrange_layers(inputs: dict[str, list[str]]) -> list[list[str]]:
    """Return keys in layers by their longest path from a source; a layer is ordered by its inputs' mean positions."""
    rows: list[list[str]] = []
    place: dict[str, float] = {}
    sorter = TopologicalSorter(inputs)
    sorter.prepare()
    while ready := sorter.get_ready():
        sorter.done(*ready)
        middle = {}
        for key in ready:
            middle[key] = sum(place[other] for other in inputs[key]) / max(1, len(inputs[key]))
        row = sorted(ready, key=lambda key: (middle[key], key))
        place |= _place_evenly(row)
        rows.append(row)
    return rows


def _place_evenly(row: Sequence[str]) -> dict[str, float]:
    """Return the positions of a row's keys, one unit apart and centred on 0."""
    return {key: number - (len(row) - 1) / 2 for number, key in enumerate(row)}


def draw_graph(stages: dict[str, BuiltStage]) -> Markup:
    """Return the graph: inputs above, each box a link to its stage; edges implied by others are left out."""
    inputs = list_direct_inputs(stages)
    rows = arrange_layers(inputs)
    columns: dict[str, float] = {}
    layers: dict[str, int] = {}
    for number, row in enumerate(rows):
        columns |= _place_evenly(row)
        layers |= dict.fromkeys(row, number)

    edges = []
    for key, direct in inputs.items():
        for other in direct:
            edges.append(
                {
                    "x": columns[other],
                    "y": layers[other] + 0.3,
                    "x2": columns[key],
                    "y2": layers[key] - 0.3,
                }
            )
    boxes = []
    for key, stage in stages.items():
        column = columns[key]
        layer = layers[key]
        boxes.append(
            {
                "x": column,
                "left": column - 0.46,
                "right": column + 0.46,
                "low": layer - 0.3,
                "high": layer + 0.3,
                "y": layer,
                "href": f"#stage-{key}",
                "box": find_box(stage),
                "name": stage.name[:_LETTERS],
                "kind": f"{stage.kind} · {format_duration(stage.seconds)}",
            }
        )

    x = altair.X("x:Q").axis(None).scale(nice=False, zero=False)
    left = altair.X("left:Q").axis(None).scale(nice=False, zero=False)
    y = altair.Y("y:Q").axis(None).scale(nice=False, zero=False, reverse=True)
    low = altair.Y("low:Q").axis(None).scale(nice=False, zero=False, reverse=True)
    base = altair.Chart(embed_data(boxes))
    names = [box for box in BOXES if any(row["box"] == box for row in boxes)]
    chart = altair.layer(
        altair.Chart(embed_data(edges))
        .mark_rule(stroke="var(--quiet)", opacity=0.5)
        .encode(x=x, y=y, x2="x2", y2="y2"),
        base.mark_rect(fill="var(--card)", cornerRadius=8, strokeWidth=1.5).encode(
            x=left,
            x2="right",
            y=low,
            y2="high",
            href="href:N",
            stroke=set_colours("box", names, len(names) * STAGE_WIDTH),
        ),
        base.mark_text(dy=-7, fontSize=12.5, fill="var(--ink)").encode(x=x, y=y, text="name:N"),
        base.mark_text(dy=10, fontSize=11, fill="var(--quiet)").encode(x=x, y=y, text="kind:N"),
    )
    size = {"width": max(map(len, rows)) * STAGE_WIDTH, "height": len(rows) * STAGE_HEIGHT}
    svg = draw_svg(make_specification(chart.properties(**size)))
    drawing = str(svg).replace(' aria-hidden="true"', "")
    # In a drawing without a page, links get a base address, and no name.
    return Markup(
        re.sub(r'xlink:href="[^"#]*#stage-([^"]*)"', r'href="#stage-\1" aria-label="\1"', drawing)
    )
