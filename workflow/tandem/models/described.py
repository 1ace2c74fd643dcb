"""How a text's vector is computed, by the files that stand beside an encoder's weights.

Those of sentence-transformers and, of late interaction, also of PyLate and Stanford's ColBERT. They are read without
these libraries, which take seconds to import; a test compares what is read with what sentence-transformers computes.
"""

import json
import re
import string
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from tandem.config.base import Pooling
from tandem.errors import UserError
from tandem.models.folders import (
    INPUTS,
    LIBRARY,
    METADATA,
    OPTIONS,
    SPARSE,
    find_encoder_files,
    find_static_queries,
    read_model_json,
    read_optional,
)
from tandem.stages.base import Json

# Files of before sentence-transformers 5 have a switch for each pooling; some have another name than the pooling.
_POOLING_SWITCH = "pooling_mode_"
_OLD_POOLINGS = {
    f"{pooling}_{what}": pooling for pooling in get_args(Pooling) for what in ("token", "tokens")
}
# the inverse of 20, the scale of cosines in sentence-transformers' MultipleNegativesRankingLoss
_TEMPERATURE = 0.05
# modules behind the layers, in either order
_MASK_MODULES = (["MultiVectorMask"], ["MultiVectorMask", "Normalize"])
_SKIPPED_TOKENS = "tokens that are left out besides passages' punctuation"
PASSAGE = ("document", "passage", "corpus")  # names of a passage's prompt, the usual one first
# The packages whose modules are computed here; no other code is.
_LIBRARY_PREFIX = re.compile(r"^(sentence_transformers|pylate)\..*\.")
# Of options of transformers those that change no vector.
_HARMLESS = {
    "add_pooling_layer",
    "attn_implementation",
    "device_map",
    "dtype",
    "low_cpu_mem_usage",
    "model_max_length",
    "padding_side",
    "torch_dtype",
    "trust_remote_code",
    "unpad_inputs",
    "use_cache",
    "use_fast",
    "use_safetensors",
    "use_memory_efficient_attention",
}
# How an encoder reads texts: the output of its forward pass that the modules behind it take.
_READ_OUTPUTS = [
    {"method": "forward", "method_output_name": output}
    for output in ("last_hidden_state", "logits")
]
# their keys
_MARKER_KEYS = {
    "query": ("query_prefix", "query_token_id"),
    "passage": ("document_prefix", "doc_token_id"),
}
HIDDEN_SIZE_KEYS = ("hidden_size", "dim", "d_model")  # names of the size of states, by family


def describe_towers(folder: Path) -> Json:
    """Return what the files say of `pooling`, `normalize`, `temperature`, `prompts`, `dense` and `dim`, if they exist.

    Of late interaction, and of sparse encoders, also `representation`. Vectors that are compared by the cosine, as
    sentence-transformers does where a model does not say how, are of length 1 here.

    Raises:
        UserError: files that are broken, or that describe what this project does not compute.
    """
    listed = folder / "modules.json"
    if not listed.is_file():
        return _describe_stanford(folder) if is_stanford(folder) else {}
    try:
        modules = [
            (_LIBRARY_PREFIX.sub("", str(row["type"])), str(row["path"]))
            for row in read_model_json(listed, list)
        ]
    except (KeyError, TypeError):
        raise UserError(
            f"{listed}: lists no modules with type and path; mend or remove it"
        ) from None
    names = [name for name, _ in modules]
    if "MultiVectorMask" in names:
        return _describe_token_vectors(folder, modules)
    if (
        names[:2] == ["Transformer", "Dense"]
        and set(names[1:]) == {"Dense"}
        and read_markers(folder)
    ):
        return _describe_pylate(folder, modules)
    if names in SPARSE:
        return _describe_sparse(folder, folder / modules[1][1] / "config.json")
    static = find_static_queries(folder) if names == ["Router"] else None
    if static:
        return _describe_sparse(folder, static.pooling / "config.json", queries="tokens")
    for name in names:
        if name not in ("Transformer", "Pooling", "Dense", "Normalize"):
            raise _refuse_unknown(listed, f"the module {name}")
    dense = [path for name, path in modules if name == "Dense"]
    unit = names[-1:] == ["Normalize"]
    if names != ["Transformer", "Pooling", *["Dense"] * len(dense), *["Normalize"] * unit]:
        raise _refuse_unknown(listed, f"the order {', '.join(names)}")
    _check_inputs(folder)
    check_dense(folder, dense)
    towers: Json = {"pooling": _read_pooling(folder / modules[1][1] / "config.json")}
    config = read_optional(folder / LIBRARY)
    similarity = _read_similarity(folder, config, "cosine", "dot")
    if unit and similarity == "dot" and config.get("truncate_dim"):
        raise _refuse_unknown(
            folder / LIBRARY, "truncate_dim behind Normalize with the similarity dot"
        )
    if unit or similarity == "cosine":
        towers |= {"normalize": True, "temperature": _TEMPERATURE}
    optional = {
        "prompts": _read_prompts(folder / LIBRARY, config),
        "dense": dense,
        "dim": config.get("truncate_dim"),
    }
    return towers | {key: value for key, value in optional.items() if value}


