"""Both engines of exact search against brute force, byte for byte, however the passages lie and whatever memory is."""

import tracemalloc

import numpy as np
import pytest
import torch

from tandem.cluster.progress import Progress
from tandem.models.device import device
from tandem.retrieval import faiss_search, torch_search
from tandem.retrieval.embeddings import Blocks, Embeddings, Stretches, name_block
from tandem.retrieval.exact import (
    FLOAT32_ROUNDING,
    SLACK_TERMS,
    bound_difference,
    pack_keys,
    round_and_flag,
    score_vector_pairs,
)
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import writing

pytestmark = pytest.mark.gpu

ENGINES = {"faiss": faiss_search.search_by_faiss, "torch": torch_search.search_by_torch}
MEMORY = 64 << 20


@pytest.fixture(params=ENGINES)
def engine(request):
    return ENGINES[request.param]


@pytest.fixture
def store(tmp_path, make_job):
    """`store(vectors, block, dtype, temperature)`: embeddings of these vectors."""

    def make(vectors, block=64, dtype="fp16", temperature=1.0):
        job = make_job("embeddings", tmp_path / f"{block}{dtype}-0123456789", {"side": "passages"})
        with writing(job) as draft:
            blocks = Blocks(draft.folder, len(vectors), block, "made by a test", dtype)
            for number in range(len(blocks)):
                blocks.write(number, vectors[blocks.locate(number)], {})
            meta = {
                "rows": len(vectors),
                "block": block,
                "dtype": dtype,
                "dimension": vectors.shape[1],
            }
            write_json(draft.path("meta.json"), meta | {"temperature": temperature})
        return Embeddings(open_artifact(job.out), "passages")

    return make


def search(engine, embeddings, ranks, queries, depth, memory=MEMORY, numbers=None):
    """Sorted packed keys of each query, by the engine."""
    numbers = range(len(embeddings)) if numbers is None else numbers
    passages = Stretches(
        embeddings, numbers, ranks.astype(np.uint32), Progress("", 0, "", quiet=True)
    )
    return np.sort(engine(queries, passages, depth, memory, 1), axis=1)


def brute(embeddings, ranks, queries, depth):
    """The same keys, by the scores of all pairs."""
    vectors = np.concatenate([np.asarray(vectors) for _, vectors in embeddings.iterate_blocks()])
    temperature = embeddings.temperature
    scores = (
        score_vector_pairs(np.repeat(query[None], len(vectors), 0), vectors, temperature)
        for query in queries
    )
    keys = np.sort(np.stack([pack_keys(row, ranks) for row in scores]), axis=1)[:, -depth:]
    return np.pad(keys, ((0, 0), (max(0, depth - keys.shape[1]), 0)))


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def copies(vectors):
    """Half of them one vector, a quarter one differing from it in a single bit of one number."""
    copied = vectors.copy()
    copied[::2] = copied[0]
    copied[1::4] = copied[0]
    copied[1::4, 5] = np.nextafter(copied[0, 5], np.float16(9))
    return copied


def opposite(vectors):
    """All in the half space where scores with ones are negative."""
    return -np.abs(vectors)


def long(vectors):
    """Scores of thousands."""
    return vectors * 99


SHAPES = {
    "random": np.copy,
    "copies": copies,
    "negative": opposite,
    "zeros": np.zeros_like,
    "long": long,
}


def wide(*arrays):
    """Vectors whose numbers need more than fp16 has."""
    return [array.astype(np.float32) / 3 for array in arrays]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("depth", [1, 40, 900])
def test_an_engine_is_brute_force(engine, store, shape, depth, dtype):
    """900 is more than there are passages; blocks of 64 make stretches of several, and one that is cut."""
    vectors, queries = SHAPES[shape](normal(1, 700, 48)), np.abs(normal(2, 20, 48))
    vectors, queries = wide(vectors, queries) if dtype == "fp32" else (vectors, queries)
    ranks = np.random.default_rng(3).permutation(700)
    embeddings = store(vectors, dtype=dtype, temperature=0.05)
    for memory in (MEMORY, 200_000):
        keys = search(engine, embeddings, ranks, queries, depth, memory)
        assert keys.tobytes() == brute(embeddings, ranks, queries, depth).tobytes()


