"""Matrix products of an encoder's linear layers, in passages per second: the upper bound that oneDNN sets to encoding.

    python benchmarks/products.py [--encoder FOLDER] [--texts N] [--tokens 4096] [--seconds 10]

`encoding.py` also measures attention, norms, activations, tokenisation and writing. Each layer has its own weights, as
in an encoder, so that they are read from memory. The products of `--tokens` tokens at once take turns, and the median
pass counts. With `ONEDNN_MAX_CPU_ISA=AVX2`, oneDNN computes as on a processor without AVX-512.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from texts import documentation
from torch import nn
from transformers import AutoConfig, AutoTokenizer
from turns import precisions_here

from tandem.models.acceleration import FrozenLinear

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LONGEST = 128  # tokens of a passage, as in encoding.py


def count_tokens(encoder: Path, passages: list[str]) -> float:
    """Return the mean number of tokens of a passage, the special ones included."""
    tokenizer = AutoTokenizer.from_pretrained(str(encoder))
    ids = tokenizer(passages, truncation=True, max_length=LONGEST)["input_ids"]
    return sum(map(len, ids)) / len(ids)


def make_layers(encoder: Path, dtype: torch.dtype, rows: int) -> Iterator[FrozenLinear]:
    """Yield the linear layers of BERT: query, key and value at once, output, and the two wide ones."""
    config = AutoConfig.from_pretrained(str(encoder))
    hidden, wide = config.hidden_size, config.intermediate_size
    for _ in range(config.num_hidden_layers):
        for size in ((hidden, 3 * hidden), (hidden, hidden), (hidden, wide), (wide, hidden)):
            yield FrozenLinear(nn.Linear(*size, bias=False), dtype, rows, gelu=False)


def measure_pass(layers: Sequence[Any], dtype: torch.dtype, tokens: int, seconds: float) -> float:
    """Return the median seconds of all layers' products of `tokens` tokens; a layer has `in_features`."""
    widths = {layer.in_features for layer in layers}
    inputs = {width: torch.randn(tokens, width, dtype=dtype) for width in widths}
    taken = []
    end = time.perf_counter() + seconds
    with torch.inference_mode():
        while time.perf_counter() < end:
            began = time.perf_counter()
            for layer in layers:
                layer(inputs[layer.in_features])
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", type=Path, help="its folder; otherwise the embedded default's")
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=4096, help="of a pass")
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        from training import default_encoder

        encoder = options.encoder or default_encoder(Path(temporary))
        groups = documentation(options.texts, 1).passages
        length = count_tokens(encoder, [group[0] for group in groups])
        print(f"tokens\t{length:.1f}\t\t\ta passage")
        for precision in precisions_here():
            layers = list(make_layers(encoder, DTYPES[precision], options.tokens))
            took = measure_pass(layers, DTYPES[precision], options.tokens, options.seconds)
            flops = sum(2 * layer.in_features * layer.out_features for layer in layers)
            rate = flops * options.tokens / took / 1e9
            print(f"products_{precision}\t{options.tokens / took / length:,.1f}\t\t\tpassages/s")
            print(f"products_{precision}\t{rate:,.0f}\t\t\tGFLOP/s")


if __name__ == "__main__":
    main()
