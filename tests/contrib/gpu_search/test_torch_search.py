"""The engine `torch` as on a GPU, by the processor where there is none; `test_engines.py` has what holds for all."""

import numpy as np
import pytest
import torch
from brute_search import brute, copies, normal, search, wide

from tandem.contrib.gpu_search import torch_search
from tandem.models.device import device
from tandem.retrieval import retrieve
from tandem.retrieval.exact import (
    FLOAT32_ROUNDING,
    SLACK_TERMS,
    bound_difference,
    pack_keys,
)
from tandem.retrieval.faiss_search import search_by_faiss

pytestmark = pytest.mark.gpu


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


def test_a_gpu_is_searched_by_torch_unless_told(monkeypatch):
    engines = {
        "auto": torch_search.search_by_torch,
        "faiss": search_by_faiss,
        "torch": torch_search.search_by_torch,
    }
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    chosen = {setting: retrieve.open_search_engine(setting).search for setting in engines}
    assert chosen == engines