@pytest.mark.parametrize("block", [50, 128, 5000])
def test_blocks_memory_and_order_change_no_byte(engine, store, block):
    vectors, queries = copies(normal(4, 2000, 96)), normal(5, 60, 96)
    ranks = np.random.default_rng(6).permutation(2000)
    embeddings = store(vectors, block)
    expected = brute(embeddings, ranks, queries, 30)
    for memory in (100_000, 2_000_000, MEMORY):
        assert np.array_equal(search(engine, embeddings, ranks, queries, 30, memory), expected)
    backwards = range(len(embeddings) - 1, -1, -1)
    assert np.array_equal(
        search(engine, embeddings, ranks, queries, 30, numbers=backwards), expected
    )


@pytest.mark.parametrize("unit", [FLOAT32_ROUNDING, 2.0**-14])
def test_products_that_are_off_by_the_whole_bound_change_nothing(store, monkeypatch, unit):
    """What a GPU may do: errors as large as the bound allows, of either sign, in a corpus of near-ties."""
    vectors, queries = copies(normal(7, 900, 64)), normal(8, 30, 64)
    ranks, embeddings = np.random.default_rng(9).permutation(900), store(vectors)
    expected = brute(embeddings, ranks, queries, 25)
    rng = torch.Generator().manual_seed(0)

    def products(held, batch):
        lengths = batch.double().norm(dim=1)[:, None] * held.longest / 1.001
        sign = (
            torch.randint(0, 2, (len(batch), len(held.factor)), generator=rng).to(batch.device) * 2
            - 1
        )
        exact = batch.double() @ held.factor.double().T
        return (exact + sign * 0.999 * (batch.shape[1] + SLACK_TERMS) * unit * lengths).float()

    for name in ("FLOAT32_ROUNDING", "_CUT_OFF"):  # of a processor, of a GPU
        monkeypatch.setattr(torch_search, name, unit)
    monkeypatch.setattr(torch_search.Stretch, "multiply", products)
    assert np.array_equal(
        search(torch_search.search_by_torch, embeddings, ranks, queries, 25), expected
    )


def test_products_are_of_float32_whatever_the_environment_says(store):
    """Other products are off by more than the bound allows: TF32 has ten bits."""
    vectors, queries = wide(normal(18, 100, 32), normal(19, 5, 32))
    torch.set_float32_matmul_precision("high")
    try:
        search(
            torch_search.search_by_torch, store(vectors, dtype="fp32"), np.arange(100), queries, 10
        )
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.fixture
def like_cuda(monkeypatch):
    """Vectors held, multiplied and decided as on CUDA, by the processor."""
    if device().type == "cuda":
        pytest.skip("CUDA itself is here")

    def hold(held, values, ranks, scale=None):
        held.factor = values if values.dtype == torch.float32 else values.half()
        held.scale, held.ranks = scale, ranks
        held.longest = (
            1.001
            * (held.factor.float().norm(dim=1) * (1 if scale is None else scale)).max().double()
        )

    def products(held, batch):
        scores = batch @ held.factor.float().T
        return scores if held.scale is None else scores * held.scale

    monkeypatch.setattr(torch_search.Stretch, "__init__", hold)
    monkeypatch.setattr(torch_search.Stretch, "multiply", products)
    monkeypatch.setattr(
        torch_search.StretchSearch, "_score", torch_search.StretchSearch._score_on_device
    )


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("left", [1.0, 1e7])
def test_what_is_decided_on_the_device_is_brute_force(store, like_cuda, monkeypatch, dtype, left):
    """Also where the bound is so wide that many a pair is left to the fixed order."""
    monkeypatch.setattr(
        torch_search,
        "bound_difference",
        lambda dimension, lengths: left * bound_difference(dimension, lengths),
    )
    vectors, queries = copies(normal(15, 700, 48)), normal(16, 20, 48)
    vectors, queries = wide(vectors, queries) if dtype == "fp32" else (vectors, queries)
    ranks, embeddings = (
        np.random.default_rng(17).permutation(700),
        store(vectors, dtype=dtype, temperature=0.3),
    )
    keys = search(torch_search.search_by_torch, embeddings, ranks, queries, 60)
    assert keys.tobytes() == brute(embeddings, ranks, queries, 60).tobytes()


