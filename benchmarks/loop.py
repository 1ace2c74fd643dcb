"""The time that the training loop spends outside the models, and the share of padding.

    python benchmarks/loop.py [--quick] [--out FILE]

One line per measurement, separated by tabs: what, ours, peer, ratio, unit. `overhead` is the share of a training's wall
time outside the encoders' forward passes, backward passes and optimizer steps. It is measured with an encoder of two
layers, where it matters most. `padding` is the share of computed tokens that are padding, for steps with MS MARCO's
lengths; the peer pads batches of the same number of texts, in their given order, to their longest text.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import markdown
from texts import lengths, make
from training_ours import objective
from training_ours import train as train_ours
from training_peers import STEP

from tandem.models.hub import load_tokenizer
from tandem.models.ragged import make_micro_batches
from tandem.training.forward import MULTIPLE, Budget

NOTE = "`python benchmarks/loop.py`: an encoder of 2 layers and 384 dimensions; lengths as in benchmarks/texts.py."
SHAPES = ((96, 128), (8, 128), (32, 8), (32, 2))  # queries of a step, passages of a list


@dataclass
class Clock:
    """The seconds spent in wrapped calls; wrapped calls within wrapped calls count once."""

    seconds: float = 0.0
    inside: bool = False

    def wrap(self, owner: Any, name: str) -> None:
        """Time a method from now on."""
        called = getattr(owner, name)

        def timed(*words: Any, **named: Any) -> Any:
            """Call the method, and time it unless another timed method has called it."""
            if self.inside:
                return called(*words, **named)
            self.inside, began = True, time.perf_counter()
            try:
                return called(*words, **named)
            finally:
                self.inside = False
                self.seconds += time.perf_counter() - began

        setattr(owner, name, timed)


def two_layers(into: Path) -> Path:
    """Write the first two layers of the pinned encoder with its tokenizer; return their folder."""
    from training import default_encoder
    from transformers import AutoModel

    whole = default_encoder(into)
    model = AutoModel.from_pretrained(whole, num_hidden_layers=2, add_pooling_layer=False)
    model.save_pretrained(into / "two")
    load_tokenizer(whole).save_pretrained(into / "two")
    return into / "two"


def overhead(what: str, folder: Path, steps: int) -> str:
    """Return the line with the share of wall time outside forward pass, backward pass and optimizer step."""
    queries, size = STEP[what]
    examples = make(load_tokenizer(folder), (steps + 2) * queries, size)
    objective(what, folder, examples, "fp32", Budget())  # imports
    clock = Clock()
    from transformers.models.bert.modeling_bert import BertModel

    clock.wrap(BertModel, "forward")
    clock.wrap(torch.Tensor, "backward")
    clock.wrap(torch.optim.AdamW, "step")
    began: list[float] = []
    with tempfile.TemporaryDirectory() as out:
        for count in (2, 2 + steps):
            clock.seconds, start = 0.0, time.perf_counter()
            model = Path(out) / "model-0000000000"
            train_ours(what, folder, model, examples, "fp32", count, side_by_side=False)
            began.append(time.perf_counter() - start - clock.seconds)
            spent = time.perf_counter() - start
    share = (began[1] - began[0]) / spent
    return f"{what} overhead\t{share:.3f}\t\t\tof wall time"


def padding() -> Iterator[str]:
    """Yield lines with the share of padding in steps of different shapes, for texts and for pairs."""
    rng = np.random.default_rng(0)
    for queries, size in SHAPES:
        passages, query_lengths = (
            lengths(rng, "passage", queries * size) + 2,
            lengths(rng, "query", queries),
        )
        for name, rows in (
            ("texts", passages),
            ("pairs", passages + np.repeat(query_lengths, size) + 1),
        ):
            for budget in (2048, 16384):
                parts = make_micro_batches(rows, budget, MULTIPLE, None)
                ours = _padded([rows[part] for part in parts], MULTIPLE)
                each = max(1, round(len(rows) / len(parts)))
                peer = _padded(
                    [rows[start : start + each] for start in range(0, len(rows), each)], 1
                )
                yield (
                    f"padding of {name}, {queries} queries with {size}, {budget:,} tokens\t{ours:.3f}\t{peer:.3f}"
                    f"\t{ours / peer:.2f}\tof computed tokens"
                )


def _padded(batches: list[Any], multiple: int) -> float:
    """Return the share of padding in batches that are padded to their longest text, up to a multiple."""
    computed = sum(len(rows) * -(-int(rows.max()) // multiple) * multiple for rows in batches)
    return 1 - sum(int(rows.sum()) for rows in batches) / computed


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--out", type=Path, help="also write the figures to this Markdown file")
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = two_layers(Path(temporary))
        for what in STEP:
            lines.append(overhead(what, folder, 3 if options.quick else 10))
            print(lines[-1], flush=True)
    for line in padding():
        print(line)
        lines.append(line)
    if options.out:
        options.out.write_text(markdown("The training loop", NOTE, lines))


if __name__ == "__main__":
    main()