def _describe_token_vectors(folder: Path, modules: list[tuple[str, str]]) -> Json:
    """Return what the files of a MultiVectorEncoder say about its vectors.

    Its modules are layers of tokens' states, then a choice of the tokens that count, and scaling to length 1.
    """
    _check_inputs(folder)
    listed = folder / "modules.json"
    names = [name for name, _ in modules]
    dense = [path for name, path in modules if name == "Dense"]
    behind = names[1 + len(dense) :]
    if (
        names[: 1 + len(dense)] != ["Transformer", *["Dense"] * len(dense)]
        or sorted(behind) not in _MASK_MODULES
    ):
        raise _refuse_unknown(listed, f"the order {', '.join(names)}")
    mask_path = folder / dict(modules)["MultiVectorMask"] / "config.json"
    read = _find_inputs_file(folder)
    mask = read_model_json(mask_path)
    config = read_optional(folder / LIBRARY)
    if mask.get("skiplist_tasks", ["document"]) != ["document"] or mask.get("keep_only_token_ids"):
        raise _refuse_unknown(mask_path, _SKIPPED_TOKENS)
    expansion = read_optional(read).get("query_expansion") or {}
    if expansion.get("strategy", "fixed") != "fixed" or expansion.get("token"):
        raise _refuse_unknown(read, "queries that are filled up otherwise than by [MASK]")
    _read_similarity(folder, config, "maxsim")
    options: Json = {
        "query_tokens": expansion.get("length"),
        "attend": bool(expansion.get("attend")),
        "skip_punctuation": _has_no_punctuation(mask_path, mask.get("skiplist_words") or []),
    }
    prompts = _read_prompts(folder / LIBRARY, config)
    return _describe_late_interaction(folder, dense, options, prompts, "Normalize" in names)


def _read_similarity(folder: Path, config: Json, *allowed: str) -> str:
    """Return how vectors are compared: the first of what is allowed, where the library's file does not say it."""
    similarity: str = config.get("similarity_fn_name") or allowed[0]
    if similarity not in allowed:
        raise _refuse_unknown(folder / LIBRARY, f"the similarity {similarity}")
    return similarity


