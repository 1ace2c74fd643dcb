"""A run's columns against its TREC text, on one core: lines written and read per second, and bytes per line.

    python benchmarks/runs.py [--queries N] [--depth K] [--passages P]

One line per measurement, separated by tabs: what, columns, text, ratio, unit. Lists are made up: rows have no order,
and scores have ties.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.data import runs
from tandem.data.columns import DatasetNames
from tandem.data.rows import PassageOrder
from tandem.store.artifact import open_artifact
from tandem.store.job import Draft, Job, writing


def seconds(work: Callable[[], object]) -> float:
    """Return the least processor time of three calls."""
    times = []
    for _ in range(3):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return min(times)


def main() -> None:
    """Write and read a run both ways."""
    parser = argparse.ArgumentParser()
    for name, default in (("queries", 5000), ("depth", 1000), ("passages", 8_841_823)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    shape, draw = (options.queries, options.depth), np.random.default_rng(0)
    rows = draw.integers(0, options.passages, shape)
    scores = np.sort((draw.gumbel(size=shape) * 3 + 60).astype(np.float32), axis=1)[:, ::-1]
    lists = [(query, rows[query], scores[query]) for query in range(options.queries)]
    with tempfile.TemporaryDirectory() as name:
        dataset_job = Job[Any](
            "dataset", Path(name) / "made" / "dataset" / "made-0123456789", {"source": "made"}, {}
        )
        with writing(dataset_job) as draft:
            ids = [str(query) for query in range(options.queries)]
            pq.write_table(
                pa.table({"query_id": ids, "split": ["train"] * len(ids)}),
                draft.path("queries.parquet"),
            )
            ids = np.arange(options.passages).astype(str)
            pq.write_table(pa.table({"doc_id": ids}), draft.path("corpus.parquet"))
        dataset = open_artifact(dataset_job.out)
        order, folder = PassageOrder(dataset), Path(name)
        job = Job[Any](
            "retrieve", folder / "made" / "retrieve" / "run-0123456789", {}, {"dataset": dataset}
        )
        names = DatasetNames(dataset, order)
        some = [
            (names.queries[query], names.of(own), values)
            for query, own, values in lists[: options.queries // 10]
        ]
        columns, text = folder / runs.RUN_FILE, folder / runs.TREC_FILE
        figures = [
            (
                seconds(lambda: runs.write_rows(job, Draft(folder), lists, order)),
                seconds(lambda: runs.write_trec(text, some, "run")),
            ),
            (
                seconds(lambda: list(runs.read_rows(columns))),
                seconds(lambda: [line.split() for line in text.open()]),
            ),
        ]
        lines, written = options.queries * options.depth, len(some) * options.depth
        for what, (ours, theirs) in zip(("written", "read"), figures, strict=True):
            a, b = lines / ours / 1e6, written / theirs / 1e6
            print(f"{what}\t{a:.1f}\t{b:.1f}\t{a / b:.1f}\tmillion lines/s")
        a, b = columns.stat().st_size / lines, text.stat().st_size / written
        print(f"size\t{a:.2f}\t{b:.2f}\t{a / b:.2f}\tbytes a line")


if __name__ == "__main__":
    main()
