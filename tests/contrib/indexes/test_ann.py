"""Stage `ann`: all lists are exact search, recall is noted, scores are exact or the index's own, partners must fit."""

import json
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest
from clustered import vectors, write_embeddings
from trec import iter_trec

from tandem.contrib.indexes import ann
from tandem.contrib.indexes import index as stage
from tandem.contrib.indexes.ann import run
from tandem.errors import UserError
from tandem.retrieval import retrieve
from tandem.retrieval.faiss_search import open_threads
from tandem.store.artifact import open_artifact

pytestmark = pytest.mark.gpu

ROWS, QUESTIONS = 1500, 70
PARAMS = {"depth": 20, "split": "test", "rescore": True, "rescore_factor": 2, "recall_queries": 30}
INDEXES = {
    "flat": {"part": 600},
    "ivf_pq": {
        "nlist": 16,
        "train_sample": None,
        "seed": 42,
        "part": 600,
        "m": 8,
        "bits": 8,
        "opq": False,
    },
    "ivf_flat": {"nlist": 16, "train_sample": None, "seed": 42, "part": 600},
    "sq": {"sq": "8bit", "train_sample": None, "seed": 42, "part": 600},
    "hnsw": {"m": 8, "ef_construction": 40, "part": 600},
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, make_dataset, make_job):
    """A corpus whose ids stand in another order than its rows, vectors of it and of queries; some are copies."""
    folder = tmp_path_factory.mktemp("ann")
    documents = [(f"{row * 7919 % ROWS:04d}", "", "text") for row in range(ROWS)]
    upstream = {
        "dataset": make_dataset(folder / "dataset" / "made-0000000001", documents, QUESTIONS)
    }
    for number, kind in enumerate(("model", "tokens")):
        upstream[kind] = make_dataset(folder / kind / f"made-000000001{number}", documents[:1])
    passages = vectors(ROWS, 1)
    passages[700:800] = passages[:100]
    return {
        "dataset": upstream["dataset"],
        "passages": write_embeddings(
            folder / "de.passages-0000000002", passages, "passages", upstream, 256, 0.05
        ),
        "queries": write_embeddings(
            folder / "de.test-0000000003", vectors(QUESTIONS, 2), "queries", upstream, 256, 0.05
        ),
    }


@pytest.fixture(scope="module")
def index(tmp_path_factory, make_job, inputs):
    """`index(type)`: an index of the passages."""
    indexes = {}

    def of(kind):
        if kind not in indexes:
            out = tmp_path_factory.mktemp(kind) / f"de@{kind}-0000000004"
            params = {"type": kind, **INDEXES[kind]}
            stage.run(make_job("index", out, params, {"passages": inputs["passages"]}))
            indexes[kind] = open_artifact(out)
        return indexes[kind]

    return of


@pytest.fixture
def searched(tmp_path, make_job, inputs, index):
    """`searched(type, workers=…, gpu=…, **params)`: the artifact of a search."""

    def make(kind, workers=2, name="ann", gpu="none", **params):
        out = tmp_path / name / "de@x.test-0123456789"
        execution = {"workers": workers, "index_gpu": gpu}
        run(make_job("ann", out, PARAMS | params, inputs | {"index": index(kind)}, execution))
        return open_artifact(out)

    return make


@pytest.fixture(scope="module")
def exact(tmp_path_factory, make_job, inputs):
    """Lines of the exact run, without tags."""
    out = tmp_path_factory.mktemp("exact") / "de.test-0123456789"
    retrieve.run(make_job("retrieve", out, {"depth": 20, "split": "test"}, inputs))
    return lines(open_artifact(out))


def lines(artifact):
    return [line.rsplit(" ", 1)[0] for line in artifact.path("run.trec").read_text().splitlines()]


def test_all_lists_with_exact_scores_are_exact_search(searched, exact):
    artifact = searched("ivf_flat", nprobe=16)
    assert lines(artifact) == exact
    assert artifact.path("run.trec").read_text().split("\n")[0].endswith(" de@x.test-0123456789")
    assert artifact.manifest.facts["recall"] == {"10": 1.0, "20": 1.0}
    assert artifact.manifest.facts["recall_queries"] == 30