def _describe_late_interaction(
    folder: Path, dense: list[str], options: Json, prompts: dict[str, str], normalize: bool = True
) -> Json:
    """Return the same from options of `representation: multi`.

    Their `dim` is that of the last of the layers in `dense`.
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


def check_dense(folder: Path, dense: Iterable[str]) -> None:
    """Refuse linear layers of which one does not take the numbers that the encoder, or the layer before, makes."""
    config = read_optional(folder / "config.json")
    before = "the encoder"
    size = next((config[key] for key in HIDDEN_SIZE_KEYS if key in config), None)
    for name in dense:
        path = folder / name / "config.json"
        layer = read_model_json(path)
        for key in ("in_features", "out_features"):
            if not isinstance(layer.get(key), int):
                raise UserError(f"{path}: {key} is {layer.get(key)}; expected a whole number")
        if size not in (None, layer["in_features"]):
            problem = (
                f"in_features is {layer['in_features']}, expected {size}, which {before} makes"
            )
            raise UserError(f"{path}: {problem}; copy the layers that belong to the encoder")
        size = layer["out_features"]
        before = name


def _has_no_punctuation(path: Path, words: list[str]) -> bool:
    """Return whether passages' punctuation has no vectors, by the words that a file leaves out."""
    if sorted(words) not in ([], sorted(string.punctuation)):
        raise _refuse_unknown(path, _SKIPPED_TOKENS)
    return bool(words)


def read_markers(folder: Path) -> dict[str, str]:
    """Return the tokens behind the first special one in checkpoints of PyLate or Stanford's, by side; else empty."""
    config = read_optional(folder / (METADATA if is_stanford(folder) else LIBRARY))
    markers = {}
    for side, keys in _MARKER_KEYS.items():
        values = [config[key] for key in keys if key in config]
        if values and values[0] is not None:
            markers[side] = str(values[0])
    return markers


def _describe_pylate(folder: Path, modules: list[tuple[str, str]]) -> Json:
    """Return what PyLate's files say: layers of tokens' states; which tokens count stands in the library's file."""
    _check_inputs(folder)
    path = folder / LIBRARY
    config = read_optional(folder / LIBRARY)
    _require(path, config, "query_prefix", "document_prefix", "query_length")
    similarity = str(config.get("similarity_fn_name") or "maxsim")
    if similarity.lower() not in ("maxsim", "cosine"):
        raise _refuse_unknown(path, f"the similarity {similarity}")
    if config.get("query_expansion"):
        raise _refuse_unknown(path, "query_expansion beside PyLate's own keys")
    filled = config.get("do_query_expansion") is not False
    words = config.get("skiplist_words")
    if words is None:
        words = list(string.punctuation)
    options: Json = {
        "query_tokens": config["query_length"] if filled else None,
        "attend": filled and bool(config.get("attend_to_expansion_tokens")),
        "skip_punctuation": _has_no_punctuation(path, words),
    }
    texts = _read_prompts(path, config)
    prompts = {}
    for side, marker in read_markers(folder).items():
        prompt = marker + texts.get(side, "").removeprefix(marker)
        if prompt:
            prompts[side] = prompt
    dense = [place for name, place in modules if name == "Dense"]
    return _describe_late_interaction(folder, dense, options, prompts)


def is_stanford(folder: Path) -> bool:
    """Return whether a folder is a checkpoint of Stanford's ColBERT, whose layer stands among its weights."""
    architectures = read_optional(folder / "config.json").get("architectures") or []
    return "HF_ColBERT" in architectures and not (folder / "modules.json").is_file()


def _describe_stanford(folder: Path) -> Json:
    """Return what the metadata of a checkpoint of Stanford's ColBERT say.

    Stage `encoder` puts its layer into `1_Dense/`.
    """
    path = folder / METADATA
    config = read_optional(folder / METADATA)
    _require(
        path, config, "query_token_id", "doc_token_id", "dim", "query_maxlen", "mask_punctuation"
    )
    for key, value in {"similarity": "cosine", "interaction": "colbert"}.items():
        if config.get(key, value) != value:
            raise _refuse_unknown(path, f"the {key} {config[key]}")
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


