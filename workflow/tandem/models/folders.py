"""Read and check the files of a published encoder's folder, and find its weights and the longest input."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tandem.errors import UserError
from tandem.plugins import Declarations
from tandem.stages.base import Entry, Json
from tandem.store.files import sha256
from tandem.store.job import load

# Texts are padded to a multiple of this: in odd shapes the last bits of matrix products depend on the threads.
LENGTH_STEP = 8
# Pairs are padded to a multiple of this: a pair is computed in one of few tensor shapes, whatever else is in its batch.
PAIR_LENGTH_STEP = 16
LIBRARY = "config_sentence_transformers.json"
WEIGHTS_FILE = "model.safetensors"
_WEIGHTS_INDEX = "model.safetensors.index.json"
# Everything a tokenizer or a configuration may need; weights other than safetensors are never taken.
_ENCODER_FILES = (
    "*.json",
    "*.txt",
    "*.model",
    "*.jinja",
    WEIGHTS_FILE,
    "model-*-of-*.safetensors",
    "*_Dense*/config.json",
    "*_Dense*/model.safetensors",
)
# Other names of shards. Only a fetch needs the pattern: it cannot read the index, which names the shards, beforehand.
_SHARDS = "*-of-*.safetensors"
# A fast tokenizer is made from one of these.
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "tekken.json")
# Names of the file that limits a model's inputs; the first one that has a value counts. Today all families use BERT's.
INPUTS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# Its keys that hold options of transformers, by their present and former names.
OPTIONS = tuple(
    f"{of}_{what}"
    for of in ("model", "config", "processor", "tokenizer")
    for what in ("kwargs", "args")
)
# Files and keys that say how long a text may be; the first one that has a value counts.
_LENGTH_KEYS = (
    *((name, "max_seq_length") for name in INPUTS),
    ("tokenizer_config.json", "model_max_length"),
)
# names of JSON's types, for messages
_JSON_TYPE_NAMES = {dict: "object", list: "list", int: "whole number", str: "string"}
# types of the keys that are read, in whatever file; any of them may be null or absent
_VALUE_TYPES: dict[str, type] = {
    **dict.fromkeys(
        ("id2label", "modality_config", "prompts", "sentence_transformers", "weight_map"), dict
    ),
    **dict.fromkeys((*OPTIONS, "processing_kwargs"), dict),
    "architectures": list,
    "default_prompt_name": str,
    **dict.fromkeys(
        ("max_position_embeddings", "max_seq_length", "num_labels", "pad_token_id", "truncate_dim"),
        int,
    ),
}
# Families whose positions begin behind the id of padding, at `pad_token_id` + 1.
BEHIND_PADDING = (
    "camembert",
    "data2vec-text",
    "ibert",
    "longformer",
    "luke",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)


class FolderParts(NamedTuple):
    """Locate the parts of a published encoder whose weights are not in its top folder.

    Attributes:
        encoder: the folder with the weights and the tokenizer that transformers loads.
        weights: a folder with further weights.
        files: all other files.
    """

    encoder: Path
    weights: Path
    files: Sequence[Path]


@dataclass(frozen=True)
class FolderForm:
    """Describe a form of published encoders' folders, other than sentence-transformers' with pooled vectors.

    Attributes:
        describe: `(folder, modules) -> towers` reads the folder as `describe_towers` does; None if it is not of this
            form. `modules` are the names and folders that `modules.json` lists, None without that file.
        adopt: `(source, copy) -> bool` converts a copy of such a folder to the form that models load. It returns
            whether the folder is of this form, and may thus have weights that no encoder reads.
        find_parts: `(folder) -> FolderParts` of a folder whose encoder is in a folder of its own; None for others.
        files: names of files that only folders of this form have.
        lengths: files and keys that say how long a text may be.
        values: types of the keys of its files.
        packages: Python packages whose modules `modules.json` may name, in addition to sentence-transformers'.
    """

    describe: Entry
    adopt: Entry
    find_parts: Entry | None = None
    files: tuple[str, ...] = ()
    lengths: tuple[tuple[str, str], ...] = ()
    values: Mapping[str, type] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


FOLDER_FORMS: Declarations[FolderForm] = Declarations()


def register_folder_form(name: str, form: FolderForm) -> None:
    """Add a form of published encoders' folders; a `UserError` if the name is taken."""
    if name in FOLDER_FORMS:
        raise UserError(f"form of folders {name} is registered twice; rename one of them")
    FOLDER_FORMS[name] = form


def list_own_files() -> list[str]:
    """Return the names of files that only folders of the registered forms have."""
    return [name for form in FOLDER_FORMS.values() for name in form.files]


def list_encoder_files() -> list[str]:
    """Return patterns of the files that an encoder's folder may have."""
    return [*_ENCODER_FILES, *list_own_files()]


def list_fetched_files() -> list[str]:
    """Return patterns of the files to fetch of an encoder: those of its folder, and shards of any name."""
    return [*list_encoder_files(), _SHARDS]


