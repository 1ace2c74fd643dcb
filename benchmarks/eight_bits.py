"""The loss in an encoder's vectors by 8 bits with a scale for each token, and the time that these would save.

    python benchmarks/eight_bits.py [--encoder FOLDER] [--texts 500] [--tokens 1024] [--seconds 3]

A scale for each token, unlike one for each batch, keeps vectors independent of the other texts in their batch. Weights
have a scale for each output. The script measures all linear layers, those of attention, and the two wide ones: the
cosine of the vectors with those in fp32, if all other layers stay in fp32; and the time of the layers' products in bf16
divided by the time of 8 bits, which is that of finding scales, rounding, PyTorch's 8-bit product and scaling back.
"""

import argparse
import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from products import LONGEST, measure_pass
from texts import documentation
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

BATCH = 32
LARGEST = 127  # of 8 bits with a sign; the least is -127, so that zero is in the middle


class EightBits(nn.Module):
    """A linear layer whose inputs are rounded by token and whose weights are rounded by output."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        self.in_features = layer.in_features
        self.scale = weight.abs().amax(1) / LARGEST
        # shape (inputs, outputs), as the product needs it
        self.weight = (weight / self.scale[:, None]).round().to(torch.int8).t().contiguous()
        self.bias = layer.bias.detach().float()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the layer's outputs, (..., outputs), in the inputs' precision."""
        rows = inputs.flatten(0, -2)
        scale = rows.abs().amax(1, keepdim=True).float().clamp_min(1e-8) / LARGEST
        rounded = (rows / scale).round_().to(torch.int8)
        product = torch._int_mm(rounded, self.weight).float()
        outputs = product.mul_(scale).mul_(self.scale).add_(self.bias)
        return outputs.to(inputs.dtype).unflatten(0, inputs.shape[:-1])


def is_wide(layer: nn.Linear) -> bool:
    """Return whether a layer is one of BERT's two wide ones."""
    return layer.in_features != layer.out_features


CHOICES: dict[str, Callable[[nn.Linear], bool]] = {
    "all": lambda layer: True,
    "attention": lambda layer: not is_wide(layer),
    "wide": is_wide,
}


def replace_layers(module: nn.Module, chosen: Callable[[nn.Linear], bool]) -> None:
    """Replace the chosen linear layers of a module by layers that compute in 8 bits."""
    for name, child in module.named_children():
        if not isinstance(child, nn.Linear):
            replace_layers(child, chosen)
        elif chosen(child):
            setattr(module, name, EightBits(child))


def encode(model: Any, tokenizer: Any, texts: list[str]) -> Tensor:
    """Return the mean vectors of texts at length 1, (texts, dimension)."""
    vectors = []
    with torch.inference_mode():
        for start in range(0, len(texts), BATCH):
            batch = tokenizer(
                texts[start : start + BATCH],
                padding=True,
                truncation=True,
                max_length=LONGEST,
                return_tensors="pt",
            )
            states = model(**batch).last_hidden_state
            is_token = batch["attention_mask"][..., None]
            vectors.append(functional.normalize((states * is_token).sum(1), dim=1))
    return torch.cat(vectors)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", type=Path, help="its folder; otherwise the embedded default's")
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=1024, help="of a pass")
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        from training import default_encoder

        folder = str(options.encoder or default_encoder(Path(temporary)))
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    passages = [group[0] for group in documentation(options.texts, 1).passages]
    exact = encode(model.eval(), tokenizer, passages)
    for choice, chosen in CHOICES.items():
        rounded = copy.deepcopy(model)
        replace_layers(rounded.encoder, chosen)
        cosines = (encode(rounded, tokenizer, passages) * exact).sum(1)
        print(f"cosine_{choice}\t{cosines.mean():.5f}\t\t\tmean, with fp32")
        print(f"cosine_{choice}\t{cosines.min():.5f}\t\t\tleast, with fp32")
        layers = [
            layer
            for layer in model.encoder.modules()
            if isinstance(layer, nn.Linear) and chosen(layer)
        ]
        rounded_layers = [EightBits(layer) for layer in layers]
        plain_layers = [copy.deepcopy(layer).bfloat16() for layer in layers]
        eight, plain = (
            measure_pass(some, torch.bfloat16, options.tokens, options.seconds)
            for some in (rounded_layers, plain_layers)
        )
        print(f"time_{choice}\t{plain / eight:.2f}\t\t\tof bf16's products over those of 8 bits")


if __name__ == "__main__":
    main()