def _describe_sparse(folder: Path, path: Path, **known: str) -> Json:
    """Return the same of a sparse encoder, with the options of its `representation`; `path` is its pooling's file."""
    config = read_model_json(path)
    library = read_optional(folder / LIBRARY)
    _read_similarity(folder, library, "dot")
    _check_inputs(find_encoder_files(folder))
    representation: Json = {"type": "sparse"}
    for key, theirs in {"pooling": "pooling_strategy", "activation": "activation_function"}.items():
        if theirs in config:
            representation[key] = config[theirs]
    representation |= known
    if library.get("max_active_dims"):
        representation["top"] = library["max_active_dims"]

    towers: Json = {
        "pooling": "max",
        "normalize": False,
        "temperature": 1.0,
        "representation": representation,
    }
    prompts = _read_prompts(folder / LIBRARY, library)
    if prompts:
        towers["prompts"] = prompts
    return towers


def _read_pooling(path: Path) -> str:
    """Return the pooling of `1_Pooling/config.json`: `pooling_mode`, in older files one switch for each."""
    config = read_model_json(path)
    switched = [
        key.removeprefix(_POOLING_SWITCH)
        for key, on in config.items()
        if key.startswith(_POOLING_SWITCH) and on
    ]
    modes = config.get("pooling_mode", [_OLD_POOLINGS.get(name, name) for name in switched])
    modes = modes if isinstance(modes, list) else [modes]
    if len(modes) != 1 or modes[0] not in get_args(Pooling):
        raise _refuse_unknown(path, f"the pooling {' + '.join(map(str, modes)) or 'none'}")
    if not config.get("include_prompt", True):
        raise _refuse_unknown(path, "a pooling without the prompt's tokens")
    return str(modes[0])


def find_passage_prompt(prompts: Json) -> str:
    """Return the name of the prompt of passages: `document`, even an empty one, else `passage` or `corpus`, else ''.

    E5's kind means it so; sentence-transformers adds an empty `document` there, and `encode_document` puts nothing.
    """
    return next((name for name in PASSAGE if name in prompts), "")


def _read_prompts(path: Path, config: Json) -> dict[str, str]:
    """Return each side's prompt: of queries as `encode_query` chooses it, of passages by `find_passage_prompt`."""
    prompts = config.get("prompts") or {}
    names = {"query": "query", "passage": find_passage_prompt(prompts)}
    sides = {side: prompts[name] for side, name in names.items() if prompts.get(name)}
    default = config.get("default_prompt_name")
    if default not in (None, "query", *PASSAGE) and prompts.get(default) and not sides:
        hint = "say prompts: {query: …, passage: …} in an entry of encoders; '' is none"
        raise UserError(
            f"{path}: has the prompt {default} for all texts, and none for queries or passages; {hint}"
        )
    return sides


def _find_inputs_file(folder: Path) -> Path:
    """Return the file about a model's inputs, by any of its names."""
    return next(
        (folder / name for name in INPUTS if read_optional(folder / name)), folder / INPUTS[0]
    )


def _check_inputs(folder: Path) -> None:
    if problem := find_foreign_inputs(folder):
        raise _refuse_unknown(*problem)


def find_foreign_inputs(folder: Path) -> tuple[Path, str] | None:
    """Return the file that asks for more than tokenizer and encoder do by themselves, and what it asks for.

    None where nothing is.
    """
    path = _find_inputs_file(folder)
    config = read_optional(path)
    if config.get("do_lower_case"):
        return path, "do_lower_case"
    modalities = config.get("modality_config") or {}
    if "message" in modalities:
        return path, "texts in a chat's template"
    text = modalities.get("text", _READ_OUTPUTS[0])
    if text not in _READ_OUTPUTS:
        return path, f"texts read by {json.dumps(text)}"
    for key in (*OPTIONS, "processing_kwargs"):
        for name, value in (config.get(key) or {}).items():
            if name not in _HARMLESS and value is not None:
                return path, f"{name} in {key}"
    return None


def _refuse_unknown(path: Path, what: str) -> UserError:
    hint = f"say pooling ({', '.join(get_args(Pooling))}) in an entry of encoders to compute vectors without it"
    return UserError(f"{path}: describes {what}, which is not computed here; {hint}")
