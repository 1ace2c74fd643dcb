"""What stands beside saved weights: `dual.json`, and sentence-transformers' files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tandem.store.files import write_json

# Modules of sentence-transformers.
MODULES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.sentence_transformer.modules.normalize.Normalize",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Router": "sentence_transformers.base.modules.router.Router",
    "MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    "SpladePooling": "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling",
    "SparseStaticEmbedding": "sentence_transformers.sparse_encoder.modules.sparse_static_embedding"
    ".SparseStaticEmbedding",
}
CONFIG = "config_sentence_transformers.json"
TRANSFORMER = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
# Scores are dot products; a temperature divides them, which changes no ranking.
MODEL: dict[str, object] = {"model_type": "SentenceTransformer", "prompts": {}, "default_prompt_name": None}
MODEL["similarity_fn_name"] = "dot"
CROSS = {"activation_fn": "torch.nn.modules.activation.Sigmoid", "model_type": "CrossEncoder", "prompts": {}}


@dataclass(frozen=True)
class DualShape:
    """What `dual.json` says: how a saved dual encoder makes vectors and scores."""

    shared: bool
    pooling: str
    normalize: bool
    temperature: float
    dimension: int = 0
    dim: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    dense: Sequence[str] = ()
    representation: Mapping[str, object] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """Which representation it is."""
        return str(self.representation.get("type", "single"))


def plain_shape(shape: DualShape) -> dict[str, object]:
    """The content of `dual.json`: what is rarely there is left out where it is not."""
    return {name: value for name, value in asdict(shape).items() if value not in (None, {}, [], ())}


def describe_encoder(folder: Path, dimension: int, shape: DualShape) -> None:
    """Make an encoder's folder with states of `dimension` a SentenceTransformer whose similarity is the dot product."""
    _pooled(folder, dimension, shape.pooling, _behind(shape))
    write_json(folder / CONFIG, model_config(shape.prompts))


def describe_two_towers(folder: Path, query: str, passage: str, shape: DualShape) -> None:
    """Make a folder of two towers one SentenceTransformer: `encode_query` and `encode_document` take one each.

    The towers' own folders, which `describe_encoder` has described, are its parts: no weight is stored twice.
    """
    places = _places(["Transformer", "Pooling", *_behind(shape)])
    parts = [{str(Path(tower) / place): name for place, name in places} for tower in (query, passage)]
    write_json(folder / "modules.json", modules(["Router"]))
    write_json(folder / "router_config.json", router(*parts))
    write_json(folder / CONFIG, model_config(shape.prompts))


def router(query: Mapping[str, str], passage: Mapping[str, str]) -> dict[str, object]:
    """`router_config.json` of a model whose sides go through different modules: folder → module of each, in order."""
    return {
        "types": {place: MODULES[name] for place, name in {**query, **passage}.items()},
        "structure": {"query": list(query), "document": list(passage)},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }


def _behind(shape: DualShape) -> list[str]:
    """The modules behind the pooling: the cut at `dim` is saved as one more linear layer."""
    return ["Dense"] * (len(shape.dense) + (shape.dim is not None)) + ["Normalize"] * shape.normalize


def model_config(prompts: Mapping[str, str]) -> dict[str, object]:
    """`config_sentence_transformers.json` of a model with each side's prompt."""
    names = {"query": "query", "passage": "document"}
    return MODEL | {"prompts": {names[side]: text for side, text in prompts.items()}}


def describe_cross_encoder(folder: Path, dimension: int, pooling: str) -> None:
    """Make an encoder's folder with a head in 2_Dense/ a CrossEncoder; scores are the output's sigmoid."""
    _pooled(folder, dimension, pooling, ["Dense"])
    size = {"in_features": dimension, "out_features": 1, "bias": True}
    names = {"module_input_name": "sentence_embedding", "module_output_name": "scores"}
    activation = {"activation_function": "torch.nn.modules.linear.Identity"}
    write_json(folder / "2_Dense/config.json", size | activation | names)
    write_json(folder / CONFIG, CROSS)


def _pooled(folder: Path, dimension: int, pooling: str, behind: list[str]) -> None:
    """Describe the modules from token ids to a vector, and those behind them."""
    write_json(folder / "modules.json", modules(["Transformer", "Pooling", *behind]))
    write_json(folder / "sentence_bert_config.json", TRANSFORMER)
    vector = {"embedding_dimension": dimension, "pooling_mode": pooling, "include_prompt": True}
    write_json(folder / "1_Pooling/config.json", vector)


def modules(names: list[str]) -> list[dict[str, object]]:
    """`modules.json`: the modules in the order they are called."""
    places = enumerate(_places(names))
    return [{"idx": i, "name": str(i), "path": place, "type": MODULES[name]} for i, (place, name) in places]


def _places(names: list[str]) -> list[tuple[str, str]]:
    """Each module's folder, which its place in the order names, and the module."""
    return [(f"{i}_{name}" if i else "", name) for i, name in enumerate(names)]
