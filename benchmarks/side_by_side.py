"""One batch per thread against threads that share every operation: training steps, vectors, scores of pairs.

    python benchmarks/side_by_side.py [--only fp32 bf16] [--rounds 5] [--encoder FOLDER] [--out FILE]

Both ways take turns in one process, and the medians are compared. Each measurement has a line, separated by tabs: what,
side by side, shared, ratio, unit. A training's step is its forward and backward passes, with the batches of
`training.py`. Encoding and scoring are those of the stages, with their batches: when threads shared a batch, it had
4,096 tokens, not 2,048. The machine should be idle. With `ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2`, a larger
processor computes like one that has only AVX2.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

from figures import markdown
from texts import documentation, make
from training import default_encoder
from training_ours import crossed, objective, ragged
from training_peers import STEP
from turns import precisions_here

from tandem.config.settings import Execution
from tandem.extras import side_by_side
from tandem.models import dual
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder
from tandem.models.device import keep_memory, make_deterministic
from tandem.models.dual import DualEncoder, encode_all
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Template
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch

TEXTS = 1000
SHARED_TOKENS = 4096
NOTE = """`python benchmarks/side_by_side.py`: seconds, batches on a thread each (ours) and threads that share every
operation (peer) in turn, medians of {rounds} rounds."""


def make_step(what: str, folder: Path, precision: str) -> Callable[[bool], None]:
    """Return a function that runs one batch forward and backward, side by side or not."""
    queries, size = STEP[what]
    examples = make(load_tokenizer(folder), queries, size)
    goals = {
        way: objective(what, folder, examples, precision, Budget(2048, 16384, way))
        for way in (True, False)
    }

    def step(way: bool) -> None:
        goal, lists = goals[way]
        goal.models.zero_grad(set_to_none=True)
        batch = Batch(lists.queries, lists.passages.reshape(queries, size))
        goal.backward(batch, Seeds((1, 0)))

    return step


@contextmanager
def sharing_threads() -> Iterator[None]:
    """Compute batches one after another within the context: threads share each operation, with the old batch size."""
    with (
        mock.patch.object(
            side_by_side, "map_side_by_side", lambda compute, items: map(compute, items)
        ),
        mock.patch.object(dual, "_CPU_TOKENS", SHARED_TOKENS),
    ):
        yield


def make_inference(what: str, folder: Path, precision: str) -> Callable[[bool], None]:
    """Return a function that encodes passages, or scores pairs, side by side or not."""
    tokenizer = load_tokenizer(folder)
    template = Template.of(tokenizer)
    examples = documentation(TEXTS, 1)
    passages = ragged(tokenizer, [group[0] for group in examples.passages])
    queries = ragged(tokenizer, examples.queries)
    model: DualEncoder | CrossEncoder
    if what == "encode":
        model = DualEncoder.start(
            folder, shared=True, pooling="mean", normalize=True, temperature=0.05
        )
    else:
        model = CrossEncoder.load(crossed(folder))
    accelerate(model.eval(), Execution(), SHARED_TOKENS, precision, training=False)

    def compute(way: bool) -> None:
        with nullcontext() if way else sharing_threads():
            if isinstance(model, DualEncoder):
                encode_all(model, "passage", passages, template, precision, SHARED_TOKENS)
            else:
                model.score(queries, passages, template, precision, SHARED_TOKENS)

    return compute


def measure(folder: Path, precisions: list[str], rounds: int) -> Iterator[str]:
    """Yield the line of each measurement, as it is made."""
    names = [(name, make_step) for name in STEP] + [
        (name, make_inference) for name in ("encode", "score")
    ]
    for precision in precisions:
        for name, prepare in names:
            compute = prepare(name, folder, precision)
            taken: dict[bool, list[float]] = {True: [], False: []}
            for turn in range(rounds + 1):
                for way, seconds in taken.items():
                    began = time.perf_counter()
                    compute(way)
                    if turn:  # the first one imports and allocates
                        seconds.append(time.perf_counter() - began)
            ours, shared = (statistics.median(taken[way]) for way in (True, False))
            yield f"{name}_{precision}\t{ours:.3f}\t{shared:.3f}\t{shared / ours:.2f}\ts"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=["fp32", "bf16"], help="these precisions alone"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--encoder", type=Path, help="its folder; otherwise the embedded default's")
    parser.add_argument("--out", type=Path, help="also write the figures to this Markdown file")
    options = parser.parse_args()
    make_deterministic()
    keep_memory()
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.encoder or default_encoder(Path(temporary))
        for line in measure(folder, options.only or list(precisions_here()), options.rounds):
            print(line, flush=True)
            lines.append(line)
    if options.out:
        note = NOTE.format(rounds=options.rounds)
        options.out.write_text(markdown("Batches side by side", note, lines), encoding="utf-8")


if __name__ == "__main__":
    main()
