"""The table of docs/estimates.md: what the configurations at the papers' sizes would cost on one H200."""

from collections.abc import Iterator

from tandem.cluster.progress import duration
from tandem.config.loading import gathered
from tandem.data.fetch import readable
from tandem.extras.estimate.estimate import ROOT, Cost, costs_of, new_setting, total, wanted
from tandem.extras.estimate.resources import Hardware
from tandem.extras.plan import FullPlan

CONFIGS = {"msmarco": "MS MARCO", "nq": "Natural Questions", "dureader": "DuReader-retrieval"}
SUMS = {"candidates": "drawing and denoising lists", "embeddings": "encoding", "rerank": "re-ranking"}
NAIVE = 0.13  # of the peak: a joint step with naive micro-batches, as measured
BEGIN = "<!-- written by `python -m tandem.extras.reference` -->"
END = "<!-- until here -->"
PAGE = "docs/estimates.md"


def table() -> str:
    """The table as Markdown, and the joint training's time where a naive loop computes it."""
    head = ["| collection | what | training | operations | device time |", "|---|---|--:|--:|--:|"]
    machine = Hardware.load(ROOT / "config/hardware", "h200")
    rows = [row for name in CONFIGS for row in _rows(name, machine)]
    return "\n".join([*head, *rows])


def page() -> str:
    """The whole page, with the table as it is calculated now."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _rows(name: str, machine: Hardware) -> Iterator[str]:
    """The rows of one configuration."""
    plan = FullPlan(gathered([ROOT / f"config/{name}.yaml"], ROOT), ROOT)
    setting = new_setting(plan.settings, machine)
    costs = costs_of(wanted(plan), setting, machine)
    for stage, cost in costs.items():
        if stage.kind == "model":
            yield _row(name, f"`{stage.name}`", cost)
    for kind, what in SUMS.items():
        yield _row(name, what, total(cost for stage, cost in costs.items() if stage.kind == kind))
    whole = total(costs.values())
    memory, disk = readable(int(whole.memory)), readable(int(whole.disk))
    yield _row(name, f"**all** (largest process {memory}, disk {disk})", whole)
    joint = next(cost for stage, cost in costs.items() if (stage.kind, stage.name) == ("model", "rocketqav2"))
    slow = joint.operations / (machine.peak * 1e12 * NAIVE)
    yield f"| {CONFIGS[name]} | `rocketqav2` at {NAIVE} of the peak, a naive loop's | | | {duration(slow)} |"


def _row(name: str, what: str, cost: Cost) -> str:
    steps = "" if cost.steps is None else f"{cost.steps:,} steps"
    return f"| {CONFIGS[name]} | {what} | {steps} | {cost.operations / 1e15:,.0f} PFLOP | {duration(cost.seconds)} |"
