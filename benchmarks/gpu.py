"""Joint training and encoding with BERT-base on one device: queries and passages per second, and the share of its peak.

    python benchmarks/gpu.py [--quick] [--list 128] [--queries 8] [--out FILE]

One line per measurement, separated by tabs: what, ours, peer, ratio, unit. A joint step is RocketQAv2's: 8 queries with
128 passages each, MS MARCO's lengths, both models BERT-base with random weights, bf16. The peer is a plain loop with a
micro-batch per query, padded to its longest text. `MFU` is the model's operations per second (2 per weight and token,
plus attention; the backward pass counts as twice the forward pass), divided by the measured peak of large matrix
products. `--quick` takes a tiny model and runs anywhere.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from figures import markdown
from texts import Examples, make
from training import default_encoder
from training_ours import objective, ragged
from training_peers import LR, TEMPERATURE, autocast, joint_loss, joint_models

from tandem.config.settings import Execution
from tandem.models.acceleration import accelerate
from tandem.models.device import device, make_deterministic
from tandem.models.dual import DualEncoder, encode_all
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Template
from tandem.plan.sizes import EncoderShape
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch
from tandem.training.objectives import Objective

BASE = EncoderShape(layers=12, hidden=768, feed_forward=3072, vocabulary=30522)
TINY = EncoderShape(layers=2, hidden=64, feed_forward=128, vocabulary=30522)
WAYS = {
    "padded": Execution(attention="padded", compile="never"),
    "packed": Execution(attention="packed", compile="never"),
    "packed, compiled": Execution(attention="packed", compile="always"),
}
BLOCK = 16_384  # passages that are encoded: as many as in a block of the stage
NOTE = "`python benchmarks/gpu.py`: medians over steps, after as many that are not counted."


def encoder_of(shape: EncoderShape, into: Path) -> Path:
    """Write a BERT of this shape with random weights and the pinned encoder's tokenizer; return its folder."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    heads = max(1, shape.hidden // 64)
    config = BertConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, num_hidden_layers=shape.layers,
        num_attention_heads=heads, intermediate_size=shape.feed_forward,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(into / "model")
    load_tokenizer(default_encoder(into)).save_pretrained(into / "model")
    return into / "model"


def median(step: Callable[[int], None], count: int) -> float:
    """Return the median seconds of `count` steps, after as many steps that are not counted."""
    taken = []
    for number in range(2 * count):
        began = time.perf_counter()
        step(number)
        if device().type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[count:])


def peak(size: int) -> float:
    """Return the TFLOP/s of a product of two square matrices in bf16."""
    a, b = (torch.randn(size, size, device=device(), dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / median(lambda _: torch.mm(a, b).sum(), 5) / 1e12


def operations(shape: EncoderShape, goal: Objective, queries: int, size: int) -> float:
    """Return the floating-point operations of a joint step over the first lists."""
    q, p = (
        float(len(side.ids)) / len(side) for side in (goal.tokens.queries, goal.tokens.passages)
    )
    dual = shape.forward(queries, q + 2) + shape.forward(queries * size, p + 2)
    return 3 * (dual + shape.forward(queries * size, q + p + 3))


def joint_ours(
    folder: Path, examples: Examples, way: Execution, budget: Budget, count: int
) -> tuple[float, Objective]:
    """Return the seconds of our step, and the objective."""
    # as in the training loop, which uses a slower backward pass of attention on CUDA
    make_deterministic()
    goal, lists = objective("joint", folder, examples, "bf16", budget, way)
    optimizer = torch.optim.AdamW(goal.models.parameters(), lr=LR, fused=True)
    size = len(examples.passages[0])
    batch = Batch(lists.queries, lists.passages.reshape(-1, size))

    def step(number: int) -> None:
        """Do one optimizer step on all lists."""
        optimizer.zero_grad(set_to_none=True)
        goal.models.train()
        goal.backward(batch, Seeds((0, number)))
        optimizer.step()

    return median(step, count), goal


def joint_peer(folder: Path, examples: Examples, count: int) -> float:
    """Return the seconds of a step of the plain loop."""
    models = joint_models(folder)
    learning = [
        p for name, model in models.items() if name != "tokenizer" for p in model.parameters()
    ]
    optimizer = torch.optim.AdamW(learning, lr=LR, fused=True)
    queries, size = len(examples.queries), len(examples.passages[0])

    def step(_: int) -> None:
        """Do one optimizer step on all lists, a query at a time."""
        optimizer.zero_grad(set_to_none=True)
        for query in range(queries):
            with autocast("bf16"):
                loss = joint_loss(models, examples, range(query, query + 1), size) / queries
            loss.backward()
        optimizer.step()

    return median(step, count)


def encoding(folder: Path, examples: Examples, way: Execution, budget: int, count: int) -> float:
    """Return the passages encoded per second."""
    torch.use_deterministic_algorithms(False)  # only trainings set it
    tokenizer = load_tokenizer(folder)
    texts, template = (
        ragged(tokenizer, [text for group in examples.passages for text in group]),
        Template.of(tokenizer),
    )
    towers = {"shared": True, "pooling": "cls", "normalize": False, "temperature": TEMPERATURE}
    model = DualEncoder.start(folder, **towers).to(device()).eval()
    accelerate(model, way, budget, "bf16", training=False)

    def step(_: int) -> None:
        """Encode all passages as the stage `embeddings` computes a block."""
        encode_all(model, "passage", texts, template, "bf16", budget, torch.float16)

    return len(texts) / median(step, count)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="a tiny model and lists of 4: whether it runs"
    )
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--list", type=int, default=128)
    parser.add_argument("--out", type=Path, help="also write the figures to this Markdown file")
    options = parser.parse_args()
    shape, size, count = (TINY, 4, 1) if options.quick else (BASE, options.list, 5)
    budget = Budget(2048, 8192) if options.quick else Budget(32768, 262144)
    lines = []

    def tell(name: str, ours: float, peer: float | None, unit: str) -> None:
        """Print a line and store it."""
        other = "\t\t" if peer is None else f"\t{peer:,.2f}\t{ours / peer:.2f}"
        lines.append(f"{name}\t{ours:,.2f}{other}\t{unit}")
        print(lines[-1], flush=True)

    best = peak(512 if options.quick else 8192)
    tell("peak", best, None, "TFLOP/s of matrix products in bf16")
    with tempfile.TemporaryDirectory() as temporary:
        folder = encoder_of(shape, Path(temporary))
        examples = make(load_tokenizer(folder), options.queries, size)
        peer = options.queries / joint_peer(folder, examples, count)
        for name, way in WAYS.items():
            seconds, goal = joint_ours(folder, examples, way, budget, count)
            tell(f"joint, {name}", options.queries / seconds, peer, "queries/s")
            share = operations(shape, goal, options.queries, size) / best / 1e12
            tell(f"joint, {name}, MFU", share / seconds, share * peer / options.queries, "of peak")
        many = make(load_tokenizer(folder), 64 if options.quick else BLOCK, 1)
        padded = encoding(folder, many, WAYS["padded"], budget.micro_tokens, count)
        for name in ("packed", "packed, compiled"):
            packed = encoding(folder, many, WAYS[name], budget.micro_tokens, count)
            tell(f"encoding, {name}", packed, padded, "passages/s")
    if options.out:
        options.out.write_text(markdown("One device", NOTE, lines))


if __name__ == "__main__":
    main()