def read_model_json(path: Path, kind: type = dict) -> Any:
    """Read the object, or list, in a JSON file of a published model.

    Raises:
        UserError: the file is broken, it is of another `kind`, or a key that is read has a value of a wrong type.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({type(error).__name__}); mend it") from None
    if not isinstance(value, kind):
        raise UserError(f"{path}: is not a JSON {_JSON_TYPE_NAMES[kind]}; mend it")
    values: Json = value if isinstance(value, dict) else {}
    needed_types = dict(_VALUE_TYPES)
    for form in FOLDER_FORMS.values():
        needed_types |= form.values
    for key, needed in needed_types.items():
        if not isinstance(values.get(key), (needed, type(None))):
            raise UserError(
                f"{path}: {key} is {json.dumps(values[key])[:80]}; a JSON {_JSON_TYPE_NAMES[needed]} is needed"
            )
    return value


def read_optional(path: Path) -> Json:
    """Read the object in a JSON file, or return an empty one if there is no such file."""
    return read_model_json(path) if path.is_file() else {}


def find_parts(folder: Path) -> FolderParts | None:
    """Return the parts of a published encoder of a registered form; None if the folder itself is the encoder's."""
    for form in FOLDER_FORMS.values():
        parts: FolderParts | None = load(form.find_parts)(folder) if form.find_parts else None
        if parts is not None:
            return parts
    return None


def find_encoder_files(folder: Path) -> Path:
    """Return the folder with an encoder's weights and tokenizer: `folder` itself, or one of its parts."""
    parts = find_parts(folder)
    return parts.encoder if parts else folder


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not a Hugging Face model with safetensors weights."""
    if not (folder / "config.json").is_file():
        hint = _explain_mend(folder, "name a folder that transformers saved")
        raise UserError(f"{folder}: config.json is missing (found: {_list_names(folder)}); {hint}")
    list_weight_files(folder)


def check_tokenizer(folder: Path) -> None:
    """Refuse an encoder's folder without a tokenizer's files: transformers would make a tokenizer without words."""
    files = find_encoder_files(folder)
    if not any(path.is_file() for pattern in _TOKENIZER_FILES for path in files.glob(pattern)):
        first, *others = _TOKENIZER_FILES
        needed = f"{first} is missing, and so are {', '.join(others)} (found: {_list_names(files)})"
        raise UserError(f"{files}: {needed}; copy the tokenizer's files that belong to the weights")


def _list_names(folder: Path) -> str:
    """Return the names in a folder, at most eight, for messages."""
    return (
        ", ".join(sorted(path.name for path in folder.glob("*"))[:8])
        if folder.is_dir()
        else "no such folder"
    )


def _explain_mend(folder: Path, hint: str) -> str:
    """Return how to mend a folder without a whole model: merge it if it is an adapter, else `hint`."""
    merge = (
        "it is an adapter of peft alone: "
        "merge it into its model (merge_and_unload) and save that with its tokenizer"
    )
    return merge if (folder / "adapter_config.json").is_file() else hint


def list_weight_files(folder: Path) -> list[Path]:
    """Return the files with a folder's weights, sorted by name.

    If there are both a whole file and shards, the whole file counts, as in transformers.

    Raises:
        UserError: there are no safetensors, the index cannot be read, or a shard is missing.
    """
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    index = folder / _WEIGHTS_INDEX
    if not index.is_file():
        hint = "only safetensors are loaded: name a revision that has them, or a folder that transformers saved anew"
        raise UserError(
            f"{folder}: {WEIGHTS_FILE} is missing (found: {_list_names(folder)}); {_explain_mend(folder, hint)}"
        )
    shards = read_model_json(index).get("weight_map")
    names = sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else []
    if not names or any(
        Path(name).name != name or not name.endswith(".safetensors") for name in names
    ):
        raise UserError(
            f"{index}: names no shards (weight_map: tensor to file beside it); save the model anew"
        )
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise UserError(
            f"{folder}: {missing[0]} is missing, which {_WEIGHTS_INDEX} names; fetch or copy all {len(names)} shards"
        )
    return [folder / name for name in names]


def hash_weights(folder: Path, digest: Callable[[Path], str] = sha256) -> str:
    """Return sha256 of a folder's weights: of the single file, or of the lines that `sha256sum` prints for several.

    Shards are sorted by name; weights of a further part come last.

    Args:
        digest: returns the sha256 of a file.
    """
    parts = find_parts(folder)
    files = list_weight_files(parts.encoder if parts else folder)
    if parts:
        files += list_weight_files(parts.weights)
    if files == [folder / WEIGHTS_FILE]:
        return digest(files[0])
    lines = [f"{digest(path)}  {path.name}\n" for path in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def hash_files(folder: Path, digest: Callable[[Path], str] = sha256) -> str:
    """Return sha256 of the lines that `sha256sum` prints for a folder's files other than weights, sorted by path.

    Folders with the same weights may differ in tokenizer, configuration or layers.

    Args:
        digest: returns the sha256 of a file.
    """
    parts = find_parts(folder)
    own = parts.encoder if parts else folder
    files: set[Path] = set()
    for pattern in list_encoder_files():
        files |= set(own.glob(pattern))
    files -= set(list_weight_files(own))
    if parts:
        files |= {*parts.files}
    lines = (f"{digest(path)}  {os.path.relpath(path, folder)}\n" for path in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def find_longest_input(folder: Path) -> int | None:
    """Return the length to which texts are cut, in tokens with special ones; None if the files name none."""
    own = [place for form in FOLDER_FORMS.values() for place in form.lengths]
    for name, key in (*own, *_LENGTH_KEYS):
        value = read_optional(folder / name).get(key)
        if value and value < 1 << 30:  # tokenizers without a limit say 1e30
            return int(value)
    return None


def read_positions(config: Mapping[str, Any]) -> int | None:
    """Return how many tokens an input may have, special ones included, by a `config.json`; None if it has no limit."""
    limit: int | None = config.get("max_position_embeddings")
    family = config.get("model_type")
    if limit and family in BEHIND_PADDING:
        padding = 1 if family == "mpnet" else config.get("pad_token_id", 1)
        return limit if padding is None else limit - padding - 1
    return limit
