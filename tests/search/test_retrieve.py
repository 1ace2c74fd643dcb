"""Stage `retrieve`: the run of a brute-force search; partners that do not fit are refused."""

import subprocess
import sys

import numpy as np
import pytest

from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.search.retrieve import run

PARAMS = {"depth": 7, "split": "test"}


@pytest.fixture
def inputs(dataset, passages, queries):
    return {"dataset": dataset, "passages": passages, "queries": queries}


def vectors(artifact):
    files = sorted(name for name in artifact.manifest["files"] if name.endswith(".npy"))
    return np.concatenate([np.load(artifact.path(name)) for name in files]).astype(np.float64)


def expected_run(passages, queries, ids, names, depth):
    """TREC lines by sorting everything."""
    lines = []
    for name, row in zip(names, vectors(queries), strict=True):
        scores = (vectors(passages) * row).sum(axis=1).astype(np.float32)
        order = sorted(range(len(ids)), key=lambda i: (-scores[i], ids[i]))[:depth]
        lines += [f"{name} Q0 {ids[i]} {n} {scores[i]:.9g}" for n, i in enumerate(order, start=1)]
    return lines


def test_run_equals_brute_force(tmp_path, make_job, inputs, passages, queries):
    from tests_collection import SUBJECTS

    job = make_job("retrieve", tmp_path / "de.test-0123456789", PARAMS, inputs)
    run(job)
    ids = [f"{name}-{n}" for name in SUBJECTS for n in (1, 2, 3)]
    lines = (job.out / "run.trec").read_text().splitlines()
    assert lines == [
        f"{line} de.test-0123456789"
        for line in expected_run(passages, queries, ids, [f"test-{name}" for name in SUBJECTS], 7)
    ]
