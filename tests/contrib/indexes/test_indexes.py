"""Stage `index`: every type against brute force, the same bytes however it was built, by parts and after a kill."""

import json
import subprocess
import sys

import faiss
import numpy as np
import pytest
from clustered import brute, recall, vectors, write_embeddings

from tandem.contrib.indexes import index as module
from tandem.contrib.indexes.ann import OpenedIndex
from tandem.contrib.indexes.index import run
from tandem.contrib.indexes.index_types import fill_sizes
from tandem.contrib.indexes.options import IndexParams
from tandem.errors import UserError
from tandem.retrieval.faiss_search import open_threads
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.store.job import run_shard

pytestmark = pytest.mark.gpu

ROWS = 3000
LEARNED = {"train_sample": None, "seed": 42}
LISTED = {**LEARNED, "nlist": 16}
# Type → its parameters and the least recall of the ten best, without exact scores, searched as below.
TYPES = {
    "flat": ({}, 1.0),
    "sq": ({"sq": "8bit", **LEARNED}, 0.93),
    "pq": ({**LEARNED, "m": 16, "bits": 8, "opq": False}, 0.5),
    "ivf_flat": (LISTED, 0.9),
    "ivf_sq": ({"sq": "fp16", **LISTED}, 0.9),
    "ivf_pq": ({**LISTED, "m": 8, "bits": 4, "opq": True, "train_sample": 800}, 0.15),
    "hnsw": ({"m": 16, "ef_construction": 80}, 0.95),
    "hnsw_sq": ({"m": 16, "ef_construction": 80, "sq": "8bit", **LEARNED}, 0.9),
    "factory": ({"factory": "PCA24,IVF16,SQ8", **LEARNED}, 0.5),
}


@pytest.fixture(scope="module")
def passages(tmp_path_factory):
    return write_embeddings(
        tmp_path_factory.mktemp("e") / "de.passages-0123456789", vectors(ROWS, 1), "passages", {}
    )


@pytest.fixture(scope="module")
def query_vectors():
    return vectors(100, 2)


@pytest.fixture(scope="module")
def build(tmp_path_factory, make_job, passages):
    """`build(type, workers=…, **params)`: an index by the stage."""

    def make(kind, workers=2, out=None, gpu="none", **params):
        out = out or tmp_path_factory.mktemp(kind) / "de@x-0123456789"
        settings = {"type": kind, "part": ROWS, **TYPES[kind][0], **params}
        run(
            make_job(
                "index",
                out,
                settings,
                {"passages": passages},
                {"workers": workers, "index_gpu": gpu},
            )
        )
        return open_artifact(out)

    return make


@pytest.fixture(scope="module")
def built(build):
    return {kind: build(kind) for kind in TYPES}


def search(artifact, queries, k, nprobe=4, ef_search=64, workers=2):
    with open_threads(workers) as threads:
        index = OpenedIndex(artifact, threads)
        index.tune(nprobe, ef_search)
        return index.search(queries.astype(np.float32), k)


def bytes_of(artifact):
    return artifact.manifest.checksums


@pytest.mark.parametrize("kind", TYPES)
def test_recall_of_every_type(built, passages, query_vectors, kind):
    rows = search(built[kind], query_vectors, 10)[1]
    true = brute(query_vectors, vectors(ROWS, 1), 10)
    ours = recall(rows.tolist(), true.tolist())
    assert ours >= TYPES[kind][1]
    name = json.loads(built[kind].path("meta.json").read_text())["factory"]
    usual = faiss.index_factory(32, name, faiss.METRIC_INNER_PRODUCT)
    usual.train(vectors(ROWS, 1)[: TYPES[kind][0].get("train_sample") or ROWS].astype(np.float32))
    usual.add(vectors(ROWS, 1).astype(np.float32))
    if isinstance(faiss.downcast_index(usual), faiss.IndexHNSW):
        faiss.downcast_index(usual).hnsw.efSearch = 64
    elif faiss.try_extract_index_ivf(usual):
        faiss.extract_index_ivf(usual).nprobe = 4
    theirs = usual.search(query_vectors.astype(np.float32), 10)[1]
    assert ours >= recall(theirs.tolist(), true.tolist()) - 0.05


@pytest.mark.parametrize("kind", TYPES)
def test_threads_change_no_byte(built, build, query_vectors, kind):
    assert bytes_of(build(kind, workers=1)) == bytes_of(built[kind])
    scores, rows = (np.array(each) for each in search(built[kind], query_vectors, 20, workers=1))
    again = search(built[kind], query_vectors, 20, workers=5)
    assert scores.tobytes() == again[0].tobytes()
    assert rows.tobytes() == again[1].tobytes()


