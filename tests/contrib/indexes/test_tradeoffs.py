"""Stage `tradeoffs` and the command `index-tradeoffs`: a line for each setting, recall as NumPy counts it, a page."""

import csv
import time

import numpy as np
import pytest
from clustered import brute, recall, vectors, write_embeddings

from tandem.cli import run as run_command
from tandem.contrib.indexes import index as stage
from tandem.contrib.indexes.ann import OpenedIndex
from tandem.contrib.indexes.vector_tradeoffs import run
from tandem.errors import UserError
from tandem.extras.measuring import time_median
from tandem.retrieval.faiss_search import open_threads
from tandem.store.artifact import open_artifact

ROWS, QUESTIONS = 800, 60
INDEXES = {
    "exact": {"type": "flat", "part": 800},
    "lists": {"type": "ivf_flat", "nlist": 8, "train_sample": None, "seed": 1, "part": 800},
    "graph": {"type": "hnsw", "m": 4, "ef_construction": 8, "part": 800},
}
SWEEP = {"nprobe": [1, 8, 64], "ef_search": [5, 200], "rescore": [False, True], "rescore_factor": 2}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory, make_job, make_dataset):
    folder = tmp_path_factory.mktemp("tradeoffs")
    documents = [(f"{row:04d}", "", "text") for row in range(ROWS)]
    upstream = {
        kind: make_dataset(folder / kind / "made-0000000001", documents)
        for kind in ("dataset", "model", "tokens")
    }
    passages = write_embeddings(
        folder / "de.passages-0000000002", vectors(ROWS, 1), "passages", upstream
    )
    inputs = {"dataset": upstream["dataset"], "passages": passages}
    inputs["queries"] = write_embeddings(
        folder / "de.test-0000000003", vectors(QUESTIONS, 2), "queries", upstream
    )
    for number, (name, settings) in enumerate(INDEXES.items()):
        out = folder / f"de@{name}-000000000{number}"
        stage.run(make_job("index", out, settings, {"passages": passages}))
        inputs[f"index.{number}"] = open_artifact(out)
    params = {
        "split": "test",
        "queries": 40,
        "k": [5, 10],
        "repeats": 1,
        "indexes": list(INDEXES),
        "sweep": SWEEP,
    }
    job = make_job("tradeoffs", folder / "de.test-0123456789", params, inputs, {"workers": 2})
    run(job)
    return open_artifact(job.out)


@pytest.fixture(scope="module")
def measured(artifact):
    return list(csv.DictReader(artifact.path("tradeoffs.csv").open()))


def test_a_line_for_each_setting(measured):
    rows = [
        (line["index"], line["nprobe"], line["ef_search"])
        for line in measured
        if line["rescore"] == "False"
    ]
    # of more lists than there are nothing is measured
    assert rows == [
        ("exact", "", ""),
        ("lists", "1", ""),
        ("lists", "8", ""),
        ("graph", "", "5"),
        ("graph", "", "200"),
    ]
    assert len(measured) == 10
    assert all(
        float(line["ms_per_query"]) > 0 and float(line["queries_per_second"]) > 0
        for line in measured
    )


def test_recall_is_that_of_numpy(artifact, measured):
    rows = np.arange(40) * QUESTIONS // 40
    queries = vectors(QUESTIONS, 2)[rows]
    true = brute(queries, vectors(ROWS, 1), 10).tolist()
    for line in measured:
        if line["index"] == "exact" or line["nprobe"] == "8":
            assert float(line["recall@10"]) == 1
    with open_threads(1) as threads:
        index = OpenedIndex(artifact_of(artifact, "lists"), threads)
        index.tune(1, None)
        nearest = index.search(queries.astype(np.float32), 10)[1].tolist()
    (line,) = [row for row in measured if row["nprobe"] == "1" and row["rescore"] == "False"]
    assert float(line["recall@10"]) == pytest.approx(recall(nearest, true), abs=1e-4)
    first = [best[:5] for best in true]
    assert float(line["recall@5"]) == pytest.approx(
        recall([each[:5] for each in nearest], first), abs=1e-4
    )


def artifact_of(artifact, name):
    return open_artifact(artifact.folder.parent / f"de@{name}-000000000{list(INDEXES).index(name)}")


def test_bytes_are_those_of_the_files(artifact, measured):
    for line in measured:
        index = artifact_of(artifact, line["index"])
        assert float(line["bytes_per_vector"]) == index.manifest.facts["bytes_per_vector"]
    flat = next(line for line in measured if line["index"] == "exact")
    size = (artifact_of(artifact, "exact").folder / "index.faiss").stat().st_size
    assert 32 * 4 <= float(flat["bytes_per_vector"]) == pytest.approx(size / ROWS, abs=1)


def test_the_median_leaves_the_first_call_out():
    calls = []

    def work():
        time.sleep(0.05 * len(calls))
        calls.append(1)

    assert time_median(work, 1) >= 0.05  # with the first call it would be the half
    assert len(calls) == 2


def test_table_and_page(artifact, tmp_path):
    out = tmp_path / "index_tradeoffs.csv"
    assert run_command(["index-tradeoffs", "--stage", str(artifact.folder), "--out", str(out)]) == 0
    assert out.read_text() == artifact.path("tradeoffs.csv").read_text()
    table = out.with_suffix(".md").read_text()
    assert "| lists | IVF8,Flat | nprobe 8, exact scores | 1.0000 | 1.0000 |" in table
    assert "de.test-0123456789: recall of the exact top, on at most 40 test queries" in table
    page = out.with_suffix(".html").read_text()
    # at two k, with and without exact scores: against latency and against bytes
    assert page.count("<figure") == 8
    assert "https://" not in page.split("</style>")[0]
    with pytest.raises(UserError, match="must end in .csv"):
        run_command(["index-tradeoffs", "--stage", str(artifact.folder), "--out", "x.txt"])
