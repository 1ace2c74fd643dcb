"""What FAISS is asked for on GPUs. No GPU is here: what it makes there is counted."""

import faiss
import pytest

from tandem.extras import faiss_gpus


@pytest.fixture
def copies(monkeypatch):
    """Two GPUs that are not there; yields (resources, GPUs' options) of every index that is copied to them."""
    made = []

    def copy(resources, index, options):
        made.append((resources, options))
        return index

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2)
    for name in ("StandardGpuResources", "GpuMultipleClonerOptions"):
        monkeypatch.setattr(faiss, name, type(name, (), {}), raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu_multiple_py", copy)
    faiss_gpus._make_resources.cache_clear()
    yield made
    faiss_gpus._make_resources.cache_clear()


def test_every_index_of_a_process_uses_the_same_memory_of_gpus(copies):
    """FAISS's resources reserve 1.5 GiB of each GPU: made for each part and round of k-means they filled it."""
    indexes = [faiss.IndexFlatIP(4), faiss.IndexFlatIP(8)]
    assert [faiss_gpus.on_gpus(index, "shard") for index in indexes] == indexes
    (first, options), (second, _) = copies
    assert len(first) == 2
    assert first[0] is not first[1]
    assert second is first
    assert options.shard
    assert options.useFloat16


def test_the_processor_needs_none(copies):
    index = faiss.IndexFlatIP(4)
    assert faiss_gpus.on_gpus(index, "none") is index
    assert not copies
