"""The safetensors of a model's folder: one file, or shards that an index names, as transformers writes large models."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from tandem.errors import UserError
from tandem.models.described import encoder_files, read_json, static_queries
from tandem.store.files import sha256

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a folder's weights, by name; of a whole file and shards the whole file, as in transformers.

    Raises:
        UserError: no safetensors, an index that cannot be read, or a shard that is not there.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / INDEX
    if not index.is_file():
        files = ", ".join(sorted(path.name for path in folder.glob("*"))[:8]) if folder.is_dir() else "no such folder"
        hint = "name a revision that has them, or a folder that transformers saved anew"
        raise UserError(f"{folder}: {WEIGHTS} is missing (found: {files}); only safetensors are loaded: {hint}")
    shards = read_json(index).get("weight_map")
    names = sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else []
    if not names or any(Path(name).name != name or not name.endswith(".safetensors") for name in names):
        raise UserError(f"{index}: names no shards (weight_map: tensor to file beside it); save the model anew")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise UserError(
            f"{folder}: {missing[0]} is missing, which {INDEX} names; fetch or copy all {len(names)} shards"
        )
    return [folder / name for name in names]


def weights_digest(folder: Path, digest: Callable[[Path], str] = sha256) -> str:
    """sha256 of a folder's weights: of the file, or of the lines that `sha256sum` prints of its shards, by name.

    Weights of queries' tokens, where an encoder has them, are one more file, the last.

    Args:
        folder: a model's folder.
        digest: hex sha256 of one file.
    """
    static = static_queries(folder)
    files = weight_files(encoder_files(folder)) + (weight_files(static.queries) if static else [])
    if files == [folder / WEIGHTS]:
        return digest(files[0])
    return hashlib.sha256("".join(f"{digest(path)}  {path.name}\n" for path in files).encode()).hexdigest()
