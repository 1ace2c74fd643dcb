"""Speed of work next to other programs on the same cores, by the way in which its idle threads wait.

    python benchmarks/contended.py [--only train faiss blas] [--busy 0 1 2] [--rounds N] [--seconds S]
                                   [--way NAME=VARIABLE=VALUE[,…] …] [--intel LIBIOMP5.SO] [--out FILE]

One line per measurement, separated by tabs: what, ours, peer, ratio, unit. For each way of waiting, a process does the
same work on two threads when it is its turn. In a round, the processes take turns next to no, one and two busy
programs, in a different order each time. Medians over the rounds are compared. A busy program is a training on two
threads with the libraries' default way of waiting; it is stopped between the turns. The ways are `ours`, Tandem's
setting (`tandem.cluster.threads`); longer or shorter spinning by GNU's OpenMP (`1,000` and `300` turns of its loop);
`passive` (OpenMP's word for sleeping at once); and `unset`, the libraries' default. For each, the script measures the
steps per second; the processor's milliseconds per step, which other work on the machine disturbs least; and the share
of the idle rate that is left next to busy programs. The machine must be idle otherwise.

The work: `train`, steps of two transformer layers of 384 with 8 texts of 64 tokens, fp32 (OpenMP, by torch); `faiss`,
exact search for 64 queries among 20,000 vectors of 384 (OpenMP, by FAISS); `blas`, products of 384 × 384 matrices and
pauses between them (OpenBLAS, by numpy). `--intel` replaces torch's OpenMP by Intel's, from the package intel-openmp.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from figures import markdown

from tandem.cluster.threads import _POLICY, WAITING

THREADS = 2
WAYS = {
    "ours": WAITING,
    "1,000": {"GOMP_SPINCOUNT": "1000"},
    "300": {"GOMP_SPINCOUNT": "300"},
    "passive": {_POLICY: "PASSIVE"},
    "unset": {},
}
LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SETTLE = 0.5  # seconds after a busy program continues or stops
NOTE = """`python benchmarks/contended.py`: {threads} threads, medians of {rounds} rounds of {seconds:g} s. {runtime}
Load of the machine by other work before it began: {load:.1f}. Ours is `ours` ({ours}); the peer is named in the
line."""


def train() -> Callable[[], object]:
    """Return a function that does a training step of a small encoder."""
    import torch
    from torch import nn

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        384, 12, 1536, dropout=0.0, activation="gelu", batch_first=True
    )
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    texts = torch.randn(8, 64, 384)

    def step() -> None:
        model(texts).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def faiss() -> Callable[[], object]:
    """Return a function that does an exact search."""
    import faiss
    import numpy as np

    faiss.omp_set_num_threads(THREADS)
    vectors = np.random.default_rng(0).normal(size=(20_000, 384)).astype(np.float32)
    index = faiss.IndexFlatIP(384)
    index.add(vectors)
    return lambda: index.search(vectors[:64], 10)


def blas() -> Callable[[], object]:
    """Return a function that computes products of matrices, each followed by some work in Python."""
    import numpy as np

    matrix = np.random.default_rng(0).normal(size=(384, 384)).astype(np.float32)

    def step() -> None:
        for _ in range(20):
            sum(range(int(abs(matrix @ matrix)[0, 0]) + 20_000))

    return step


WORK = {"train": train, "faiss": faiss, "blas": blas}


def answer(step: Callable[[], object]) -> None:
    """Do steps for the seconds in each line of standard input; print steps per second, processor seconds per step."""
    step()
    print("ready", flush=True)
    for line in sys.stdin:
        step()
        before, began, steps = processor(), time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < float(line):
            step()
            steps += 1
        print(json.dumps([steps / passed, (processor() - before) / max(1, steps)]), flush=True)


def processor() -> float:
    """Return the processor seconds of this process, over all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def disturb(step: Callable[[], object]) -> None:
    """Do steps until the process is ended."""
    step()
    print("ready", flush=True)
    while True:
        step()


class Child:
    """A process of this script (`--answer WORK` or `--disturb WORK`), used as a context manager."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in (*WAITING, _POLICY, *LIMITS)
        }
        line = [sys.executable, __file__, *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(line, env=inherited | environment, text=True, **pipes)

    def __enter__(self) -> Self:
        if self.read() != "ready":
            raise SystemExit("a process did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def read(self) -> str:
        """Return the next line that the process prints."""
        return self.process.stdout.readline().strip()

    def measure(self, seconds: float) -> list[float]:
        """Return steps per second and processor seconds per step."""
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return json.loads(self.read())

    def stop(self) -> None:
        """Stop the process until `go_on`."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the process continue."""
        self.process.send_signal(signal.SIGCONT)