def test_flat_and_all_lists_are_brute_force(built, query_vectors):
    true, exact = brute(query_vectors, vectors(ROWS, 1), 10), vectors(ROWS, 1).astype(np.float64)
    for kind in ("flat", "ivf_flat", "ivf_sq"):
        scores, rows = search(built[kind], query_vectors, 10, nprobe=16)
        assert np.array_equal(rows, true), kind
        products = (exact[rows] * query_vectors.astype(np.float64)[:, None]).sum(axis=2)
        assert np.allclose(scores, products, atol=1e-5)


@pytest.mark.parametrize("kind", ["ivf_flat", "ivf_sq", "ivf_pq", "factory"])
def test_lists_merged_of_parts_are_those_of_one_piece(built, build, kind):
    artifact = build(kind, part=1100)
    for name in ("index.faiss", "lists.ivfdata"):
        assert bytes_of(artifact)[name] == bytes_of(built[kind])[name]


@pytest.mark.parametrize("kind", ["flat", "sq", "pq"])
def test_codes_of_parts_find_what_those_of_one_piece_find(built, build, query_vectors, kind):
    artifact = build(kind, part=1100)
    assert len(json.loads(artifact.path("meta.json").read_text())["indexes"]) == 3
    whole, parts = search(built[kind], query_vectors, 20), search(artifact, query_vectors, 20)
    assert np.allclose(whole[0], parts[0], atol=1e-6)
    assert recall(parts[1].tolist(), whole[1].tolist()) > 0.999


