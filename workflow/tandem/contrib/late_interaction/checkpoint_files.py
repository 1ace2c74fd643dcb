"""Describe checkpoints of late interaction by sentence-transformers, PyLate and Stanford's ColBERT from their files."""

import string
from pathlib import Path

from tandem.contrib.late_interaction.options import METADATA
from tandem.errors import UserError
from tandem.models.described import (
    Modules,
    check_dense,
    check_inputs,
    find_inputs_file,
    read_prompts,
    read_similarity,
    refuse_unknown,
)
from tandem.models.folders import LIBRARY, read_model_json, read_optional
from tandem.stages.base import Json

# the modules after the layers, in either order
_MASK_MODULES = (["MultiVectorMask"], ["MultiVectorMask", "Normalize"])
_SKIPPED_TOKENS = "tokens that are left out besides passages' punctuation"
# keys that name the tokens in front of texts
_MARKER_KEYS = {
    "query": ("query_prefix", "query_token_id"),
    "passage": ("document_prefix", "doc_token_id"),
}


def describe_token_vectors(folder: Path, modules: Modules | None) -> Json | None:
    """Return how a late-interaction checkpoint computes vectors, in the form of `describe_towers`; else None."""
    if modules is None:
        return _describe_stanford(folder) if is_stanford(folder) else None
    names = [name for name, _ in modules]
    if "MultiVectorMask" in names:
        return _describe_library(folder, modules)
    has_layers_alone = names[:2] == ["Transformer", "Dense"] and set(names[1:]) == {"Dense"}
    if has_layers_alone and read_markers(folder):
        return _describe_pylate(folder, modules)
    return None


def _describe_library(folder: Path, modules: Modules) -> Json:
    """Return how a MultiVectorEncoder computes vectors, read from its files.

    Its modules are layers that are applied to tokens' states, then a mask of the tokens that count, then normalization.
    """
    check_inputs(folder)
    listed = folder / "modules.json"
    names = [name for name, _ in modules]
    dense = [path for name, path in modules if name == "Dense"]
    behind = names[1 + len(dense) :]
    if (
        names[: 1 + len(dense)] != ["Transformer", *["Dense"] * len(dense)]
        or sorted(behind) not in _MASK_MODULES
    ):
        raise refuse_unknown(listed, f"the order {', '.join(names)}")
    mask_path = folder / dict(modules)["MultiVectorMask"] / "config.json"
    read = find_inputs_file(folder)
    mask = read_model_json(mask_path)
    config = read_optional(folder / LIBRARY)
    if mask.get("skiplist_tasks", ["document"]) != ["document"] or mask.get("keep_only_token_ids"):
        raise refuse_unknown(mask_path, _SKIPPED_TOKENS)
    expansion = read_optional(read).get("query_expansion") or {}
    if expansion.get("strategy", "fixed") != "fixed" or expansion.get("token"):
        raise refuse_unknown(read, "queries that are filled up otherwise than by [MASK]")
    read_similarity(folder, config, "maxsim")
    options: Json = {
        "query_tokens": expansion.get("length"),
        "attend": bool(expansion.get("attend")),
        "skip_punctuation": _has_no_punctuation(mask_path, mask.get("skiplist_words") or []),
    }
    prompts = read_prompts(folder / LIBRARY, config)
    return _describe_late_interaction(folder, dense, options, prompts, "Normalize" in names)


def _describe_late_interaction(
    folder: Path, dense: list[str], options: Json, prompts: dict[str, str], normalize: bool = True
) -> Json:
    """Return the description for these options of `representation: multi`.

    `dim` is read from the last of the layers in `dense`.
    """
    check_dense(folder, dense)
    dim = read_model_json(folder / dense[-1] / "config.json")["out_features"] if dense else None
    towers: Json = {
        "representation": {"type": "multi", "dim": dim, **options},
        "pooling": "cls",
        "normalize": normalize,
        "temperature": 1.0,
    }
    if prompts:
        towers["prompts"] = prompts
    if dense:
        towers["dense"] = dense
    return towers


def _has_no_punctuation(path: Path, words: list[str]) -> bool:
    """Return whether passages' punctuation has no vectors; `words` are those that the file at `path` leaves out."""
    if sorted(words) not in ([], sorted(string.punctuation)):
        raise refuse_unknown(path, _SKIPPED_TOKENS)
    return bool(words)


def read_markers(folder: Path) -> dict[str, str]:
    """Return the marker of each side that has one; PyLate and Stanford's code put it behind the first special token."""
    config = read_optional(folder / (METADATA if is_stanford(folder) else LIBRARY))
    markers = {}
    for side, keys in _MARKER_KEYS.items():
        values = [config[key] for key in keys if key in config]
        if values and values[0] is not None:
            markers[side] = str(values[0])
    return markers


def _describe_pylate(folder: Path, modules: Modules) -> Json:
    """Return how a PyLate model computes vectors: layers on tokens' states; `LIBRARY` states which tokens count."""
    check_inputs(folder)
    path = folder / LIBRARY
    config = read_optional(folder / LIBRARY)
    _require(path, config, "query_prefix", "document_prefix", "query_length")
    similarity = str(config.get("similarity_fn_name") or "maxsim")
    if similarity.lower() not in ("maxsim", "cosine"):
        raise refuse_unknown(path, f"the similarity {similarity}")
    if config.get("query_expansion"):
        raise refuse_unknown(path, "query_expansion beside PyLate's own keys")
    filled = config.get("do_query_expansion") is not False
    words = config.get("skiplist_words")
    if words is None:
        words = list(string.punctuation)
    options: Json = {
        "query_tokens": config["query_length"] if filled else None,
        "attend": filled and bool(config.get("attend_to_expansion_tokens")),
        "skip_punctuation": _has_no_punctuation(path, words),
    }
    texts = read_prompts(path, config)
    prompts = {}
    for side, marker in read_markers(folder).items():
        prompt = marker + texts.get(side, "").removeprefix(marker)
        if prompt:
            prompts[side] = prompt
    dense = [place for name, place in modules if name == "Dense"]
    return _describe_late_interaction(folder, dense, options, prompts)


def is_stanford(folder: Path) -> bool:
    """Return whether a folder is a checkpoint of Stanford's ColBERT, whose weights include the layer."""
    architectures = read_optional(folder / "config.json").get("architectures") or []
    return "HF_ColBERT" in architectures and not (folder / "modules.json").is_file()


def _describe_stanford(folder: Path) -> Json:
    """Return how a checkpoint of Stanford's ColBERT computes vectors, read from its metadata.

    The stage `encoder` puts its layer into `1_Dense/`.
    """
    path = folder / METADATA
    config = read_optional(folder / METADATA)
    _require(
        path, config, "query_token_id", "doc_token_id", "dim", "query_maxlen", "mask_punctuation"
    )
    for key, value in {"similarity": "cosine", "interaction": "colbert"}.items():
        if config.get(key, value) != value:
            raise refuse_unknown(path, f"the {key} {config[key]}")
    options: Json = {
        "dim": config["dim"],
        "query_tokens": config["query_maxlen"],
        "attend": bool(config.get("attend_to_mask_tokens")),
        "skip_punctuation": config["mask_punctuation"],
    }
    prompts = {side: f"{marker} " for side, marker in read_markers(folder).items()}
    return _describe_late_interaction(folder, [], options, prompts) | {"dense": ["1_Dense"]}


def _require(path: Path, config: Json, *keys: str) -> None:
    if missing := [key for key in keys if config.get(key) is None]:
        raise UserError(
            f"{path}: does not say {', '.join(missing)}; add what the model was trained with"
        )
