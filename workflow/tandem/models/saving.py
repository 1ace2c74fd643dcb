"""Save what a model needs next to its encoders: `dual.json`, linear layers, and the files of sentence-transformers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tandem.errors import UserError
from tandem.models.folders import WEIGHTS_FILE
from tandem.store.files import write_json

# names, in sentence-transformers, of what a linear layer may read: a text's vector, or its tokens' vectors
INPUT = "sentence_embedding"
TOKEN_VECTORS = "token_embeddings"
# The classes of sentence-transformers' modules.
MODULE_TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.sentence_transformer.modules.normalize.Normalize",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Router": "sentence_transformers.base.modules.router.Router",
}
LIBRARY_CONFIG = "config_sentence_transformers.json"
TRANSFORMER = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
# Scores are dot products; the temperature that divides them is left out, as it changes no ranking.
MODEL: dict[str, object] = {
    "model_type": "SentenceTransformer",
    "prompts": {},
    "default_prompt_name": None,
    "similarity_fn_name": "dot",
}
_CROSS_CONFIG = {
    "activation_fn": "torch.nn.modules.activation.Sigmoid",
    "model_type": "CrossEncoder",
    "prompts": {},
}


@dataclass(frozen=True)
class DualShape:
    """Describe how a saved dual encoder computes vectors and scores: the content of `dual.json`.

    Attributes:
        marked: if texts begin with markers, each side's marker and prompt, written as the saved tokenizer reads them.
    """

    shared: bool
    pooling: str
    normalize: bool
    temperature: float
    dimension: int = 0
    dim: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    dense: Sequence[str] = ()
    representation: Mapping[str, object] = field(default_factory=dict)
    marked: Mapping[str, str] = field(default_factory=dict)

    @property
    def before(self) -> Mapping[str, str]:
        """Return the text in front of each side's texts, for libraries that read texts."""
        return self.marked or self.prompts

    @property
    def type(self) -> str:
        """Return the name of the representation."""
        return str(self.representation.get("type", "single"))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the `dual.json` of a saved dual encoder."""
        return cls(**json.loads((folder / "dual.json").read_text(encoding="utf-8")))

    def write(self, folder: Path) -> None:
        """Write `dual.json`, without empty fields."""
        content = {
            name: value for name, value in asdict(self).items() if value not in (None, {}, [], ())
        }
        write_json(folder / "dual.json", content)


def describe_encoder(folder: Path, dimension: int, shape: DualShape) -> None:
    """Turn an encoder's folder into a SentenceTransformer whose similarity is the dot product.

    Args:
        dimension: numbers of one of the encoder's states.
    """
    _describe_pooled(
        folder,
        dimension,
        shape.pooling,
        _list_modules_behind(shape),
        make_model_config(shape.before),
    )


def describe_two_towers(folder: Path, query: str, passage: str, shape: DualShape) -> None:
    """Join two folders that are described already: `encode_query` uses one of them, `encode_document` the other."""
    places = _place_modules(["Transformer", "Pooling", *_list_modules_behind(shape)])
    describe_router(
        folder,
        *({str(Path(tower) / place): name for place, name in places} for tower in (query, passage)),
    )
    write_json(folder / LIBRARY_CONFIG, make_model_config(shape.before))


def describe_router(
    folder: Path,
    query: Mapping[str, str],
    passage: Mapping[str, str],
    types: Mapping[str, str] = MODULE_TYPES,
) -> None:
    """Write that a model's sides go through different modules.

    Args:
        query, passage: folder → module, in the order in which they are called.
        types: the class of each module in sentence-transformers.
    """
    classes = {place: types[name] for place, name in {**query, **passage}.items()}
    parameters = {"default_route": "document", "allow_empty_key": True, "route_mappings": {}}
    structure = {"query": list(query), "document": list(passage)}
    write_json(folder / "modules.json", list_modules(["Router"]))
    write_json(
        folder / "router_config.json",
        {"types": classes, "structure": structure, "parameters": parameters},
    )


def describe_cross_encoder(folder: Path, dimension: int, pooling: str) -> None:
    """Turn an encoder's folder with a head in 2_Dense/ into a CrossEncoder, whose scores are the output's sigmoid."""
    _describe_pooled(folder, dimension, pooling, ["Dense"], _CROSS_CONFIG)
    size = {"in_features": dimension, "out_features": 1, "bias": True}
    names = {"module_input_name": INPUT, "module_output_name": "scores"}
    activation = {"activation_function": "torch.nn.modules.linear.Identity"}
    write_json(folder / "2_Dense/config.json", size | activation | names)


def _describe_pooled(
    folder: Path, dimension: int, pooling: str, behind: list[str], config: object
) -> None:
    write_json(folder / "modules.json", list_modules(["Transformer", "Pooling", *behind]))
    write_json(folder / "sentence_bert_config.json", TRANSFORMER)
    vector = {"embedding_dimension": dimension, "pooling_mode": pooling, "include_prompt": True}
    write_json(folder / "1_Pooling/config.json", vector)
    write_json(folder / LIBRARY_CONFIG, config)


def _list_modules_behind(shape: DualShape) -> list[str]:
    """Return the modules behind the pooling; the cut to `dim` is saved as one more linear layer."""
    layers = len(shape.dense) + (shape.dim is not None)
    modules = ["Dense"] * layers
    return [*modules, "Normalize"] if shape.normalize else modules


def make_model_config(prompts: Mapping[str, str]) -> dict[str, object]:
    """Return `config_sentence_transformers.json` of a model with each side's prompt."""
    names = {"query": "query", "passage": "document"}
    return MODEL | {"prompts": {names[side]: text for side, text in prompts.items()}}


