"""Drawings of a run, as inline SVG: a box for each kind of work, and the graph of all stages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jinja2.filters import do_filesizeformat
from markupsafe import Markup

from tandem.cluster.progress import duration
from tandem.stages import KINDS
from tandem.store.lineage import Stage

WIDTH, HEIGHT, ACROSS, MIDDLE, BELOW = 144, 76, 20, 118, 268  # of the boxes of the overview, in pixels
# Box: its column and height; what a run always passes through stands in one line, what may join it below.
BOXES: dict[str, tuple[int, int]] = {
    "Collection": (0, MIDDLE),
    "Encoder": (0, BELOW),
    "Sparse search": (1, MIDDLE),
    "Training lists": (2, MIDDLE),
    "Training": (3, MIDDLE),
    "Encoding": (4, MIDDLE),
    "Retrieval": (5, MIDDLE),
    "Fusion": (5, BELOW),
    "Re-ranking": (6, MIDDLE),
    "Audits": (6, BELOW),
    "Scores": (7, MIDDLE),
}
LABELS = {
    ("Retrieval", "Training lists"): "negatives of the next model",
    ("Training", "Training lists"): "denoising",
    ("Training", "Training"): "starts from",
}
EVERYWHERE = ("Collection", "Encoder")  # inputs of nearly everything: only where nothing else leads

Point = tuple[float, float]
STAGE_WIDTH, STAGE_HEIGHT, STAGE_ACROSS, DOWN, MARGIN = 196, 44, 16, 34, 8  # of the graph of all stages
LETTERS = 25  # that fit into a box


@dataclass
class Part:
    """A box: its stages, and from which boxes they take something."""

    name: str
    stages: list[Stage] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Wall time of all its stages."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def bytes(self) -> int:
        """What all its stages wrote."""
        return sum(map(bytes_of, self.stages))

    @property
    def count(self) -> str:
        """`3 stages`."""
        return f"{len(self.stages)} stage{'s' if len(self.stages) > 1 else ''}"

    @property
    def id(self) -> str:
        """The id of its line in the table of costs."""
        return f"part-{self.name.lower().replace(' ', '-')}"

    @property
    def corner(self) -> tuple[float, float]:
        """Left and top of its box."""
        column, down = BOXES[self.name]
        return 8 + column * (WIDTH + ACROSS), down


def bytes_of(stage: Stage) -> int:
    """Bytes of its files."""
    return stage.artifact.manifest.bytes


def group_by_box(stages: Iterable[Stage]) -> dict[str, Part]:
    """The boxes that have stages, in the order of PARTS."""
    listed = list(stages)
    known = {kind: KINDS[kind].box for kind in KINDS if KINDS[kind].box in BOXES}
    box_of = {stage.key: known.get(stage.kind, "Scores") for stage in listed}
    parts = {name: Part(name) for name in BOXES if name in box_of.values()}
    for stage in listed:
        part = parts[box_of[stage.key]]
        part.stages.append(stage)
        for source in {box_of[key] for key in stage.upstream.values()}:
            part.inputs[source] = part.inputs.get(source, 0) + 1
    return parts


def overview(parts: dict[str, Part]) -> Markup:
    """The drawing: from left to right what is made of what, above it what goes back into the next model."""
    edges = [_part_edge(parts[source], part) for part in parts.values() for source in _drawn_inputs(part)]
    drawing = Markup().join([*edges, *(_part_box(part) for part in parts.values())])
    width, low = 16 + 8 * (WIDTH + ACROSS) - ACROSS, max(part.corner[1] for part in parts.values())
    return Markup(
        '<svg class="overview" viewBox="0 0 {0} {1}" role="group" aria-label="The run at a glance"><defs>'
        '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>{2}</svg>'
    ).format(width, low + HEIGHT + (8 if low == BELOW else 62), drawing)


def _drawn_inputs(part: Part) -> Sequence[str]:
    own = [source for source in part.inputs if source != part.name or (source, source) in LABELS]
    special = [name for name in own if name not in EVERYWHERE or (name, part.name) == ("Encoder", "Training")]
    return special or own[:1]


def _part_edge(source: Part, target: Part) -> Markup:
    """A line to the right, an arc below what it passes over, or an arc back above the boxes with its meaning."""
    if (source.name, target.name) in LABELS:
        return _back(source, target)
    (x, y), (to, down) = source.corner, target.corner
    if y == down and to - x > WIDTH + ACROSS:
        sag = y + HEIGHT + 20 + 10 * (to - x) / (WIDTH + ACROSS)
        return _curve("", (x + WIDTH / 2 + 20, y + HEIGHT), sag, sag, (to + WIDTH / 2 - 20, down + HEIGHT + 2))
    if down < y:  # from below the line of boxes: to the right, then up
        right, low, top = to + WIDTH / 2 - 40, y + HEIGHT / 2, down + HEIGHT + 2
        return _edge(f"M{x + WIDTH:g} {low:g}H{right - 12:g}Q{right:g} {low:g} {right:g} {low - 12:g}V{top:g}")
    if to <= x:  # into the box below it
        return _edge(f"M{x + WIDTH / 2:g} {y + HEIGHT:g}L{to + WIDTH / 2:g} {down - 2:g}")
    if down > y:  # into a box below the line: down, then to the right
        left, low = x + WIDTH / 2 + 34, down + HEIGHT - 14
        return _edge(f"M{left:g} {y + HEIGHT:g}V{low - 12:g}Q{left:g} {low:g} {left + 12:g} {low:g}H{to - 2:g}")
    return _edge(f"M{x + WIDTH:g} {y + HEIGHT / 2:g}L{to - 2:g} {down + HEIGHT / 2:g}")


def _edge(path: str, style: str = "") -> Markup:
    return Markup('<path class="edge{}" marker-end="url(#arrow)" d="{}"/>').format(style, path)


def _back(source: Part, target: Part) -> Markup:
    """An arc above the boxes into an earlier one, or from a box into itself."""
    (x, y), (to, down), loop = source.corner, target.corner, source is target
    rise = 34.0 if loop else 30 + 22 * (x - to) / (WIDTH + ACROSS)
    start = (x + WIDTH / 2 + (14 if loop else -34), y)
    end = (to + WIDTH / 2 + (-14 if loop else 26 - (x - to) / 12), down - 2)
    above = y - 0.75 * rise - 5 if loop or x - to > WIDTH + ACROSS else y - 14  # a short arc has its word below it
    label = Markup('<text class="small" x="{:g}" y="{:g}">{}</text>').format(
        (start[0] + end[0]) / 2, above, LABELS[source.name, target.name]
    )
    return _curve(" back", start, y - rise, y - rise, end) + label


def _curve(style: str, start: Point, first: float, second: float, end: Point) -> Markup:
    path = f"M{start[0]:g} {start[1]:g}C{start[0]:g} {first:g} {end[0]:g} {second:g} {end[0]:g} {end[1]:g}"
    return _edge(path, style)


def _part_box(part: Part) -> Markup:
    """A kind of work: its name, its stages, their time and bytes; a link to its line in the table of costs."""
    x, y = part.corner
    lines = (part.count, f"{duration(part.seconds)} · {do_filesizeformat(part.bytes, True)}")
    texts = Markup().join(
        Markup('<text class="small" x="{:g}" y="{:g}">{}</text>').format(x + WIDTH / 2, y + 44 + 17 * at, line)
        for at, line in enumerate(lines)
    )
    return Markup(
        '<a href="#{}" class="kind-{}"><rect x="{:g}" y="{:g}" width="{}" height="{}" rx="9"/>'
        '<text class="name" x="{:g}" y="{:g}">{}</text>{}</a>'
    ).format(part.id, part.stages[0].kind, x, y, WIDTH, HEIGHT, x + WIDTH / 2, y + 23, part.name, texts)


def direct_inputs(stages: dict[str, Stage]) -> dict[str, list[str]]:
    """Key → its inputs, without those that are inputs of its other inputs: the dataset is above everything."""
    above: dict[str, set[str]] = {}
    direct: dict[str, list[str]] = {}
    for key, stage in stages.items():
        inputs = sorted(set(stage.upstream.values()))
        above[key] = set(inputs).union(*(above[other] for other in inputs))
        direct[key] = [own for own in inputs if not any(own in above[other] for other in inputs)]
    return direct


def layers(stages: dict[str, Stage], inputs: dict[str, list[str]]) -> list[list[str]]:
    """Keys by their longest way from a source; within a layer ordered by the mean place of their inputs."""
    depth: dict[str, int] = {}
    for key in stages:
        depth[key] = 1 + max((depth[other] for other in inputs[key]), default=-1)
    rows: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for key in stages:
        rows[depth[key]].append(key)
    place: dict[str, float] = {}
    for row in rows:
        middle = {key: sum(place[o] for o in inputs[key]) / max(1, len(inputs[key])) for key in row}
        row.sort(key=lambda key: (middle[key], key))
        place.update({key: at - (len(row) - 1) / 2 for at, key in enumerate(row)})
    return rows


def draw_graph(stages: dict[str, Stage]) -> Markup:
    """The graph: inputs above, each box a link to its stage; edges that follow from others are left out."""
    inputs = direct_inputs(stages)
    rows = layers(stages, inputs)
    width = 2 * MARGIN + max(len(row) for row in rows) * (STAGE_WIDTH + STAGE_ACROSS) - STAGE_ACROSS
    height = 2 * MARGIN + len(rows) * (STAGE_HEIGHT + DOWN) - DOWN
    corner: dict[str, Point] = {}
    for down, row in enumerate(rows):
        left = (width - len(row) * (STAGE_WIDTH + STAGE_ACROSS) + STAGE_ACROSS) / 2
        for at, key in enumerate(row):
            corner[key] = left + at * (STAGE_WIDTH + STAGE_ACROSS), MARGIN + down * (STAGE_HEIGHT + DOWN)
    edges = [_stage_edge(corner[other], corner[key]) for key in stages for other in inputs[key]]
    boxes = [_stage_box(stage, *corner[key]) for key, stage in stages.items()]
    return Markup(
        f'<svg class="dag" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="group" '
        f'aria-label="The graph of all stages">{"".join(edges)}{"".join(boxes)}</svg>'
    )


def _stage_edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x, y = start[0] + STAGE_WIDTH / 2, start[1] + STAGE_HEIGHT
    to, below = end[0] + STAGE_WIDTH / 2, end[1]
    bend = (below - y) / 2
    return f'<path class="edge" d="M{x:g} {y:g}C{x:g} {y + bend:g} {to:g} {below - bend:g} {to:g} {below:g}"/>'


def _stage_box(stage: Stage, x: float, y: float) -> Markup:
    """A stage: its name, its kind and how long it took."""
    name = stage.name if len(stage.name) <= LETTERS else f"{stage.name[: LETTERS - 1]}…"
    size = {"x": f"{x:g}", "y": f"{y:g}", "w": STAGE_WIDTH, "h": STAGE_HEIGHT, "middle": f"{x + STAGE_WIDTH / 2:g}"}
    return Markup(
        '<a href="#stage-{key}"><title>{key}</title><g class="kind-{kind}">'
        '<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8"/><text x="{middle}" y="{first:g}">{name}</text>'
        '<text class="small" x="{middle}" y="{second:g}">{kind} · {took}</text></g></a>'
    ).format(
        key=stage.key, kind=stage.kind, name=name, took=duration(stage.seconds), first=y + 19, second=y + 35, **size
    )
