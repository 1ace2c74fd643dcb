"""The command `prefetch`: brings what a configuration needs from elsewhere, so that compute nodes need no network."""

import sys
from collections.abc import Iterable, Sequence

from tandem.data.download import readable
from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.progress import say
from tandem.provenance.elsewhere import Item, of_dataset
from tandem.provenance.hub import of_hub
from tandem.provenance.wanted import ROOT, of_all, read_told
from tandem.searching import words as command_line


def main(words: list[str]) -> int:
    """`prefetch [FILE.yaml …] [--configfile FILE.yaml …] [--config key=value …] [--dry-run]`.

    Brings what the stages of `rule all` read from elsewhere: the files of datasets into TANDEM_DATA, those of
    ir_datasets into IR_DATASETS_HOME, encoders at their revision into the hub's cache (HF_HOME). All three folders must
    be seen by the compute nodes. What is there already is left; what was begun is resumed. Of an encoder at a branch
    the commit is told, with the entry that pins it.

    Args:
        words: YAML files are laid upon config/config.yaml; `--dry-run` (`-n`) only tells what would be brought.
    """
    words = ["--dry-run" if word == "-n" else word for word in words]
    configurations, rest = read_told(words)
    told = command_line.read(rest, (), ("--dry-run",))
    if told.names:
        raise UserError(f"prefetch: {told.names[0]} is no YAML file; name configurations by FILE.yaml")
    for one in configurations:
        one.files += told.files
    items = {(item.kind, item.what): item for one in configurations for item in needed(FullPlan(one.config(), ROOT))}
    print(listed(list(items.values())))
    if "--dry-run" in told.switches:
        return 0
    return bring([item for item in items.values() if not item.here])


def needed(plan: FullPlan) -> list[Item]:
    """What the stages of `rule all` read from elsewhere, in the order in which they need it."""
    stages = of_all(plan)
    made: list[Item] = []
    for stage in stages:
        if stage.kind == "dataset":
            made += of_dataset(stage, plan.document()["datasets"])
        elif stage.kind == "encoder" and stage.values["source"] == "hub":
            made.append(of_hub(stage, stage.name in plan.settings.encoders))
    return made


def listed(items: Sequence[Item]) -> str:
    """A line for each item, and what is to be brought in all."""
    if not items:
        return "nothing is read from elsewhere"
    missing = [item for item in items if not item.here]
    lines = []
    for item in items:
        lines.append(f"{_state(item):>16}  {item.kind} {item.name}  {item.what}")
        lines += [f"{'':>16}  {item.note}"] if item.note else []
    unknown = sum(item.size is None for item in missing)
    more = f" and {unknown} of unknown size" if unknown else ""
    total = readable(sum(item.size or 0 for item in missing))
    return "\n".join([*lines, f"to be brought: {total}{more}" if missing else "all of it is here"])


def _state(item: Item) -> str:
    """`here`, or the size to be brought."""
    return "here" if item.here else "size unknown" if item.size is None else readable(item.size)


def bring(items: Iterable[Item]) -> int:
    """Fetch items one after the other; one that cannot be had does not keep the others from being fetched.

    Returns:
        The exit status: 1 if one is missing.
    """
    failed = 0
    for item in items:
        try:
            note = item.bring()
            say(f"{item.kind} {item.name}: {item.what} is here{f'; {note}' if note else ''}")
        except UserError as error:
            failed = 1
            print(f"tandem prefetch: {item.kind} {item.name}: {error}", file=sys.stderr)
    return failed
