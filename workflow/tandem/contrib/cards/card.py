"""The card of a trained model, README.md in its folders: recipe, data, numbers and lineage, from artifacts only.

It contains neither a time nor a machine's name, so that the same training writes the same bytes.
"""

import json
from collections.abc import Callable, Iterable
from functools import partial
from inspect import getdoc
from pathlib import Path
from typing import Any

from tandem.config.losses import OWN_LOSSES, distillation, supervision
from tandem.config.representations import representation
from tandem.config.training import JointTrain
from tandem.extras.usage import (
    InputLengths,
    describe_cross_usage,
    describe_dual_usage,
    describe_library_usage,
    describe_tandem_usage,
    fit_auto_class,
    list_saved_folders,
    usage_of_form,
    usage_of_tokens,
    write_front_matter,
)
from tandem.extras.validation.validation_points import find_chosen, read_points
from tandem.models.cross import read_cross, read_cross_form
from tandem.models.folders import read_optional
from tandem.models.heads import CLASSIFIER_SUFFIX, find_relevant_label, read_architecture
from tandem.models.saving import DualShape
from tandem.models.tokens import Tokens
from tandem.stages.base import Json, flatten
from tandem.stages.training import ModelParams, TokensParams
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.environment import provenance
from tandem.store.files import write_text
from tandem.store.job import Job, load, plain
from tandem.training.checkpoints import State

_PART_NAMES = {"dual": "dual encoder", "cross": "cross-encoder"}
# representation → usage of models that sentence-transformers can load, if the representation's class has no `usage`
_USAGES: dict[str, Callable[[DualShape, InputLengths], str]] = {
    "single": describe_dual_usage,
    "sparse": partial(describe_library_usage, kind="SparseEncoder"),
}


def write_card(
    folder: Path, job: Job[ModelParams], tokens: Artifact, state: State, lists: int, sizes: Json
) -> None:
    """Write the card into every loadable folder of a saved part; `sizes` are the sizes derived from the data."""
    part = folder.name
    encoder = _find_origin(job, part)
    base = encoder.params.get("name") if encoder.params.get("source") == "hub" else None
    params = tokens.params_as(TokensParams)
    template = Tokens.open(tokens).template
    lengths = InputLengths(
        params.query_length,
        params.passage_length,
        *template.extra,
        template.longest_pair,
        template.titled,
    )
    if part == "dual":
        shape = DualShape.read(folder)
        if tokens.kind in usage_of_tokens:
            usage = usage_of_tokens[tokens.kind](shape)
        else:
            own = representation[shape.type].usage or _USAGES.get(shape.type, describe_tandem_usage)
            usage = own(shape, lengths)
    elif form := read_cross_form(folder):
        usage = usage_of_form[form]()
    else:
        usage = describe_cross_usage(read_cross(folder), lengths, _read_saved_score(folder))
    licence = encoder.manifest.execution.get("licence")
    recipe = plain(job.params)
    recipe["train"] |= sizes
    sections = [
        f"{write_front_matter(part, base, licence)}\n# {job.key}: {_PART_NAMES[part]}\n\nTrained by Tandem from "
        f"{base or encoder.key}. The paths below are relative to the artifact's folder.",
        f"## How to load\n\n{fit_auto_class(usage, list_saved_folders(folder)[-1])}",
        f"## Recipe\n\n{_describe_losses(job)}\n\n{_write_table('parameter', 'value', _sort_params(recipe))}",
        f"## Data\n\n{_describe_data(job, tokens, lists)}",
        f"## Numbers\n\n{_describe_numbers(job, state)}",
        f"## Lineage\n\n{_describe_lineage(job, encoder)}",
    ]
    for place in list_saved_folders(folder):
        write_text(place / "README.md", "\n\n".join(sections) + "\n")


def _read_saved_score(folder: Path) -> str | None:
    """Return the score as a Python expression of `logits`, shape (pairs, labels).

    None if the saved architecture is not a `…ForSequenceClassification`.
    """
    path = folder / "config.json"
    config = read_optional(path)
    if not read_architecture(config).endswith(CLASSIFIER_SUFFIX):
        return None
    relevant = find_relevant_label(config, path)
    return (
        "logits[:, 0]" if relevant is None else f"logits[:, {relevant}] - logits[:, {1 - relevant}]"
    )


def _find_origin(job: Job[ModelParams], part: str) -> Artifact:
    """Return the artifact from which a part's weights originally come, across any number of trainings."""
    roles = ("start", "retriever" if part == "dual" else "reranker", "checkpoint.1", "encoder")
    upstream = {role: str(artifact.folder) for role, artifact in job.inputs.items()}
    artifact = None
    while known := [role for role in roles if role in upstream]:
        artifact = open_artifact(Path(upstream[known[0]]), verify=False)
        upstream = artifact.upstream
    if artifact is None:
        raise ValueError(f"{job.key} starts from nothing")
    return artifact