@dataclass
class Figures:
    """Rates and processor seconds by way and number of busy programs, one value per round."""

    rates: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    processor: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def add(self, way: str, busy: int, rate: float, seconds: float) -> None:
        """Add the measurements of a way in a round."""
        self.rates.setdefault((way, busy), []).append(rate)
        self.processor.setdefault((way, busy), []).append(seconds)

    def lines(self, name: str) -> list[str]:
        """Return the lines: `ours` against every other way, then the share of the idle rate that each way keeps."""
        rates = {key: statistics.median(values) for key, values in self.rates.items()}
        spent = {key: 1000 * statistics.median(values) for key, values in self.processor.items()}
        ways = list(dict.fromkeys(way for way, _ in rates))
        counts = list(dict.fromkeys(busy for _, busy in rates))
        lines = []
        for busy in counts:
            place = f"{name} beside {busy} busy" if busy else f"{name} alone"
            for way in ways:
                if way == "ours":
                    continue
                for values, unit in ((rates, "steps/s"), (spent, "processor ms/step")):
                    ours, peer = values["ours", busy], values[way, busy]
                    lines.append(
                        f"{place}, peer {way}\t{ours:.2f}\t{peer:.2f}\t{ours / peer:.2f}\t{unit}"
                    )
        for busy in counts:
            if busy == 0 or 0 not in counts:
                continue
            for way in ways:
                beside, alone = rates[way, busy], rates[way, 0]
                figures = f"{beside:.2f}\t{alone:.2f}\t{beside / alone:.2f}"
                lines.append(f"{name}, {way}, beside {busy} busy and alone\t{figures}\tsteps/s")
        return lines


def compare(
    name: str, ways: dict[str, dict[str, str]], counts: list[int], rounds: int, seconds: float
) -> Figures:
    """Return the measurements of one kind of work."""
    figures, names = Figures(), list(ways)
    with ExitStack() as opened:
        sides, others = {}, []
        for way, variables in ways.items():
            sides[way] = opened.enter_context(Child(["--answer", name], variables))
        for _ in range(max(counts)):
            others.append(opened.enter_context(Child(["--disturb", "train"], {})))
            others[-1].stop()
        for number in range(rounds):
            for busy in counts:
                for other in others[:busy]:
                    other.go_on()
                time.sleep(SETTLE)
                start = number % len(names)
                turn = [*names[start:], *names[:start]]
                for way in turn if number % 2 else reversed(turn):
                    figures.add(way, busy, *sides[way].measure(seconds))
                for other in others[:busy]:
                    other.stop()
                time.sleep(SETTLE)
    return figures


def parse_way(text: str) -> tuple[str, dict[str, str]]:
    """Return the name and the variables of a way such as `300=GOMP_SPINCOUNT=300,KMP_BLOCKTIME=0`."""
    name, _, variables = text.partition("=")
    return name, dict(pair.split("=", 1) for pair in variables.split(",") if pair)


def main() -> None:
    """Print the figures, and write them into a file if one is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=WORK, default=[*WORK])
    parser.add_argument("--busy", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--way", action="append", type=parse_way, default=[])
    parser.add_argument("--intel", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--answer", choices=WORK, help=argparse.SUPPRESS)
    parser.add_argument("--disturb", choices=WORK, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer or options.disturb:
        (answer if options.answer else disturb)(WORK[options.answer or options.disturb]())
        return
    load, lines = os.getloadavg()[0], []
    preloaded = {"LD_PRELOAD": str(options.intel.resolve())} if options.intel else {}
    ways = {name: variables | preloaded for name, variables in [*WAYS.items(), *options.way]}
    for name in options.only:
        for line in compare(name, ways, options.busy, options.rounds, options.seconds).lines(name):
            print(line, flush=True)
            lines.append(line)
    if options.out:
        runtime = "torch on Intel's OpenMP." if options.intel else "torch on GNU's OpenMP."
        ours = ", ".join(f"{name}={value}" for name, value in WAITING.items())
        about = {"threads": THREADS, "rounds": options.rounds, "seconds": options.seconds}
        note = NOTE.format(**about, runtime=runtime, load=load, ours=ours)
        options.out.write_text(markdown("Beside other work", note, lines), encoding="utf-8")


if __name__ == "__main__":
    main()
