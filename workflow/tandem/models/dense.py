"""Linear layers behind the pooling, each in a folder of its own (`2_Dense/`), as sentence-transformers keeps them."""

import json
from pathlib import Path
from typing import Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tandem.errors import UserError
from tandem.store.files import write_json

WEIGHTS = "model.safetensors"
INPUT, TOKENS = "sentence_embedding", "token_embeddings"  # what such a layer reads: a text's vector, or its tokens'


class Dense(nn.Module):
    """activation(W x + b), for vectors of shape (…, in_features); `reads` names them in sentence-transformers."""

    def __init__(self, linear: nn.Linear, activation: nn.Module, reads: str = INPUT) -> None:
        super().__init__()
        self.linear, self.activation, self.reads = linear, activation, reads

    @classmethod
    def load(cls, folder: Path, reads: str = INPUT) -> Self:
        """The layer of a folder, in float32, which must read texts' vectors, or tokens'.

        Raises:
            UserError: files that are missing, or that say more than a linear layer with an activation of PyTorch.
        """
        if missing := [name for name in ("config.json", WEIGHTS) if not (folder / name).is_file()]:
            raise UserError(f"{folder}: {missing[0]} is missing; only safetensors are loaded")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
        activation = getattr(nn, name.rpartition(".")[2], None) if name.startswith("torch.nn.") else None
        plain = config.get("module_input_name", reads) == reads and not config.get("use_residual")
        if activation is None or not plain:
            of = "a text's vector" if reads == INPUT else "tokens' vectors"
            raise UserError(f"{folder}: is not a linear layer of {of} with an activation of PyTorch")
        linear = nn.Linear(config["in_features"], config["out_features"], config.get("bias", True))
        weights = load_file(folder / WEIGHTS)
        linear.load_state_dict({name.removeprefix("linear."): value.float() for name, value in weights.items()})
        return cls(linear, activation(), reads)

    @classmethod
    def truncating(cls, size: int, dim: int) -> Self:
        """The layer that keeps the first `dim` of `size` numbers, exactly."""
        linear = nn.Linear(size, dim, bias=False)
        linear.weight = nn.Parameter(torch.eye(dim, size))
        return cls(linear, nn.Identity())

    def forward(self, vectors: Tensor) -> Tensor:
        """Shape (…, in_features) → (…, out_features)."""
        result: Tensor = self.activation(self.linear(vectors))
        return result

    def save(self, folder: Path) -> None:
        """Write the folder that `load` and sentence-transformers read."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: p.detach().cpu().contiguous() for name, p in self.named_parameters()}
        save_file(tensors, folder / WEIGHTS)
        kind = type(self.activation)
        size = {"in_features": self.linear.in_features, "out_features": self.linear.out_features}
        activation = {"activation_function": f"{kind.__module__}.{kind.__qualname__}"}
        names = {} if self.reads == INPUT else {"module_input_name": self.reads, "module_output_name": self.reads}
        write_json(folder / "config.json", size | {"bias": self.linear.bias is not None} | activation | names)