def _describe_losses(job: Job[ModelParams]) -> str:
    """Return the losses by name, each with the beginning of its function's docstring: equation and source."""
    params = job.params
    train = job.params.train
    losses: list[tuple[str, Callable[..., Any]]] = []
    if isinstance(train, JointTrain):
        losses.append((train.semantics, distillation[train.semantics]))
        if train.teacher != "static":
            losses.append((train.supervision, supervision[train.supervision]))
    else:
        if not train.distil or train.distil.supervision:
            own = OWN_LOSSES.get(train.loss)
            losses.append((train.loss, load(own.objective) if own else supervision[train.loss]))
        if train.distil and "teacher" in job.inputs:
            losses.append((train.distil.loss, distillation[train.distil.loss]))
        if train.distil and train.distil.in_batch:
            losses.append((train.distil.in_batch.loss, distillation[train.distil.in_batch.loss]))
    # a supervised loss and a distillation may share one
    names = {loss: name for name, loss in losses}
    heads = {loss: " ".join((getdoc(loss) or "").split("\n\nArgs")[0].split()) for loss in names}
    lines = [f"- `{names[loss]}`: {head}" for loss, head in heads.items()]
    return "\n".join([f"Objective `{params.objective}`. Losses:", "", *lines])


def _describe_data(job: Job[ModelParams], tokens: Artifact, lists: int) -> str:
    """Return the card's table of data: collection, licence, number of lists, and the source of their negatives."""
    dataset = job.inputs["dataset"]
    candidates = job.inputs["candidates"]
    sources = [
        Path(each.upstream.get("run", each.folder)).name
        for each in (candidates, *job.many("candidates"))
    ]
    rows: list[tuple[str, Any]] = [
        ("dataset", dataset.key),
        ("its licence", dataset.manifest.execution.get("licence") or "unknown"),
        ("passages", tokens.manifest.facts["passages"]),
        ("training lists", lists),
        ("negatives from", sources[0]),
        *((f"negatives: {name}", value) for name, value in _sort_params(candidates.params)),
        *(("negatives also from", source) for source in sources[1:]),
    ]
    rows += [
        (role, Path(at).name)
        for role, at in sorted(candidates.upstream.items())
        if role.startswith("judge.")
    ]
    for role, what in (
        ("teacher", "scores to learn from"),
        ("in_batch_teacher", "teacher in batch"),
    ):
        if role in job.inputs:
            rows.append((what, job.inputs[role].key))
    return _write_table("what", "value", rows)


def _describe_numbers(job: Job[ModelParams], state: State) -> str:
    """Return the card's table of numbers that the training measured."""
    last = {
        name: value
        for step, name, value in state.log
        if step == state.step and name != "tokens_per_second"
    }
    rows: list[tuple[str, Any]] = [("steps", state.step)]
    rows += [(f"last {name}", f"{value:.6g}") for name, value in last.items()]
    chosen = find_chosen(job.params.train, read_points(state.log))
    if chosen:
        rows.append(("best validation", f"{chosen.mean:.6g} at step {chosen.step}"))
    if "validation" in job.inputs:
        rows.append(("validation lists from", job.inputs["validation"].key))
    where = "Scores on test queries are computed after this card: see the tables of the report, by the model's name."
    return f"{_write_table('measured', 'value', rows)}\n\n{where}"


def _describe_lineage(job: Job[ModelParams], encoder: Artifact) -> str:
    """Return the stage's inputs, the commit, and the libraries."""
    libraries, commit, dirty = provenance()
    rows: list[tuple[str, Any]] = [
        (role, artifact.key) for role, artifact in sorted(job.inputs.items())
    ]
    rows.append(("encoder", encoder.key))
    weights = encoder.manifest.facts.get("weights_sha256")
    if weights:
        rows.append(("its weights' sha256", weights))
    rows.append(("commit", f"{commit}{' with changes' if dirty else ''}"))
    rows += [(f"library {name}", version) for name, version in libraries.items()]
    return _write_table("from", "key", rows)


def _split_path(item: tuple[str, object]) -> list[str]:
    """Return the parts of a dotted path, a key that sorts parameters section by section."""
    return item[0].split(".")


def _sort_params(params: Json) -> list[tuple[str, str]]:
    """Return dotted path and value of every parameter."""
    return [
        (path, json.dumps(value))
        for path, value in sorted(flatten(params).items(), key=_split_path)
    ]


def _write_table(left: str, right: str, rows: Iterable[tuple[str, Any]]) -> str:
    """Return a Markdown table of two columns."""
    lines = [f"| {left} | {right} |", "|---|---|"]
    for row in rows:
        name, value = (str(cell).replace("|", r"\|") for cell in row)
        lines.append(f"| {name} | {value} |")
    return "\n".join(lines)