def test_few_lists_find_less_and_recall_says_how_much(searched, inputs, index):
    artifact = searched("ivf_flat", nprobe=1, recall_queries=QUESTIONS, depth=100)
    row_of = {f"{row * 7919 % ROWS:04d}": row for row in range(ROWS)}
    rows = [[row_of[doc] for doc in docs] for _, docs, _ in iter_trec(artifact.path("run.trec"))]
    stored = np.concatenate(
        [np.load(path) for path in sorted(inputs["passages"].folder.glob("blocks/*.npy"))]
    )
    scores = (vectors(QUESTIONS, 2).astype(np.float64) @ stored.astype(np.float64).T).astype(
        np.float32
    )
    least = -np.sort(-scores, axis=1)[:, 99]  # of copies at the cut any is as good
    shares = [(scores[query, own] >= least[query]).sum() / 100 for query, own in enumerate(rows)]
    assert artifact.manifest.facts["recall"]["100"] == pytest.approx(np.mean(shares), abs=1e-4)
    assert 0.2 < artifact.manifest.facts["recall"]["100"] < 0.95


@pytest.mark.parametrize("rescore", [True, False])
def test_recall_is_measured_a_group_of_queries_at_a_time(searched, monkeypatch, rescore):
    params = {"nprobe": 1, "recall_queries": QUESTIONS, "rescore": rescore, "depth": 100}
    whole = searched("ivf_flat", name="whole", **params).manifest.facts["recall"]
    groups = []
    search_exactly = ann.search_exactly

    def search(passages, queries, *more):
        groups.append(len(queries))
        return search_exactly(passages, queries, *more)

    monkeypatch.setattr(ann, "search_exactly", search)
    monkeypatch.setattr(ann, "QUERIES_PER_SEARCH", 32)
    grouped = searched("ivf_flat", name="grouped", **params).manifest.facts["recall"]
    assert groups == [32, 32, 6]
    assert grouped == whole
    assert grouped["100"] < 1


def test_scores_are_the_exact_ones_whatever_the_index_rounds(searched, exact):
    truth = {tuple(line.split()[::2][:2]): line.split()[4] for line in exact}
    rescored = lines(searched("sq"))
    assert sum(
        truth.get(tuple(line.split()[::2][:2])) == line.split()[4] for line in rescored
    ) > 0.97 * len(exact)
    own = lines(searched("sq", rescore=False))
    assert own != rescored
    both = [
        (float(truth[key]), float(line.split()[4]))
        for line in own
        if (key := tuple(line.split()[::2][:2])) in truth
    ]
    true, rounded = np.array(both).T
    assert (true != rounded).mean() > 0.9
    assert np.abs(true - rounded).max() < 0.02 / 0.05


def test_exact_scores_mend_what_the_index_rounds(searched):
    with_exact, own = searched("sq"), searched("sq", rescore=False, name="own")
    assert with_exact.manifest.facts["recall"]["20"] >= own.manifest.facts["recall"]["20"]
    assert with_exact.manifest.facts["recall"]["20"] > 0.98


@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.parametrize("rescore", [True, False])
def test_threads_and_groups_change_no_bit(searched, monkeypatch, kind, rescore):
    options = {"nprobe": 4} if kind == "ivf_flat" else {}
    expected = lines(searched(kind, rescore=rescore, **options))
    monkeypatch.setattr(ann, "QUERIES_PER_SEARCH", 32)
    assert lines(searched(kind, workers=3, rescore=rescore, name="again", **options)) == expected


def test_int8_embeddings_are_indexed_as_what_they_stand_for(tmp_path, make_job, inputs):
    upstream = {
        role: open_artifact(Path(folder)) for role, folder in inputs["passages"].upstream.items()
    }
    out = tmp_path / "de.passages-0000000005"
    passages = write_embeddings(out, vectors(ROWS, 1), "passages", upstream, 256, 0.05, "int8")
    int8_inputs = inputs | {"passages": passages}
    stage.run(
        make_job(
            "index",
            tmp_path / "de@x-0000000006",
            {"type": "flat", "part": 999},
            {"passages": passages},
        )
    )
    index = open_artifact(tmp_path / "de@x-0000000006")
    run(make_job("ann", tmp_path / "de@x.test-0123456789", PARAMS, int8_inputs | {"index": index}))
    retrieve.run(
        make_job(
            "retrieve", tmp_path / "de.test-0123456789", {"depth": 20, "split": "test"}, int8_inputs
        )
    )
    ours, exact = (
        lines(open_artifact(tmp_path / f"{name}.test-0123456789")) for name in ("de@x", "de")
    )
    assert ours == exact