def test_sums_in_another_order_are_settled_or_left():
    """Where `round_and_flag` gives a score it is that of the fixed order; it leaves less than one in a hundred."""
    queries, passages = normal(10, 4000, 768), normal(11, 4000, 768)
    exact = score_vector_pairs(queries, passages, 0.07)
    turned = (queries.astype(np.float64) * passages)[:, ::-1]
    sums = np.add.accumulate(turned, axis=1)[:, -1]
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1) * np.linalg.norm(
        passages.astype(np.float64), axis=1
    )
    scores, close = round_and_flag(sums, bound_difference(768, lengths), 0.07)
    assert np.array_equal(scores[~close], exact[~close])
    assert close.sum() < 40
    # 2**24 + 1 stands in the middle between two float32: no bound is narrow enough
    assert round_and_flag(np.array([2.0**24 + 1, 2.0**24 + 2]), 1e-6, 1.0)[1].tolist() == [
        True,
        False,
    ]


def test_packing_of_tensors_is_that_of_arrays():
    scores = np.array([-np.inf, -1.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, np.inf], np.float32)
    ranks = np.array([3, 2, 1, 5, 5, 0, 2**32 - 1, 0])
    keys = torch_search.pack_signed_keys(torch.from_numpy(scores), torch.from_numpy(ranks))
    assert np.array_equal(
        keys.numpy().view(np.uint64) ^ np.uint64(1 << 63), pack_keys(scores, ranks)
    )
    lowest = torch.stack([keys, keys.roll(1)], dim=1)
    lowest[0] = torch_search.NO_PASSAGE
    expected = [-np.inf, *np.minimum(scores, np.roll(scores, 1))[1:].tolist()]
    assert torch_search.find_floors(lowest).tolist() == expected


def test_stretches_are_cut_from_blocks_and_put_together(store):
    vectors, ranks = normal(12, 250, 8), np.arange(250)[::-1]
    embeddings = store(vectors, 100)
    passages = Stretches(embeddings, range(3), ranks, Progress("", 0, "", quiet=True))
    for rows, sizes in ((70, [64, 64, 64, 58]), (1000, [250]), (200, [128, 122]), (1, [1] * 250)):
        stretches = [(passages.join(pieces), part) for pieces, part in passages.read(rows)]
        assert [len(part) for _, part in stretches] == sizes
        assert np.array_equal(np.concatenate([vectors for vectors, _ in stretches]), vectors)
        assert np.concatenate([part for _, part in stretches]).tolist() == ranks.tolist()
    assert passages.progress.done == 4 * 250
    last = Stretches(embeddings, [2], ranks, Progress("", 0, "", quiet=True))
    assert (last.rows, [len(part) for _, part in last.read(30)]) == (50, [30, 20])


@pytest.mark.parametrize(("workers", "batch"), [(1, 7), (3, 1024), (5, 4)])
def test_threads_and_their_batches_change_no_bit(store, workers, batch, monkeypatch):
    monkeypatch.setattr(faiss_search, "QUERIES_PER_THREAD", batch)
    embeddings, ranks, queries = (
        store(copies(normal(15, 500, 16)), 100),
        np.arange(500)[::-1],
        normal(16, 40, 16),
    )
    passages = Stretches(
        embeddings, range(5), ranks.astype(np.uint32), Progress("", 0, "", quiet=True)
    )
    keys = np.sort(faiss_search.search_by_faiss(queries, passages, 30, 1 << 16, workers), axis=1)
    assert np.array_equal(keys, brute(embeddings, ranks, queries, 30))


def test_memory_is_what_was_given_whatever_the_corpus(store):
    """20 MiB of float32 vectors within 4 MiB, and within 16 more of them are held at once."""
    vectors, queries, ranks = normal(13, 40_000, 128), normal(14, 256, 128), np.arange(40_000)
    embeddings, peaks = store(vectors, 8192), {}
    for memory in (4 << 20, 16 << 20):
        tracemalloc.start()
        keys = search(faiss_search.search_by_faiss, embeddings, ranks, queries, 50, memory)
        peaks[memory] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peaks[memory] < memory + 2 * keys.nbytes
    assert peaks[4 << 20] < peaks[16 << 20]
    assert embeddings.artifact.path(name_block(4)).stat().st_size > 1 << 20


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_a_few_vectors_are_those_of_their_blocks_in_the_order_they_are_named_in(store, dtype):
    embeddings = store(normal(3, 1000, 24).astype(np.float32), block=400, dtype=dtype)
    everything = np.concatenate([vectors for _, vectors in embeddings.iterate_blocks()])
    rows = np.r_[999, 401, 0:60, 399, 401, 800:803]  # many of the first block, few of the others
    assert embeddings.pick(rows).tobytes() == everything[rows].tobytes()
    assert embeddings.pick(rows.tolist()).dtype == everything.dtype
    assert embeddings.pick([]).shape == (0, 24)
