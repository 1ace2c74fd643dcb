"""The small files by which sentence-transformers knows what a saved folder is."""

from pathlib import Path
from typing import Any

from tandem.artifact import write_json

MODULES = {
    "Transformer": ("", "base.modules.transformer.Transformer"),
    "Pooling": ("1_Pooling", "sentence_transformer.modules.pooling.Pooling"),
    "Normalize": ("2_Normalize", "sentence_transformer.modules.normalize.Normalize"),
    "Dense": ("2_Dense", "base.modules.dense.Dense"),
}


def describe_encoder(folder: Path, dimension: int, pooling: str, normalize: bool) -> None:
    """Make an encoder's folder a SentenceTransformer with this pooling."""
    _modules(folder, ["Transformer", "Pooling", *(["Normalize"] if normalize else [])])
    _pooling(folder, dimension, pooling)


def describe_cross_encoder(folder: Path, dimension: int, pooling: str) -> None:
    """Make an encoder's folder with a head in 2_Dense/ a CrossEncoder; scores are the output's sigmoid."""
    _modules(folder, ["Transformer", "Pooling", "Dense"])
    _pooling(folder, dimension, pooling)
    dense: dict[str, Any] = {"in_features": dimension, "out_features": 1, "bias": True}
    dense |= {"activation_function": "torch.nn.modules.linear.Identity"}
    dense |= {"module_input_name": "sentence_embedding", "module_output_name": "scores"}
    write_json(folder / "2_Dense/config.json", dense)
    told = {"activation_fn": "torch.nn.modules.activation.Sigmoid", "model_type": "CrossEncoder", "prompts": {}}
    write_json(folder / "config_sentence_transformers.json", told)


def _modules(folder: Path, names: list[str]) -> None:
    """The modules in the order they are called, and what the first one is asked for."""
    listed = [
        {"idx": i, "name": str(i), "path": MODULES[name][0], "type": f"sentence_transformers.{MODULES[name][1]}"}
        for i, name in enumerate(names)
    ]
    write_json(folder / "modules.json", listed)
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    told = {"transformer_task": "feature-extraction", "modality_config": {"text": text}}
    write_json(folder / "sentence_bert_config.json", {**told, "module_output_name": "token_embeddings"})


def _pooling(folder: Path, dimension: int, pooling: str) -> None:
    told = {"embedding_dimension": dimension, "pooling_mode": pooling, "include_prompt": True}
    write_json(folder / "1_Pooling/config.json", told)
