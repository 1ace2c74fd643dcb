"""Check that a job's inputs fit together: one dataset, one tokenizer, a model with the part that is needed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.data.collection import CORPUS
from tandem.errors import UserError
from tandem.models.hub import hash_tokenizer
from tandem.stages import declaration
from tandem.stages.base import Json
from tandem.stages.training import TokensParams
from tandem.store.artifact import NOTES, Artifact, open_artifact
from tandem.store.job import Job


def require_dataset(job: Job[Any], *roles: str, of: str = "dataset") -> None:
    """Refuse inputs that were made from another dataset than the input `of`."""
    expected = job.inputs[of].key
    for role in roles:
        dataset = Path(job.inputs[role].upstream["dataset"]).name
        if dataset != expected:
            folder = job.inputs[role].folder
            raise UserError(
                f"{job.kind}: {role} {folder} was made from the dataset {dataset}; expected {expected}"
            )


def require_passages(job: Job[Any], *roles: str) -> None:
    """Refuse inputs whose passages are not those of the input `dataset`; another dataset may have the same passages."""
    own = job.inputs["dataset"]
    for role in roles:
        folder = Path(job.inputs[role].upstream["dataset"])
        if folder.name == own.key:
            continue
        other = open_artifact(folder, verify=False)
        if other.manifest.checksums[CORPUS] != own.manifest.checksums[CORPUS]:
            problem = f"{role} {job.inputs[role].folder} was made from the dataset {other.key}"
            raise UserError(
                f"{job.kind}: {problem}, whose passages are others than those of {own.key}"
            )


def require_one_encoding(job: Job[Any], passages: str, queries: str) -> None:
    """Refuse passages and queries that were encoded by different models, or tokenised in different ways."""
    sides = (job.inputs[passages].upstream, job.inputs[queries].upstream)
    for role in ("model", "tokens"):
        of_passages, of_queries = (Path(side[role]) for side in sides)
        if of_passages.name == of_queries.name:
            continue
        if role == "tokens" and _describe_tokens(of_passages) == _describe_tokens(of_queries):
            continue  # passages and queries are of two datasets, tokenised in the same way
        raise UserError(
            f"{job.kind}: passages were embedded with the {role} {of_passages.name}, queries with {of_queries.name}"
        )


def _describe_tokens(folder: Path) -> tuple[Json, str]:
    """Return how token ids were made: the parameters of their stage, and the encoder whose tokenizer was used."""
    tokens = open_artifact(folder, verify=False)
    return tokens.params, Path(tokens.upstream["encoder"]).name


def require_run_depth(job: Job[Any], depth: int) -> None:
    """Refuse a depth that is larger than that of the input `run`."""
    run = job.inputs["run"]
    if declaration(run.kind).scoring.of == "top":
        return  # `depth` of a re-ranked run counts what was re-ranked; its lists are as long as the first stage's
    deepest = run.params["depth"]
    if depth > deepest:
        raise UserError(f"{job.kind}: depth is {depth}, but {run.folder} goes only {deepest} deep")


def require_part(model: Artifact, part: str) -> Path:
    """Return the folder of a model's dual encoder (`dual`) or cross-encoder (`cross`); a `UserError` if it has none."""
    folder = model.folder / part
    if not folder.is_dir():
        names = {"dual": "dual encoder", "cross": "cross-encoder"}
        has = (
            " and ".join(names[name] for name in names if (model.folder / name).is_dir())
            or "no encoder"
        )
        raise UserError(f"{model.folder}: has no {names[part]}; it holds: {has}")
    return folder


def list_part_files(model: Artifact, part: str) -> dict[str, str]:
    """Return the checksums of the files that determine what a model's part (`dual`, `cross`) computes.

    Notes on the training are left out: they differ when the same weights are trained again, by time and commit.
    """
    return {
        name: checksum
        for name, checksum in model.manifest.checksums.items()
        if f"{part}/" in name and Path(name).name not in NOTES
    }


def require_prompts(
    prompts: Mapping[str, str], markers: Mapping[str, str], tokens: Artifact
) -> None:
    """Refuse token ids whose texts begin with prompts or markers other than the model's."""
    params = tokens.params_as(TokensParams)
    for what, stored, needed in (
        ("prompts", params.prompts, prompts),
        ("markers", params.markers, markers),
    ):
        if stored != needed:
            raise UserError(
                f"{tokens.folder}: was made with the {what} {stored}, but the model has {dict(needed)}"
            )


def require_tokenizer(folder: Path, tokens: Artifact) -> None:
    """Refuse a model whose tokenizer is not the one that made the token ids."""
    expected = json.loads(tokens.path("meta.json").read_text())["tokenizer"]
    path = folder / "tokenizer.json"
    if hash_tokenizer(path.read_text(encoding="utf-8")) != expected:
        raise UserError(
            f"{path}: not the tokenizer that made {tokens.folder}; use one encoder for both"
        )


def require_numbers(values: object, count: int, where: str) -> NDArray[np.float64]:
    """Return the values that a method, perhaps a plugin's, has computed for `count` items, as numbers.

    Raises:
        UserError: there is not one finite number for each.
    """
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.shape != (count,) or not (np.abs(numbers) <= np.finfo(np.float32).max).all():
        raise UserError(f"{where}: must give a number for each of {count:,}")
    return numbers