def test_no_recall_where_no_query_is_to_be_compared(searched):
    assert "recall" not in searched("sq", recall_queries=0).manifest


def test_an_index_of_other_passages_is_refused(tmp_path, make_job, inputs, index):
    upstream = {role: open_artifact(inputs["passages"].folder.parent / kind / name) for role, kind, name in (
        ("dataset", "dataset", "made-0000000001"), ("model", "model", "made-0000000010"),
        ("tokens", "tokens", "made-0000000011"),
    )}  # fmt: skip
    other = write_embeddings(
        tmp_path / "de.passages-0000000009", vectors(50, 3), "passages", upstream
    )
    job = make_job(
        "ann", tmp_path / "x-0123456789", PARAMS, inputs | {"passages": other, "index": index("sq")}
    )
    with pytest.raises(
        UserError, match="was made from de.passages-0000000002; expected de.passages-0000000009"
    ):
        run(job)


def test_the_command_line_brings_no_torch(tmp_path, make_job, command, inputs, index, exact):
    params = PARAMS | {"nprobe": 16}
    job = make_job(
        "ann",
        tmp_path / "de@x.test-0123456789",
        params,
        inputs | {"index": index("ivf_flat")},
        {"workers": 1},
    )
    script = (
        "import sys; from tandem.__main__ import main; code = main(); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    subprocess.run(
        [sys.executable, "-c", script, "ann", *command(job)], check=True, capture_output=True
    )
    artifact = open_artifact(job.out)
    assert lines(artifact) == exact
    assert json.loads((job.out / "stage.json").read_text())["facts"]["gpu"] == "none"


def test_more_lists_than_a_gpu_searches_are_refused(index):
    with open_threads(1) as threads:
        lists = ann.OpenedIndex(index("ivf_flat"), threads)
        lists.gpu = "replicate"
        with pytest.raises(
            UserError, match=r"^IVF16,Flat: nprobe is 2049, but a GPU searches at most 2048"
        ):
            lists.tune(2049, None)


@pytest.mark.parametrize(
    ("kind", "nprobe", "rescore", "remedy"),
    [
        ("ivf_pq", 4, True, "raise nprobe"),
        ("ivf_pq", None, True, "raise nprobe"),
        # every one of its 16 lists is searched: the codes lose
        ("ivf_pq", 16, True, "raise rescore_factor"),
        ("ivf_pq", 32, False, "set rescore to true"),
        ("hnsw", None, True, "raise ef_search"),
        ("sq", None, False, "set rescore to true"),
    ],
)
def test_what_finds_more_is_a_key_that_has_an_effect(index, kind, nprobe, rescore, remedy):
    with open_threads(1) as threads:
        opened = ann.OpenedIndex(index(kind), threads)
        opened.tune(nprobe, None)
        assert opened.find_remedy(rescore) == remedy


on_a_gpu = pytest.mark.skipif(
    not faiss.get_num_gpus(), reason="needs faiss-gpu, and CUDA_VISIBLE_DEVICES to name a GPU"
)


@on_a_gpu
@pytest.mark.parametrize("gpu", ["replicate", "shard"])
@pytest.mark.parametrize("kind", ["flat", "ivf_flat", "ivf_pq"])
def test_a_gpu_finds_what_the_processor_finds(searched, kind, gpu):
    """Numbers are rounded otherwise there; exact scores decide among what is found."""
    options = {"nprobe": 16} if kind.startswith("ivf") else {}
    here, there = searched(kind, **options), searched(kind, gpu=gpu, name="gpu", **options)
    assert there.manifest.facts["gpu"] == gpu
    assert there.manifest.facts["recall"]["20"] >= here.manifest.facts["recall"]["20"] - 0.02
    assert len({*lines(here)} & {*lines(there)}) > 0.95 * len(lines(here))


@on_a_gpu
@pytest.mark.parametrize("kind", ["hnsw", "sq"])
def test_what_faiss_has_on_no_gpu_is_searched_by_the_processor(searched, kind):
    assert lines(searched(kind, gpu="replicate", name="gpu")) == lines(searched(kind))
