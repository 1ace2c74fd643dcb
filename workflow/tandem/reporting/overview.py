"""The run as the paper would draw it: a box for each kind of work, with how many stages, how long and how large."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jinja2.filters import do_filesizeformat
from markupsafe import Markup

from tandem.cluster.progress import duration
from tandem.store.lineage import Stage

WIDTH, HEIGHT, ACROSS, MIDDLE, BELOW = 144, 76, 20, 118, 268
# Part: its kinds and its column; what a run always passes through stands in one line, what may join it below.
PARTS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "Collection": (0, MIDDLE, ("dataset", "given", "imported")),
    "Encoder": (0, BELOW, ("encoder", "vocabulary", "pretrain", "tokens")),
    "Sparse search": (1, MIDDLE, ("lucene", "bm25s", "bm25", "tune_bm25")),
    "Training lists": (2, MIDDLE, ("candidates", "teacher")),
    "Training": (3, MIDDLE, ("model", "checkpoint")),
    "Encoding": (4, MIDDLE, ("embeddings", "index")),
    "Retrieval": (5, MIDDLE, ("retrieve", "ann", "tradeoffs")),
    "Fusion": (5, BELOW, ("fuse", "tune_fusion")),
    "Re-ranking": (6, MIDDLE, ("rerank", "rerank_windows", "aggregate")),
    "Audits": (6, BELOW, ("noise", "similar_queries", "false_negatives", "relabel")),
    "Scores": (7, MIDDLE, ()),  # and whatever else there is
}
OF_KIND = {kind: part for part, (_, _, kinds) in PARTS.items() for kind in kinds}
SAID = {
    ("Retrieval", "Training lists"): "negatives of the next model",
    ("Training", "Training lists"): "denoising",
    ("Training", "Training"): "starts from",
}
EVERYWHERE = ("Collection", "Encoder")  # inputs of nearly everything: only where nothing else leads

Point = tuple[float, float]


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
        return sum(map(written, self.stages))

    @property
    def count(self) -> str:
        """`3 stages`."""
        return f"{len(self.stages)} stage{'s' if len(self.stages) > 1 else ''}"

    @property
    def id(self) -> str:
        """Of its line in the table of costs."""
        return f"part-{self.name.lower().replace(' ', '-')}"

    @property
    def corner(self) -> tuple[float, float]:
        """Left and top of its box."""
        column, down, _ = PARTS[self.name]
        return 8 + column * (WIDTH + ACROSS), down


def written(stage: Stage) -> int:
    """Bytes of its files."""
    return stage.artifact.manifest.bytes


def boxes(stages: Iterable[Stage]) -> dict[str, Part]:
    """The boxes that have stages, in the order of PARTS."""
    listed = list(stages)
    of = {stage.key: OF_KIND.get(stage.kind, "Scores") for stage in listed}
    made = {name: Part(name) for name in PARTS if name in of.values()}
    for stage in listed:
        part = made[of[stage.key]]
        part.stages.append(stage)
        for source in {of[key] for key in stage.upstream.values()}:
            part.inputs[source] = part.inputs.get(source, 0) + 1
    return made


def overview(parts: dict[str, Part]) -> Markup:
    """The drawing: from left to right what is made of what, above it what goes back into the next model."""
    edges = [_edge(parts[source], part) for part in parts.values() for source in _shown(part)]
    drawn = Markup().join([*edges, *(_box(part) for part in parts.values())])
    width, low = 16 + 8 * (WIDTH + ACROSS) - ACROSS, max(part.corner[1] for part in parts.values())
    return Markup(
        '<svg class="overview" viewBox="0 0 {0} {1}" role="group" aria-label="The run at a glance"><defs>'
        '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>{2}</svg>'
    ).format(width, low + HEIGHT + (8 if low == BELOW else 62), drawn)


def _shown(part: Part) -> Sequence[str]:
    """The inputs that are drawn: the collection and the encoder go nearly everywhere."""
    own = [source for source in part.inputs if source != part.name or (source, source) in SAID]
    told = [one for one in own if one not in EVERYWHERE or (one, part.name) == ("Encoder", "Training")]
    return told or own[:1]


def _edge(source: Part, target: Part) -> Markup:
    """A line to the right, an arc below what it passes over, or an arc back above the boxes with its meaning."""
    if (source.name, target.name) in SAID:
        return _back(source, target)
    (x, y), (to, down) = source.corner, target.corner
    if y == down and to - x > WIDTH + ACROSS:
        sag = y + HEIGHT + 20 + 10 * (to - x) / (WIDTH + ACROSS)
        return _curve("", (x + WIDTH / 2 + 20, y + HEIGHT), sag, sag, (to + WIDTH / 2 - 20, down + HEIGHT + 2))
    if down < y:  # from below the line of boxes: to the right, then up
        return _bent((x + WIDTH, y + HEIGHT / 2), (to + WIDTH / 2 - 40, down + HEIGHT + 2))
    if to <= x:  # into the box below it
        return _line((x + WIDTH / 2, y + HEIGHT), (to + WIDTH / 2, down - 2))
    if down > y:  # into a box below the line: down, then to the right
        return _bent_down((x + WIDTH / 2 + 34, y + HEIGHT), (to - 2, down + HEIGHT - 14))
    return _line((x + WIDTH, y + HEIGHT / 2), (to - 2, down + HEIGHT / 2))


def _back(source: Part, target: Part) -> Markup:
    """An arc above the boxes into an earlier one, or from a box into itself."""
    (x, y), (to, down), loop = source.corner, target.corner, source is target
    rise = 34.0 if loop else 30 + 22 * (x - to) / (WIDTH + ACROSS)
    start = (x + WIDTH / 2 + (14 if loop else -34), y)
    end = (to + WIDTH / 2 + (-14 if loop else 26 - (x - to) / 12), down - 2)
    above = y - 0.75 * rise - 5 if loop or x - to > WIDTH + ACROSS else y - 14  # a short arc has its word below it
    label = Markup('<text class="small" x="{:g}" y="{:g}">{}</text>').format(
        (start[0] + end[0]) / 2, above, SAID[source.name, target.name]
    )
    return _curve(" back", start, y - rise, y - rise, end) + label


def _curve(style: str, start: Point, first: float, second: float, end: Point) -> Markup:
    """A curve that leaves and arrives upright; `first` and `second` are the heights it is drawn towards."""
    path = f"M{start[0]:g} {start[1]:g}C{start[0]:g} {first:g} {end[0]:g} {second:g} {end[0]:g} {end[1]:g}"
    return Markup('<path class="edge{}" marker-end="url(#arrow)" d="{}"/>').format(style, path)


def _bent(start: Point, end: Point) -> Markup:
    """A line to the right and then up, with an arrow."""
    path = f"M{start[0]:g} {start[1]:g}H{end[0] - 12:g}Q{end[0]:g} {start[1]:g} {end[0]:g} {start[1] - 12:g}V{end[1]:g}"
    return Markup('<path class="edge" marker-end="url(#arrow)" d="{}"/>').format(path)


def _bent_down(start: Point, end: Point) -> Markup:
    """A line down and then to the right, with an arrow."""
    path = f"M{start[0]:g} {start[1]:g}V{end[1] - 12:g}Q{start[0]:g} {end[1]:g} {start[0] + 12:g} {end[1]:g}H{end[0]:g}"
    return Markup('<path class="edge" marker-end="url(#arrow)" d="{}"/>').format(path)


def _line(start: Point, end: Point) -> Markup:
    """A straight line with an arrow."""
    path = f"M{start[0]:g} {start[1]:g}L{end[0]:g} {end[1]:g}"
    return Markup('<path class="edge" marker-end="url(#arrow)" d="{}"/>').format(path)


def _box(part: Part) -> Markup:
    """A kind of work: its name, its stages, their time and bytes; a link to its line in the table of costs."""
    x, y = part.corner
    lines = (part.count, f"{duration(part.seconds)} · {do_filesizeformat(part.bytes, True)}")
    told = Markup().join(
        Markup('<text class="small" x="{:g}" y="{:g}">{}</text>').format(x + WIDTH / 2, y + 44 + 17 * at, line)
        for at, line in enumerate(lines)
    )
    return Markup(
        '<a href="#{}" class="kind-{}"><rect x="{:g}" y="{:g}" width="{}" height="{}" rx="9"/>'
        '<text class="name" x="{:g}" y="{:g}">{}</text>{}</a>'
    ).format(part.id, part.stages[0].kind, x, y, WIDTH, HEIGHT, x + WIDTH / 2, y + 23, part.name, told)
