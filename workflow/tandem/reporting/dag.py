"""The stages as a picture: inline SVG, inputs above, each box a link to the stage's entry."""

from markupsafe import Markup, escape

from tandem.cluster.progress import duration
from tandem.store.lineage import Stage

WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 196, 44, 16, 34, 8
LETTERS = 25  # that fit into a box


def reduced(stages: dict[str, Stage]) -> dict[str, list[str]]:
    """Key → its inputs, without those that are inputs of its other inputs: the dataset is above everything."""
    above: dict[str, set[str]] = {}
    kept: dict[str, list[str]] = {}
    for key, stage in stages.items():
        inputs = sorted(set(stage.upstream.values()))
        above[key] = set(inputs).union(*(above[other] for other in inputs))
        kept[key] = [one for one in inputs if not any(one in above[other] for other in inputs)]
    return kept


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


def draw(stages: dict[str, Stage]) -> Markup:
    """The picture; edges that follow from others are left out."""
    inputs = reduced(stages)
    rows = layers(stages, inputs)
    width = 2 * MARGIN + max(len(row) for row in rows) * (WIDTH + ACROSS) - ACROSS
    height = 2 * MARGIN + len(rows) * (HEIGHT + DOWN) - DOWN
    corner = {}
    for down, row in enumerate(rows):
        left = (width - len(row) * (WIDTH + ACROSS) + ACROSS) / 2
        corner.update({k: (left + at * (WIDTH + ACROSS), MARGIN + down * (HEIGHT + DOWN)) for at, k in enumerate(row)})
    edges = [_edge(corner[other], corner[key]) for key in stages for other in inputs[key]]
    boxes = [_box(stage, *corner[key]) for key, stage in stages.items()]
    return Markup(
        f'<svg class="dag" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="group" '
        f'aria-label="The graph of all stages">{"".join(edges)}{"".join(boxes)}</svg>'
    )


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve from the foot of a box to the head of another."""
    x, y = start[0] + WIDTH / 2, start[1] + HEIGHT
    to, below = end[0] + WIDTH / 2, end[1]
    bend = (below - y) / 2
    return f'<path class="edge" d="M{x:g} {y:g}C{x:g} {y + bend:g} {to:g} {below - bend:g} {to:g} {below:g}"/>'


def _box(stage: Stage, x: float, y: float) -> Markup:
    """A stage: its name, its kind and how long it took."""
    name = stage.name if len(stage.name) <= LETTERS else f"{stage.name[: LETTERS - 1]}…"
    return Markup(
        '<a href="#stage-{key}"><title>{key}</title><g class="kind-{kind}">'
        '<rect x="{x:g}" y="{y:g}" width="{w}" height="{h}" rx="8"/>'
        '<text x="{middle:g}" y="{first:g}">{name}</text>'
        '<text class="small" x="{middle:g}" y="{second:g}">{kind} · {took}</text></g></a>'
    ).format(
        key=escape(stage.key),
        kind=escape(stage.kind),
        name=name,
        took=duration(stage.seconds),
        x=x,
        y=y,
        w=WIDTH,
        h=HEIGHT,
        middle=x + WIDTH / 2,
        first=y + 19,
        second=y + 35,
    )
