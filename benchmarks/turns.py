"""Compare two sides that do the same work on the same texts, as processes that take turns, by their medians.

    python benchmarks/<work>.py [--quick] [--only fp32 bf16] [--texts N] [--made-up] [--encoder FOLDER] [--out FILE]
                                [--also PEER=PYTHON]

One line per measurement, separated by tabs: what, ours, peer, ratio, unit. A process does the work once on a few texts,
which imports and allocates, and then on all texts with the clock running: from loading the model to the last result,
tokenisation included. Texts are API documentation, the embedded default's passages and queries; `--made-up` takes
random words with MS MARCO's lengths. Ours in bf16 is compared with the peer in fp32, its default, and with the peer in
bf16. `--also` adds a peer whose libraries are in an environment of their own, by that environment's Python. `processor`
are the processor seconds of all threads together: if other work disturbs, their ratio is more reliable.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from figures import markdown

from tandem.store.environment import peak_mib

ROUNDS, FEW = 3, 64
COMPARED = 500  # texts whose results are compared for their quality


@dataclass(frozen=True)
class Work:
    """The work that is measured.

    Attributes:
        title: of the file of figures.
        name: of the lines: `<name>_fp32`, `<name>_bf16`.
        unit: the unit that is counted.
        texts: the number of texts, by default and with `--quick`.
        prepare: writes the texts into a folder: (folder, the encoder's folder, number of texts, made-up or not).
        sides: `ours`, `peer` and those of `--also`: (prepared folder, precision) → number of units done.
        difference: returns the largest difference of results between ours in a precision and the peer in fp32.
        note: the text above the figures.
        encoder: creates the encoder's folder within a folder, if `--encoder` names none; None: the embedded default.
        quality: how close a side's results are to the peer's in fp32: the name of the number, and a function
            (prepared folder, side, precision) → number.
    """

    title: str
    name: str
    unit: str
    texts: tuple[int, int]
    prepare: Callable[[Path, Path, int, bool], None]
    sides: dict[str, Callable[[Path, str], int]]
    difference: Callable[[Path, str], float]
    note: str
    encoder: Callable[[Path], Path] | None = None
    quality: tuple[str, Callable[[Path, str, str], float]] | None = None


def has_own_precision(side: str) -> bool:
    """Return whether a further peer has a fixed precision, which is in its name."""
    return side.endswith(("-fp32", "-int8"))


def child(work: Work, side: str, folder: Path, precision: str) -> list[float]:
    """Do the work as one side; return units per second, processor seconds, and peak MiB."""
    work.sides[side](folder / "few", precision)
    began, computed = time.perf_counter(), time.process_time()
    done = work.sides[side](folder / "whole", precision)
    return [done / (time.perf_counter() - began), time.process_time() - computed, peak_mib()]


def answer(work: Work, what: str, folder: Path, precision: str) -> list[float]:
    """Return the numbers that a child process is asked for: a side's figures, or how close its results are."""
    if what == "difference":
        return [work.difference(folder / "few", precision)]
    kind, _, side = what.partition(" of ")
    if kind == "quality":
        assert work.quality is not None
        return [work.quality[1](folder / "quality", side, precision)]
    return child(work, what, folder, precision)


def run(*words: str, python: str = sys.executable) -> list[float]:
    """Return the numbers that a child process prints."""
    done = subprocess.run([python, sys.argv[0], "--child", *words], capture_output=True)
    if done.returncode:
        raise SystemExit(f"--child {' '.join(words)} failed:\n{done.stderr.decode()[-2000:]}")
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def lines(
    work: Work, precisions: list[str], folder: Path, rounds: int, also: dict[str, str]
) -> Iterator[str]:
    """Yield the lines of all measurements; `also` contains the Python of each further peer."""
    pythons = {"ours": sys.executable, "peer": sys.executable} | also
    for precision in precisions:
        difference = run("difference", precision, str(folder))[0]
        yield f"{work.name}_{precision} difference\t{difference:.1e}\t\t\tlargest, from the peer in fp32"
    selected = []
    for precision in dict.fromkeys(["fp32", *precisions]):  # the peer's default is fp32
        for side in pythons:
            is_wanted = precision in precisions if side == "ours" else True
            if is_wanted and (precision == "fp32" or not has_own_precision(side)):
                selected.append((side, precision))
    if work.quality is not None:
        for side, precision in selected:
            name = side if has_own_precision(side) else f"{side} in {precision}"
            number = run(f"quality of {side}", precision, str(folder), python=pythons[side])[0]
            yield f"{work.name} quality ({name})\t{number:.5f}\t\t\t{work.quality[0]}"
    taken: dict[tuple[str, str], list[list[float]]] = {case: [] for case in selected}
    for _ in range(rounds):
        for (side, precision), results in taken.items():
            results.append(run(side, precision, str(folder), python=pythons[side]))
    rate, processor, memory = (
        {
            case: statistics.median(figures[i] for figures in results)
            for case, results in taken.items()
        }
        for i in range(3)
    )
    for precision in precisions:
        ours, name = rate["ours", precision], f"{work.name}_{precision}"
        for side, of in itertools.product(["peer", *also], dict.fromkeys(["fp32", precision])):
            if (side, of) not in rate:
                continue
            peer = rate[side, of]
            suffix = f" ({side})" if has_own_precision(side) else f" ({side} in {of})"
            suffix = "" if (side, of) == ("peer", "fp32") else suffix
            yield f"{name}{suffix}\t{ours:,.1f}\t{peer:,.1f}\t{ours / peer:.2f}\t{work.unit}/s"
        mine, theirs = processor["ours", precision], processor["peer", "fp32"]
        yield f"{name} processor\t{mine:,.1f}\t{theirs:,.1f}\t{theirs / mine:.2f}\ts, the peer in fp32"
        mine, theirs = memory["ours", precision], memory["peer", precision]
        yield f"{name} peak memory\t{mine:,.0f}\t{theirs:,.0f}\t{mine / theirs:.2f}\tMiB"


def precisions_here() -> list[str]:
    """Return fp32, and bf16 if the machine multiplies it natively."""
    from tandem.models.device import has_bf16

    return ["fp32", "bf16"] if has_bf16() else ["fp32"]


def take(work: Work) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=work.note)
    parser.add_argument(
        "--quick", action="store_true", help="few texts, one round: whether it runs"
    )
    parser.add_argument(
        "--only", nargs="+", choices=["fp32", "bf16"], help="these precisions alone"
    )
    parser.add_argument("--texts", type=int, help=f"how many; otherwise {work.texts[0]:,}")
    parser.add_argument(
        "--made-up", action="store_true", help="random words, with MS MARCO's lengths"
    )
    parser.add_argument("--encoder", type=Path, help="another encoder's folder")
    parser.add_argument("--out", type=Path, help="also write the figures to this Markdown file")
    parser.add_argument(
        "--also", nargs="+", default=[], metavar="PEER=PYTHON", help="further peers"
    )
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, precision, folder = options.child
        print(json.dumps(answer(work, what, Path(folder), precision)))
        return
    count, also = (
        options.texts or work.texts[options.quick],
        dict(word.split("=", 1) for word in options.also),
    )
    table = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        from training import default_encoder

        encoder = options.encoder or (work.encoder or default_encoder)(folder)
        for part, texts in (("few", FEW), ("quality", COMPARED), ("whole", count)):
            work.prepare(folder / part, encoder, texts, options.made_up)
        for line in lines(
            work, options.only or precisions_here(), folder, 1 if options.quick else ROUNDS, also
        ):
            print(line, flush=True)
            table.append(line)
    if options.out:
        texts = "random words with MS MARCO's lengths" if options.made_up else "API documentation"
        note = work.note.format(count=count, rounds=1 if options.quick else ROUNDS, texts=texts)
        options.out.write_text(markdown(work.title, note, table))
