"""Folders of published sparse encoders, as sentence-transformers writes them. No torch here."""

from pathlib import Path
from typing import NamedTuple

from tandem.models.described import Modules, check_inputs, read_prompts, read_similarity
from tandem.models.folders import (
    LIBRARY,
    FolderParts,
    find_encoder_files,
    read_model_json,
    read_optional,
)
from tandem.stages.base import Json

# modules of an encoder's folder; the second list: before sentence-transformers 5.4
_SPARSE = (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"])
_ROUTER_FILE = "router_config.json"


class StaticQueriesFiles(NamedTuple):
    """Folders of a sparse encoder that only passages go through: weights of query tokens, the encoder, its pooling."""

    queries: Path
    passages: Path
    pooling: Path


def describe_sparse(folder: Path, modules: Modules | None) -> Json | None:
    """Return how a sparse encoder weighs terms, in the form of `describe_towers`; None for any other folder."""
    if modules is None:
        return None
    names = [name for name, _ in modules]
    if names in _SPARSE:
        return _describe_weights(folder, folder / modules[1][1] / "config.json")
    static = find_static_queries(folder) if names == ["Router"] else None
    if static:
        return _describe_weights(folder, static.pooling / "config.json", queries="tokens")
    return None


def find_sparse_parts(folder: Path) -> FolderParts | None:
    """Return the parts of a sparse encoder whose queries go through no network; None for any other folder."""
    static = find_static_queries(folder)
    if static is None:
        return None
    files = [
        *static.queries.glob("*.json"),
        *static.queries.glob("*.txt"),
        static.pooling / "config.json",
    ]
    return FolderParts(static.passages, static.queries, files)


def find_static_queries(folder: Path) -> StaticQueriesFiles | None:
    """Return the folders of a sparse encoder whose queries go through no network; None for any other folder.

    sentence-transformers writes such an encoder as a Router: a SparseStaticEmbedding for queries, and SPLADE's modules
    for documents.
    """
    config = read_optional(folder / _ROUTER_FILE)
    structure = config.get("structure")
    types = config.get("types")
    if not isinstance(structure, dict) or not isinstance(types, dict):
        return None
    routes = [structure.get(side) or [] for side in ("query", "document")]
    names = [[str(types.get(place)).rpartition(".")[2] for place in places] for places in routes]
    if names[0] != ["SparseStaticEmbedding"] or names[1] not in _SPARSE:
        return None
    return StaticQueriesFiles(*(folder / str(place) for places in routes for place in places))


def _describe_weights(folder: Path, path: Path, **known: str) -> Json:
    """Return how texts are weighed, as options of `representation: sparse`; `path` is the pooling's configuration."""
    config = read_model_json(path)
    library = read_optional(folder / LIBRARY)
    read_similarity(folder, library, "dot")
    check_inputs(find_encoder_files(folder))
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
    prompts = read_prompts(folder / LIBRARY, library)
    if prompts:
        towers["prompts"] = prompts
    return towers
