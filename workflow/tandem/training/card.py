"""The card of a trained model, README.md in its folders: recipe, data, numbers and lineage, from artifacts alone.

No time and no machine's name stands in it: the same training writes the same bytes.
"""

import json
from collections.abc import Callable, Iterator
from inspect import getdoc
from pathlib import Path
from typing import Any

from tandem.artifact import Artifact, Job, open_artifact, provenance, write_text
from tandem.models.saving import Lengths, cross_usage, dual_usage, folders, front_matter
from tandem.models.tokens import Template
from tandem.training.checkpoints import State
from tandem.training.losses import DISTILLATIONS, SUPERVISION

NAMES = {"dual": "dual encoder", "cross": "cross-encoder"}


def write_card(folder: Path, job: Job, tokens: Artifact, state: State, lists: int) -> None:
    """Write the card into every loadable folder of a saved part.

    Args:
        folder: `dual/` or `cross/` of the model being written.
        tokens: the token ids it was trained on.
        state: of the finished training.
        lists: number of training lists.
    """
    part = folder.name
    encoder = origin(job, part)
    base = encoder.params.get("name") if encoder.params.get("source") == "hub" else None
    shape = json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
    usage = {"dual": dual_usage, "cross": cross_usage}[part](shape, _lengths(tokens))
    licence = encoder.manifest["execution"].get("licence")
    sections = [
        f"{front_matter(part, base, licence)}\n# {job.key}: {NAMES[part]}\n\nTrained by Tandem from "
        f"{base or encoder.key}. The paths below are relative to the artifact's folder.",
        f"## How to load\n\n{usage}",
        f"## Recipe\n\n{_losses(job.params)}\n\n{_table('parameter', 'value', _flat(job.params))}",
        f"## Data\n\n{_data(job, tokens, lists)}",
        f"## Numbers\n\n{_numbers(job, state)}",
        f"## Lineage\n\n{_lineage(job, encoder)}",
    ]
    for place in folders(folder):
        write_text(place / "README.md", "\n\n".join(sections) + "\n")


def origin(job: Job, part: str) -> Artifact:
    """Where a part's weights began: the first of the artifacts that each was made from another."""
    roles = ("start", "retriever" if part == "dual" else "reranker", "checkpoint.1", "encoder")
    upstream = {role: str(artifact.folder) for role, artifact in job.inputs.items()}
    found = None
    while role := next((role for role in roles if role in upstream), None):
        found = open_artifact(Path(upstream[role]), verify=False)
        upstream = found.upstream
    if found is None:
        raise ValueError(f"{job.key} starts from nothing")
    return found


def _lengths(tokens: Artifact) -> Lengths:
    """The longest inputs of the token ids."""
    single, pair = Template.from_json(json.loads(tokens.path("meta.json").read_text())["template"]).extra
    return Lengths(tokens.params["query_length"], tokens.params["passage_length"], single, pair)


def _losses(params: dict[str, Any]) -> str:
    """The losses by name, each with what its function says of itself: equation and source."""
    train = params["train"]
    named: list[tuple[str, Callable[..., Any]]] = []
    if params["objective"] == "joint":
        named.append((train["semantics"], DISTILLATIONS[train["semantics"]]))
        if train["teacher"] != "static":
            named.append((train["supervision"], SUPERVISION[train["supervision"]]))
    else:
        named.append((train.get("loss", "listwise"), SUPERVISION[train.get("loss", "listwise")]))
        if distil := train.get("distil"):
            named.append((distil["loss"], DISTILLATIONS[distil["loss"]]))
    told = [f"- `{name}`: {' '.join(_head(getdoc(function) or '').split())}" for name, function in named]
    return "\n".join([f"Objective `{params['objective']}`. Losses:", "", *told])


def _head(text: str) -> str:
    """A docstring without its arguments and what follows."""
    return text.split("\n\nArgs")[0]


def _data(job: Job, tokens: Artifact, lists: int) -> str:
    """Which collection, whose licence, how many lists, and where their negatives come from."""
    dataset, candidates = job.inputs["dataset"], job.inputs["candidates"]
    licence = dataset.manifest["execution"].get("licence") or "not told"
    rows: list[tuple[str, Any]] = [
        ("dataset", dataset.key),
        ("its licence", licence),
        ("passages", tokens.manifest["passages"]),
        ("training lists", lists),
        ("negatives from", Path(candidates.upstream.get("run", candidates.folder)).name),
        *((f"negatives: {name}", value) for name, value in _flat(candidates.params)),
    ]
    rows += [(role, Path(at).name) for role, at in sorted(candidates.upstream.items()) if role.startswith("judge.")]
    if teacher := job.inputs.get("teacher"):
        rows.append(("scores to learn from", teacher.key))
    return _table("what", "value", rows)


def _numbers(job: Job, state: State) -> str:
    """What the training itself measured."""
    last = {name: value for step, name, value in state.log if step == state.step and name != "tokens_per_second"}
    rows: list[tuple[str, Any]] = [("steps", state.step), *((f"last {name}", f"{v:.6g}") for name, v in last.items())]
    if state.best:
        rows.append(("best validation", f"{state.best[0]:.6g} at step {state.best[1]}"))
    validation = job.inputs.get("validation")
    rows += [("validation lists from", validation.key)] if validation else []
    where = "Scores on test queries are computed after this card: see the tables of the report, by the model's name."
    return f"{_table('measured', 'value', rows)}\n\n{where}"


def _lineage(job: Job, encoder: Artifact) -> str:
    """The stages this one was made from, the commit, and the libraries."""
    made = provenance()
    rows: list[tuple[str, Any]] = [(role, artifact.key) for role, artifact in sorted(job.inputs.items())]
    rows.append(("encoder", encoder.key))
    if weights := encoder.manifest.get("weights_sha256"):
        rows.append(("its weights' sha256", weights))
    rows.append(("commit", f"{made['commit']}{' with changes' if made['dirty'] else ''}"))
    rows += [(f"library {name}", version) for name, version in made["libraries"].items()]
    return _table("from", "key", rows)


def _flat(params: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every parameter, in order."""
    for name, value in sorted(params.items()):
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value)


def _table(left: str, right: str, rows: Any) -> str:
    """A Markdown table of two columns."""
    return "\n".join([f"| {left} | {right} |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
