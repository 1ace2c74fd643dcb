"""The stage `dataset` against ir_datasets' bare iteration, on generated collections: throughput, memory, linearity.

    python benchmarks/datasets.py [--quick] [--passages N…] [--folder FOLDER] [--out FILE]

Each measurement is a process of its own; one line each, by tabs: what, ours, peer, ratio, unit. `--quick` takes 20 and
80 thousand passages in place of 1 and 4 million. Without `--folder` the collections are generated in a temporary
folder and removed; 4 million passages take 3 GB. `--out` writes the figures as Markdown too, with the machine.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FULL, QUICK = (1_000_000, 4_000_000), (20_000, 80_000)
OWN = {"corpus": "corpus.tsv", "queries": {"test": "queries.tsv"}, "qrels": {"test": "qrels/test.tsv"}}
PARAMS = {"beir": {"source": "beir"}, "tsv": {"source": "files", **OWN}}
VERSIONS = ("ir_datasets", "pyarrow", "numpy")


@dataclass(frozen=True)
class Measured:
    """Seconds of the work itself, without starting Python; processor seconds and peak MiB of the whole process."""

    passages: int
    seconds: float
    processor: float
    peak: float

    @property
    def rate(self) -> float:
        """Passages a second."""
        return self.passages / self.seconds


def ours(form: str, folder: Path) -> int:
    """Run the stage on a folder; the number of passages."""
    from tandem.artifact import Job, open_artifact
    from tandem.data.stage import run

    out = folder / f"made-{form}"
    run(Job("dataset", out, PARAMS[form], {}, {"path": str(folder), "workers": os.cpu_count()}))
    passages = int(open_artifact(out, verify=False).manifest["passages"])
    shutil.rmtree(out)
    return passages


def peer(form: str, folder: Path) -> int:
    """Iterate over the same passages with ir_datasets, keeping nothing; their number."""
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import JsonlDocs, TsvDocs
    from ir_datasets.util import LocalDownload

    if form == "tsv":
        docs = TsvDocs(LocalDownload(folder / "corpus.tsv"))
    else:
        docs = JsonlDocs(LocalDownload(folder / "corpus.jsonl"), mapping={"doc_id": "_id", "text": "text"})
    ir_datasets.registry.register("generated", Dataset(docs))
    return sum(1 for _ in ir_datasets.load("generated").docs_iter())


def measure(who: str, form: str, folder: Path) -> Measured:
    """Run `ours` or `peer` in a process of its own."""
    command = [sys.executable, __file__, "--measure", who, form, str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}; run it by hand to see why")
    return Measured(**json.loads(done.stdout))


def peak() -> float:
    """Peak memory of this process in MiB; getrusage would count that of the process it was started by too."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def compare(form: str, size: int, folder: Path) -> tuple[Measured, list[str]]:
    """Both on one collection: ours, and the lines of throughput and memory."""
    told, them = measure("ours", form, folder), measure("peer", form, folder)
    assert told.passages == them.passages == size
    pairs = (
        ("throughput", told.rate, them.rate, "passages/s"),
        ("processor", told.processor, them.processor, "s"),
        ("peak memory", told.peak, them.peak, "MiB"),
    )
    return told, [f"{form} {size:,} {what}\t{a:,.0f}\t{b:,.0f}\t{a / b:.2f}\t{unit}" for what, a, b, unit in pairs]


def machine() -> str:
    """Processor, cores and versions."""
    model = next((one for one in Path("/proc/cpuinfo").read_text().splitlines() if one.startswith("model name")), "")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    return f"{model.split(':')[-1].strip()}, {os.cpu_count()} cores; Python {platform.python_version()}, {versions}"


def markdown(lines: list[str]) -> str:
    """The lines as a table, under a heading that says what was measured where."""
    rows = "".join(f"| {' | '.join(line.split(chr(9)))} |\n" for line in lines)
    return (
        "# The stage `dataset` against ir_datasets\n\n"
        "`python benchmarks/datasets.py`: the stage reads, checks, measures, hashes and writes Parquet; ir_datasets\n"
        "iterates over the same passages and keeps nothing. Generated passages of 56 words on average.\n\n"
        f"{machine()}\n\n| what | ours | peer | ratio | unit |\n|---|--:|--:|--:|---|\n{rows}"
    )


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 and 80 thousand passages")
    parser.add_argument("--passages", type=int, nargs="+", help="sizes of the collections, ascending")
    parser.add_argument("--folder", type=Path, help="where collections are generated, or are from an earlier run")
    parser.add_argument("--out", type=Path, help="also write the figures to this Markdown file")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.measure:
        who, form, folder = told.measure
        started = time.perf_counter()
        passages = {"ours": ours, "peer": peer}[who](form, Path(folder))
        seconds = time.perf_counter() - started
        print(json.dumps({"passages": passages, "seconds": seconds, "processor": time.process_time(), "peak": peak()}))
        return
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        run_all(told.passages or (QUICK if told.quick else FULL), told.folder or Path(temporary), lines)
    if told.out:
        told.out.parent.mkdir(parents=True, exist_ok=True)
        told.out.write_text(markdown(lines))


def run_all(sizes: list[int] | tuple[int, ...], folder: Path, lines: list[str]) -> None:
    """Every measurement, printed as it comes and added to `lines`."""
    from generated import generate

    made: dict[str, list[Measured]] = {form: [] for form in PARAMS}
    for size in sizes:
        if not (folder / str(size) / "queries.jsonl").is_file():
            generate(folder / str(size), size)
        for form in PARAMS:
            told, some = compare(form, size, folder / str(size))
            made[form].append(told)
            lines += some
            print("\n".join(some), flush=True)
    for form, (first, *_, last) in made.items() if len(sizes) > 1 else ():
        name = f"{form} {last.passages:,} against {first.passages:,} passages"
        times = last.passages / first.passages
        for what in ("seconds", "processor"):
            a, b = getattr(last, what), getattr(first, what)
            lines.append(f"{name}, {what}\t{a:.1f}\t{b:.1f}\t{a / b:.2f}\tlinear is {times:g}")
            print(lines[-1], flush=True)


if __name__ == "__main__":
    main()
