"""The stage `dataset` against ir_datasets' bare iteration, on generated collections: throughput, memory, linearity.

    python benchmarks/dataset_stage.py [--quick] [--passages N…] [--folder FOLDER] [--out FILE]

Each measurement is a process of its own and has a line, separated by tabs: what, ours, peer, ratio, unit. `--quick`
takes 20 and 80 thousand passages instead of 1 and 4 million. Without `--folder`, the collections are generated in a
temporary folder and removed; 4 million passages take 3 GB. `--out` also writes the figures as Markdown, with the
machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from figures import Measured, comparison, linearity, markdown

from tandem.store.environment import peak_mib

FULL, QUICK = (1_000_000, 4_000_000), (20_000, 80_000)
OWN = {
    "corpus": "corpus.tsv",
    "queries": {"test": "queries.tsv"},
    "qrels": {"test": "qrels/test.tsv"},
}
PARAMS = {"beir": {"source": "beir"}, "tsv": {"source": "files", **OWN}}
NOTE = """`python benchmarks/dataset_stage.py`: the stage reads, checks, measures, hashes and writes Parquet; the peer,
ir_datasets, iterates over the same passages and keeps nothing. Generated passages of 56 words on average. The stage has
two threads; where its seconds are its processor's, other work on the machine left them one core."""


def ours(form: str, folder: Path) -> int:
    """Run the stage on a folder; return the number of passages."""
    from tandem.data.dataset import run
    from tandem.store.artifact import open_artifact
    from tandem.store.job import Job

    out = folder / f"made-{form}"
    run(Job("dataset", out, PARAMS[form], {}, {"path": str(folder), "workers": os.cpu_count()}))
    passages = int(open_artifact(out, verify=False).manifest.facts["passages"])
    shutil.rmtree(out)
    return passages


def peer(form: str, folder: Path) -> int:
    """Iterate over the same passages with ir_datasets, without storing them; return their number."""
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import JsonlDocs, TsvDocs
    from ir_datasets.util import LocalDownload

    if form == "tsv":
        docs = TsvDocs(LocalDownload(folder / "corpus.tsv"))
    else:
        docs = JsonlDocs(
            LocalDownload(folder / "corpus.jsonl"), mapping={"doc_id": "_id", "text": "text"}
        )
    ir_datasets.registry.register("generated", Dataset(docs))
    return sum(1 for _ in ir_datasets.load("generated").docs_iter())


def measure(who: str, form: str, folder: Path) -> Measured:
    """Run `ours` or `peer` in a process of its own."""
    command = [sys.executable, __file__, "--measure", who, form, str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)}: exit status {done.returncode}; run it by hand to see why"
        )
    return Measured(**json.loads(done.stdout))


def measured(who: str, form: str, folder: str) -> str:
    """Return the figures of this process as JSON, for `measure`."""
    started = time.perf_counter()
    passages = {"ours": ours, "peer": peer}[who](form, Path(folder))
    seconds = time.perf_counter() - started
    return json.dumps(vars(Measured(passages, seconds, time.process_time(), peak_mib())))


def compare(sizes: Iterable[int], folder: Path) -> Iterator[str]:
    """Yield the lines of all measurements, as they are made."""
    from generated import generate  # not at the top: its imports would count in the measurements

    measurements: dict[str, list[Measured]] = {form: [] for form in PARAMS}
    for size in sizes:
        part = folder / str(size)
        if not (part / "queries.jsonl").is_file():
            generate(part, size)
        for form in PARAMS:
            measurements[form].append(measure("ours", form, part))
            yield from comparison(form, measurements[form][-1], measure("peer", form, part))
    for form, (first, *larger) in measurements.items():
        for large in larger:
            yield from linearity(form, first, large)


def main() -> None:
    """Generate the collections, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 and 80 thousand passages")
    parser.add_argument(
        "--passages", type=int, nargs="+", help="sizes of the collections, ascending"
    )
    parser.add_argument(
        "--folder", type=Path, help="where collections are generated, or are from an earlier run"
    )
    parser.add_argument("--out", type=Path, help="also write the figures to this Markdown file")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(measured(*options.measure))
        return
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        for line in compare(
            options.passages or (QUICK if options.quick else FULL),
            options.folder or Path(temporary),
        ):
            print(line, flush=True)
            lines.append(line)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(markdown("The stage `dataset` against ir_datasets", NOTE, lines))


if __name__ == "__main__":
    main()