def list_modules(
    names: list[str], types: Mapping[str, str] = MODULE_TYPES
) -> list[dict[str, object]]:
    """Return the content of `modules.json`: the modules in the order in which they are called.

    Args:
        types: the class of each module in sentence-transformers.
    """
    places = enumerate(_place_modules(names))
    return [
        {"idx": i, "name": str(i), "path": place, "type": types[name]}
        for i, (place, name) in places
    ]


def _place_modules(names: list[str]) -> list[tuple[str, str]]:
    """Return the folder and the name of each module; a folder begins with the module's place in the order."""
    return [(f"{i}_{name}" if i else "", name) for i, name in enumerate(names)]


class Dense(nn.Module):
    """Compute activation(W x + b) of vectors of shape (…, in_features).

    Args:
        reads: the vectors' name in sentence-transformers.
    """

    def __init__(self, linear: nn.Linear, activation: nn.Module, reads: str = INPUT) -> None:
        super().__init__()
        self.linear = linear
        self.activation = activation
        self.reads = reads

    @classmethod
    def load(cls, folder: Path, reads: str = INPUT) -> Self:
        """Return the layer of a folder, in float32.

        Raises:
            UserError: it is more than a linear layer with an activation, or its weights do not fit.
        """
        if missing := [
            name for name in ("config.json", WEIGHTS_FILE) if not (folder / name).is_file()
        ]:
            raise UserError(f"{folder}: {missing[0]} is missing; only safetensors are loaded")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
        activation = (
            getattr(nn, name.rpartition(".")[2], None) if name.startswith("torch.nn.") else None
        )
        read = config.get("module_input_name") or reads
        written = config.get("module_output_name") or reads
        plain = read == written == reads and not config.get("use_residual")
        if activation is None or not plain:
            of = "a text's vector" if reads == INPUT else "tokens' vectors"
            raise UserError(
                f"{folder}: is not a linear layer of {of} with an activation of PyTorch"
            )
        linear = nn.Linear(config["in_features"], config["out_features"], config.get("bias", True))
        try:
            weights = load_file(folder / WEIGHTS_FILE)
            linear.load_state_dict(
                {name.removeprefix("linear."): value.float() for name, value in weights.items()}
            )
        except (SafetensorError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[-1].strip()
            raise UserError(
                f"{folder}: its weights do not fit ({reason}); fetch the layer's files again"
            ) from None
        return cls(linear, activation(), reads)

    @classmethod
    def truncating(cls, size: int, dim: int) -> Self:
        """Return a layer that returns the first `dim` of `size` numbers as they are."""
        linear = nn.Linear(size, dim, bias=False)
        linear.weight = nn.Parameter(torch.eye(dim, size))
        return cls(linear, nn.Identity())

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the layer's output, shape (…, in_features) → (…, out_features)."""
        result: Tensor = self.activation(self.linear(vectors))
        return result

    def save(self, folder: Path) -> None:
        """Write the folder that `load` and sentence-transformers read."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: p.detach().cpu().contiguous() for name, p in self.named_parameters()}
        save_file(tensors, folder / WEIGHTS_FILE)
        kind = type(self.activation)
        size = {"in_features": self.linear.in_features, "out_features": self.linear.out_features}
        activation = {"activation_function": f"{kind.__module__}.{kind.__qualname__}"}
        names = (
            {}
            if self.reads == INPUT
            else {"module_input_name": self.reads, "module_output_name": self.reads}
        )
        write_json(
            folder / "config.json",
            size | {"bias": self.linear.bias is not None} | activation | names,
        )
