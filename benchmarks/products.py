"""Matrix products of an encoder's linear layers alone, as passages a second: no encoder in this precision is faster.

    python benchmarks/products.py [--encoder FOLDER] [--texts N] [--tokens 4096] [--seconds 10]

What `encoding.py` measures has attention, norms, activations, tokenisation and writing besides. Each layer's weights
are their own, as in an encoder, so that they come from memory; the products of so many tokens at once take turns, and
the median pass counts.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from texts import documentation
from transformers import AutoConfig, AutoTokenizer
from turns import precisions_here

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LONGEST = 128  # tokens of a passage, as in encoding.py


def count_tokens(encoder: Path, passages: list[str]) -> float:
    """Return the mean number of tokens of a passage, the special ones included."""
    tokenizer = AutoTokenizer.from_pretrained(str(encoder))
    ids = tokenizer(passages, truncation=True, max_length=LONGEST)["input_ids"]
    return sum(map(len, ids)) / len(ids)


def list_weights(encoder: Path, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Yield the linear layers of BERT: query, key and value at once, output, and the two wide ones."""
    config = AutoConfig.from_pretrained(str(encoder))
    hidden, wide = config.hidden_size, config.intermediate_size
    for _ in range(config.num_hidden_layers):
        for size in ((hidden, 3 * hidden), (hidden, hidden), (hidden, wide), (wide, hidden)):
            yield torch.randn(*size, dtype=dtype)


def measure_pass(encoder: Path, dtype: torch.dtype, tokens: int, seconds: float) -> float:
    """Return the median seconds of all layers' products of so many tokens."""
    weights = list(list_weights(encoder, dtype))
    inputs = {
        weight.shape[0]: torch.randn(tokens, weight.shape[0], dtype=dtype) for weight in weights
    }
    taken = []
    end = time.perf_counter() + seconds
    with torch.inference_mode():
        while time.perf_counter() < end:
            began = time.perf_counter()
            for weight in weights:
                torch.mm(inputs[weight.shape[0]], weight)
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
            took = measure_pass(encoder, DTYPES[precision], options.tokens, options.seconds)
            flops = sum(2 * weight.numel() for weight in list_weights(encoder, torch.float32))
            rate = flops * options.tokens / took / 1e9
            print(f"products_{precision}\t{options.tokens / took / length:,.1f}\t\t\tpassages/s")
            print(f"products_{precision}\t{rate:,.0f}\t\t\tGFLOP/s")


if __name__ == "__main__":
    main()