def test_several_graphs_are_all_searched(build, query_vectors):
    artifact = build("hnsw", part=1100)
    rows = search(artifact, query_vectors, 10)[1]
    assert recall(rows.tolist(), brute(query_vectors, vectors(ROWS, 1), 10).tolist()) > 0.95
    assert set(np.unique(rows // 1100)) == {0, 1, 2}


def test_a_rotation_learns_from_few_passages(tmp_path, make_job):
    """FAISS rotates by codes of 256 centroids; 100 passages are enough for 64."""
    few = vectors(100, 5)
    passages = write_embeddings(tmp_path / "de.passages-0123456789", few, "passages", {})
    out = tmp_path / "de@x-0123456789"
    params = {"type": "pq", "part": ROWS, **LEARNED, "m": 16, "bits": 6, "opq": True}
    run(make_job("index", out, params, {"passages": passages}))
    rows = search(open_artifact(out), few, 5)[1]
    assert recall(rows.tolist(), brute(few, few, 5).tolist()) > 0.7


def test_a_rotation_is_not_learned_from_fewer_vectors_than_dimensions(tmp_path, make_job):
    """FAISS would corrupt the heap, and crash later or never."""
    passages = write_embeddings(tmp_path / "de.passages-0123456789", vectors(31, 5), "passages", {})
    for spec, line in (
        (
            {"type": "pq", "m": 16, "bits": 2, "opq": True},
            r"x.opq: a rotation of 32 dimensions .* from 31 passages",
        ),
        (
            {"type": "factory", "factory": "OPQ16,PQ16x4"},
            r"x.factory is OPQ16,PQ16x4: it is learned from 31 vectors, but needs 32; name a smaller one",
        ),
    ):
        with pytest.raises(UserError, match=line):
            run(
                make_job(
                    "index",
                    tmp_path / "de@x-0123456789",
                    LEARNED | {"part": ROWS} | spec,
                    {"passages": passages},
                )
            )


def test_lists_are_found_behind_what_refines_them(build, query_vectors):
    """`nprobe` reaches lists whatever FAISS's words wrap around them."""
    artifact = build("factory", factory="PCA24,IVF16,PQ8x4,Refine(SQ8)")
    few, all_of_them = (search(artifact, query_vectors, ROWS, nprobe)[1] for nprobe in (1, 16))
    assert (few >= 0).sum() < (all_of_them >= 0).sum() == len(query_vectors) * ROWS


def test_what_faiss_cannot_add_is_refused_before_anything_is_read(tmp_path, make_job, passages):
    params = {"type": "factory", "factory": "IDMap,Flat", "part": ROWS, **LEARNED}
    with pytest.raises(
        UserError,
        match="x.factory is IDMap,Flat: IDMap: passages are numbered already; leave it out",
    ):
        run(make_job("index", tmp_path / "de@x-0123456789", params, {"passages": passages}))


def test_lists_stay_on_disk(built):
    index = faiss.read_index(
        str(built["ivf_flat"].folder / "index.faiss"), faiss.IO_FLAG_ONDISK_SAME_DIR
    )
    assert isinstance(
        faiss.downcast_InvertedLists(faiss.extract_index_ivf(index).invlists),
        faiss.OnDiskInvertedLists,
    )
    size = (built["ivf_flat"].folder / "index.faiss").stat().st_size
    assert (
        size < 20_000 < ROWS * 32 * 4 < (built["ivf_flat"].folder / "lists.ivfdata").stat().st_size
    )


@pytest.mark.parametrize("kind", ["ivf_pq", "hnsw"])
def test_a_killed_build_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch, build, kind):
    whole = build(kind, part=700)
    out, names, keep = tmp_path / "de@x-0123456789", [], module.Build.save

    def fragile(self, name, index):
        names.append(name)
        if len(names) == 4:
            raise KeyboardInterrupt
        keep(self, name, index)

    monkeypatch.setattr(module.Build, "save", fragile)
    with pytest.raises(KeyboardInterrupt):
        build(kind, part=700, out=out)
    assert not (out / "stage.json").exists()
    (out / "work/part-00001.faiss").write_bytes(b"torn")  # a damaged part is made again too
    again = build(kind, part=700, out=out)
    assert names[4:] == [f"part-0000{number}.faiss" for number in range(1, 5)]
    assert bytes_of(again) == bytes_of(whole)
    assert not (out / "work").exists()


def test_shards_build_the_same_bytes(tmp_path, make_job, command, build, passages):
    whole = build("ivf_sq", part=700)
    out = tmp_path / "de@x-0123456789"
    params = {"type": "ivf_sq", "part": 700, **TYPES["ivf_sq"][0]}
    job = make_job("index", out, params, {"passages": passages})
    words = command(job, "shards/trained.json")
    run_shard("index-train", [*words, "--run.shard", "0", "--run.shards", "1"])
    for shard in (1, 0):
        words = command(job, f"shards/{shard}-of-2.json")
        run_shard("index-shard", [*words, "--run.shard", str(shard), "--run.shards", "2"])
    filled = {path.name: path.stat().st_mtime_ns for path in (out / "work").glob("*.faiss")}
    assert sorted(filled) == [f"part-{n:05d}.faiss" for n in range(5)] + ["trained.faiss"]
    assert json.loads((out / "shards/1-of-2.json").read_text()) == {"parts": [1, 3]}
    assert bytes_of(build("ivf_sq", part=700, out=out)) == bytes_of(whole)


def test_a_damaged_block_is_named(tmp_path, make_job, command):
    passages = write_embeddings(
        tmp_path / "de.passages-0123456789", vectors(900, 1), "passages", {}, block=300
    )
    words = command(
        make_job(
            "index",
            tmp_path / "de@x-0123456789",
            {"type": "flat", "part": 300},
            {"passages": passages},
        )
    )
    block = passages.folder / "blocks/00001.npy"
    block.write_bytes(block.read_bytes()[:-1] + b"x")
    words = [
        *words[:-1],
        str(tmp_path / "de@x-0123456789/shards/0-of-2.json"),
        "--run.shards",
        "2",
        "--run.shard",
    ]
    run_shard("index-shard", [*words, "0"])  # of the parts 0 and 2, which are whole
    with pytest.raises(UserError, match="00001.npy: changed since it was written"):
        run_shard("index-shard", [*words, "1"])


def test_another_seed_or_sample_is_another_index(build, built):
    for params in ({"seed": 43}, {"train_sample": 1500}):
        assert (
            bytes_of(build("ivf_flat", **params))["index.faiss"]
            != bytes_of(built["ivf_flat"])["index.faiss"]
        )


@pytest.mark.parametrize(
    ("kind", "params", "line"),
    [
        (
            "pq",
            {"m": 5},
            "indexes.x.m is 5, which does not divide the vectors' 32 dimensions; allowed: 1, 2, 4, 8",
        ),
        ("ivf_flat", {"nlist": 4000}, "indexes.x: 4000 lists cannot be learned from 3000 passages"),
        (
            "factory",
            {"factory": "IVF16,Flt"},
            "x.factory is IVF16,Flt: Flt: FAISS has no such index",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_is_read(
    tmp_path, make_job, passages, kind, params, line
):
    settings = {"type": kind, "part": ROWS, **TYPES[kind][0], **params}
    with pytest.raises(UserError, match=line):
        run(make_job("index", tmp_path / "de@x-0123456789", settings, {"passages": passages}))
    assert not (tmp_path / "de@x-0123456789").exists()


def test_gpus_that_are_not_there_are_one_line(tmp_path, make_job, passages):
    if faiss.get_num_gpus():
        pytest.skip("there is one")
    job = make_job(
        "index",
        tmp_path / "x-0123456789",
        {"type": "flat", "part": 9},
        {"passages": passages},
        {"index_gpu": "shard"},
    )
    with pytest.raises(
        UserError, match="index_gpu is shard, but FAISS .* has no GPU here; install faiss-gpu"
    ):
        run(job)


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        ("Flat", True),
        ("PCA16,Flat", True),
        ("IVF16,Flat", True),
        ("IVF16,SQ6", True),
        ("IVF16,SQfp16", True),
        ("IVF16,PQ8x8np", True),
        ("OPQ8,IVF16,PQ8x8np", True),
        ("IVF16,PQ8x6np", False),  # codes there have 8 bits
        ("IVF16,PQ16x4np", False),
        ("IVF16,SQbf16", False),
        ("IVF16_HNSW8,Flat", False),  # of lists whose centroids stand in a graph
        ("IVF16(RCQ2x2),Flat", False),
        # vectors laid out otherwise, which would be copied as if they were plain ones
        ("FlatIPPanorama8", False),
        ("IVF16,FlatPanorama8", False),
        ("HNSW8,Flat", False),
        ("SQ8", False),
        ("LSH", False),
        ("IVF16,Flat,RFlat", False),
    ],
)
def test_which_forms_gpus_have(factory, expected):
    params = IndexParams(type="factory", factory=factory, **LEARNED)
    assert module.has_gpu_form(module.make_empty(params, 32)) is expected


@pytest.mark.parametrize(
    ("dimension", "m", "expected"), [(768, 96, True), (1024, 128, False), (312, 39, False)]
)
def test_codes_of_some_sizes_are_on_gpus(dimension, m, expected):
    """Of each of these dimensions `m` is the default, a byte for every eight."""
    params = IndexParams(type="ivf_pq", nlist=16, **LEARNED)
    sized = fill_sizes(params, 100_000, dimension)
    assert sized.m == m
    assert module.has_gpu_form(module.make_empty(sized, dimension)) is expected


def test_lists_in_a_graph_are_found_by_the_processor(build, monkeypatch):
    """FAISS's refusal to copy the graph to a GPU came after the training. No GPU is here: it stands in for one."""
    copied = []

    def copy(index, mode):
        if mode == "none":
            return index
        copied.append(type(index))
        return {faiss.IndexFlatIP: index}[type(index)]

    graph = "IVF16_HNSW8,Flat"
    expected = bytes_of(build("factory", factory=graph))
    monkeypatch.setattr(module, "lease_gpus", lambda job: "replicate")
    monkeypatch.setattr("tandem.extras.kmeans.on_gpus", copy)
    assert bytes_of(build("factory", factory=graph)) == expected
    assert {*copied} == {faiss.IndexFlatIP}  # of centroids that are learned


def test_the_command_line_brings_no_torch(tmp_path, make_job, command, built, passages):
    params = {"type": "flat", "part": ROWS}
    job = make_job(
        "index", tmp_path / "de@x-0123456789", params, {"passages": passages}, {"workers": 1}
    )
    script = (
        "import sys; from tandem.__main__ import main; code = main(); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    subprocess.run(
        [sys.executable, "-c", script, "index", *command(job)], check=True, capture_output=True
    )
    assert sha256(job.out / "index.faiss") == bytes_of(built["flat"])["index.faiss"]


@pytest.mark.skipif(
    not faiss.get_num_gpus(), reason="needs faiss-gpu, and CUDA_VISIBLE_DEVICES to name a GPU"
)
@pytest.mark.parametrize("gpu", ["replicate", "shard"])
@pytest.mark.parametrize("kind", ["ivf_flat", "ivf_sq", "ivf_pq"])
def test_lists_are_found_on_a_gpu(build, query_vectors, kind, gpu):
    """The index is as good as the processor's, and the processor reads it."""
    rows = search(build(kind, gpu=gpu), query_vectors, 10)[1]
    assert (
        recall(rows.tolist(), brute(query_vectors, vectors(ROWS, 1), 10).tolist()) >= TYPES[kind][1]
    )
