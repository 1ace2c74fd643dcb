"""Read how a text's vector is computed from the files next to an encoder's weights.

These are the files of sentence-transformers for pooled vectors, and those of registered forms (`register_folder_form`).
They are read without sentence-transformers, which takes seconds to import; a test compares the result with what the
library computes.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from tandem.config.base import Pooling
from tandem.errors import UserError
from tandem.models.folders import (
    FOLDER_FORMS,
    INPUTS,
    LIBRARY,
    OPTIONS,
    read_model_json,
    read_optional,
)
from tandem.stages.base import Json
from tandem.store.job import load

Modules = list[tuple[str, str]]  # each module's name, without that of its package, and its folder

# Files older than sentence-transformers 5 have a switch for each pooling; some switches are named differently.
_POOLING_SWITCH = "pooling_mode_"
_OLD_POOLINGS = {
    f"{pooling}_{what}": pooling for pooling in get_args(Pooling) for what in ("token", "tokens")
}
# the inverse of 20, the scale of cosines in sentence-transformers' MultipleNegativesRankingLoss
_TEMPERATURE = 0.05
PASSAGE = ("document", "passage", "corpus")  # names of a passage's prompt, the usual one first
# Options of transformers that change no vector.
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
# Allowed descriptions of how an encoder reads texts: which output of its forward pass the following modules take.
_READ_OUTPUTS = [
    {"method": "forward", "method_output_name": output}
    for output in ("last_hidden_state", "logits")
]
HIDDEN_SIZE_KEYS = ("hidden_size", "dim", "d_model")  # names of the size of states, by family


def describe_towers(folder: Path) -> Json:
    """Return `pooling`, `normalize`, `temperature`, `prompts`, `dense` and `dim` as the files give them, if they exist.

    For folders of a registered form, also return `representation`. Vectors that are compared by cosine, the default of
    sentence-transformers, have length 1 here.

    Raises:
        UserError: files that are broken, or that describe what this project does not compute.
    """
    modules = _read_modules(folder)
    for form in FOLDER_FORMS.values():
        described: Json | None = load(form.describe)(folder, modules)
        if described is not None:
            return described
    if modules is None:
        return {}

    listed = folder / "modules.json"
    names = [name for name, _ in modules]
    for name in names:
        if name not in ("Transformer", "Pooling", "Dense", "Normalize"):
            raise refuse_unknown(listed, f"the module {name}")
    dense = [path for name, path in modules if name == "Dense"]
    unit = names[-1:] == ["Normalize"]
    if names != ["Transformer", "Pooling", *["Dense"] * len(dense), *["Normalize"] * unit]:
        raise refuse_unknown(listed, f"the order {', '.join(names)}")
    check_inputs(folder)
    check_dense(folder, dense)
    towers: Json = {"pooling": _read_pooling(folder / modules[1][1] / "config.json")}
    config = read_optional(folder / LIBRARY)
    similarity = read_similarity(folder, config, "cosine", "dot")
    if unit and similarity == "dot" and config.get("truncate_dim"):
        raise refuse_unknown(
            folder / LIBRARY, "truncate_dim behind Normalize with the similarity dot"
        )
    if unit or similarity == "cosine":
        towers |= {"normalize": True, "temperature": _TEMPERATURE}
    optional = {
        "prompts": read_prompts(folder / LIBRARY, config),
        "dense": dense,
        "dim": config.get("truncate_dim"),
    }
    return towers | {key: value for key, value in optional.items() if value}


def _read_modules(folder: Path) -> Modules | None:
    """Return the modules of a folder of sentence-transformers, in order; None for any other folder."""
    listed = folder / "modules.json"
    if not listed.is_file():
        return None
    packages = [
        "sentence_transformers",
        *(name for form in FOLDER_FORMS.values() for name in form.packages),
    ]
    prefix = re.compile(rf"^({'|'.join(packages)})\..*\.")
    try:
        return [
            (prefix.sub("", str(row["type"])), str(row["path"]))
            for row in read_model_json(listed, list)
        ]
    except (KeyError, TypeError):
        raise UserError(
            f"{listed}: lists no modules with type and path; mend or remove it"
        ) from None


def read_similarity(folder: Path, config: Json, *allowed: str) -> str:
    """Return how vectors are compared; if the library's file does not name it, the first of `allowed`."""
    similarity: str = config.get("similarity_fn_name") or allowed[0]
    if similarity not in allowed:
        raise refuse_unknown(folder / LIBRARY, f"the similarity {similarity}")
    return similarity


def check_dense(folder: Path, dense: Iterable[str]) -> None:
    """Refuse linear layers if one's input size is not the output size of the encoder or of the layer before."""
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
        raise refuse_unknown(path, f"the pooling {' + '.join(map(str, modes)) or 'none'}")
    if not config.get("include_prompt", True):
        raise refuse_unknown(path, "a pooling without the prompt's tokens")
    return str(modes[0])


def find_passage_prompt(prompts: Json) -> str:
    """Return the name of the prompt of passages: `document`, even an empty one, else `passage` or `corpus`, else ''.

    Models like E5 intend their prompt `passage` to be used. sentence-transformers adds an empty `document` to such
    prompts, so that `encode_document` puts nothing in front of a passage.
    """
    return next((name for name in PASSAGE if name in prompts), "")


def read_prompts(path: Path, config: Json) -> dict[str, str]:
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


def find_inputs_file(folder: Path) -> Path:
    """Return the file about a model's inputs, by any of its names."""
    return next(
        (folder / name for name in INPUTS if read_optional(folder / name)), folder / INPUTS[0]
    )


def check_inputs(folder: Path) -> None:
    """Refuse a model that asks for more than tokenizer and encoder do by themselves."""
    if problem := find_foreign_inputs(folder):
        raise refuse_unknown(*problem)


def find_foreign_inputs(folder: Path) -> tuple[Path, str] | None:
    """Return the file that asks for more than tokenizer and encoder do by themselves, and what it asks for.

    None if no file asks for more.
    """
    path = find_inputs_file(folder)
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


def refuse_unknown(path: Path, what: str) -> UserError:
    """Return the error for files that describe something that is not computed here."""
    hint = f"say pooling ({', '.join(get_args(Pooling))}) in an entry of encoders to compute vectors without it"
    return UserError(f"{path}: describes {what}, which is not computed here; {hint}")
