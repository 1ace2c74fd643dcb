"""The small files by which sentence-transformers knows what a saved folder is."""

from pathlib import Path
from typing import Any

from tandem.store.files import write_json

MODULES = {
    "Transformer": ("", "base.modules.transformer.Transformer"),
    "Pooling": ("1_Pooling", "sentence_transformer.modules.pooling.Pooling"),
    "Normalize": ("2_Normalize", "sentence_transformer.modules.normalize.Normalize"),
    "Dense": ("2_Dense", "base.modules.dense.Dense"),
    "Router": ("", "base.modules.router.Router"),
}


def describe_encoder(folder: Path, dimension: int, pooling: str, normalize: bool) -> None:
    """Make an encoder's folder a SentenceTransformer with this pooling, whose similarity is the dot product."""
    _modules(folder, _pooled(normalize))
    _transformer(folder)
    _pooling(folder, dimension, pooling)
    _similarity(folder)


def describe_two_towers(folder: Path, query: str, passage: str, normalize: bool) -> None:
    """Make a folder of two towers one SentenceTransformer: `encode_query` and `encode_document` take one each.

    The towers' own folders, which `describe_encoder` has described, are its parts: no weight is stored twice.
    """
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for route, tower in (("query", query), ("document", passage)):
        parts = {str(Path(tower) / MODULES[name][0]): _class(name) for name in _pooled(normalize)}
        types |= parts
        structure[route] = list(parts)
    parameters = {"default_route": "document", "allow_empty_key": True, "route_mappings": {}}
    _modules(folder, ["Router"])
    write_json(folder / "router_config.json", {"types": types, "structure": structure, "parameters": parameters})
    _similarity(folder)


def describe_cross_encoder(folder: Path, dimension: int, pooling: str) -> None:
    """Make an encoder's folder with a head in 2_Dense/ a CrossEncoder; scores are the output's sigmoid."""
    _modules(folder, ["Transformer", "Pooling", "Dense"])
    _transformer(folder)
    _pooling(folder, dimension, pooling)
    dense: dict[str, Any] = {"in_features": dimension, "out_features": 1, "bias": True}
    dense |= {"activation_function": "torch.nn.modules.linear.Identity"}
    dense |= {"module_input_name": "sentence_embedding", "module_output_name": "scores"}
    write_json(folder / "2_Dense/config.json", dense)
    told = {"activation_fn": "torch.nn.modules.activation.Sigmoid", "model_type": "CrossEncoder", "prompts": {}}
    write_json(folder / "config_sentence_transformers.json", told)


def _pooled(normalize: bool) -> list[str]:
    """The modules from token ids to a vector."""
    return ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]


def _class(name: str) -> str:
    return f"sentence_transformers.{MODULES[name][1]}"


def _modules(folder: Path, names: list[str]) -> None:
    """The modules in the order they are called."""
    listed = enumerate(names)
    told = [{"idx": i, "name": str(i), "path": MODULES[name][0], "type": _class(name)} for i, name in listed]
    write_json(folder / "modules.json", told)


def _transformer(folder: Path) -> None:
    """What the first module is asked for."""
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    told = {"transformer_task": "feature-extraction", "modality_config": {"text": text}}
    write_json(folder / "sentence_bert_config.json", {**told, "module_output_name": "token_embeddings"})


def _pooling(folder: Path, dimension: int, pooling: str) -> None:
    told = {"embedding_dimension": dimension, "pooling_mode": pooling, "include_prompt": True}
    write_json(folder / "1_Pooling/config.json", told)


def _similarity(folder: Path) -> None:
    """Scores are dot products; a temperature divides them, which changes no ranking."""
    told: dict[str, Any] = {"model_type": "SentenceTransformer", "prompts": {}, "default_prompt_name": None}
    write_json(folder / "config_sentence_transformers.json", {**told, "similarity_fn_name": "dot"})
