"""Types of indexes: FAISS's names, what the corpus decides, what is refused before anything runs."""

from types import SimpleNamespace

import pytest

from tandem.contrib.indexes import index_types
from tandem.contrib.indexes.index_types import name_factory
from tandem.contrib.indexes.options import IndexParams
from tandem.errors import UserError
from tandem.stages import KINDS


def sized(params, rows, dimension):
    return index_types.fill_sizes(IndexParams(**params), rows, dimension)


def sample_size(params, rows):
    return index_types.sample_size(IndexParams(**params), rows)


def check(params, *limits):
    index_types.check_index(IndexParams(**params), *limits)


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"type": "flat"}, "Flat"),
        ({"type": "sq", "sq": "8bit"}, "SQ8"),
        ({"type": "binary"}, "LSH"),
        ({"type": "pq", "m": None, "bits": 8, "opq": True}, "OPQ96_768,PQ96x8np"),
        ({"type": "pq", "m": 64, "bits": 4, "opq": False}, "PQ64x4np"),
        ({"type": "ivf_flat", "nlist": None}, "IVF8192,Flat"),
        ({"type": "ivf_sq", "nlist": 100, "sq": "fp16"}, "IVF100,SQfp16"),
        (
            {"type": "ivf_pq", "nlist": 100, "m": 48, "bits": 8, "opq": True},
            "OPQ48_768,IVF100,PQ48x8np",
        ),
        ({"type": "hnsw", "m": 32}, "HNSW32,Flat"),
        ({"type": "hnsw_sq", "m": 16, "sq": "8bit"}, "HNSW16,SQ8"),
        ({"type": "factory", "factory": "OPQ64,IVF1024,PQ64"}, "OPQ64,IVF1024,PQ64"),
    ],
)
def test_names(params, name):
    assert name_factory(sized(params, 8_841_823, 768), 768) == name


def test_lists_by_hand():
    def nlist(rows, sample=None):
        return sized({"type": "ivf_flat", "train_sample": sample}, rows, 8).nlist

    # 4 √(10^6) = 4,000: 2,048; of 5,015 passages 4 √n = 283, but 5,015 / 39 = 128.6: 128; 3,900 / 39 = 100: 64
    assert [nlist(1_000_000), nlist(5015), nlist(1_000_000, 3900), nlist(20)] == [2048, 128, 64, 1]


def test_bytes_of_a_code_divide_the_dimension():
    assert [sized({"type": "pq", "bits": 8}, 9, dim).m for dim in (768, 384, 100, 6, 7)] == [
        96,
        48,
        10,
        1,
        1,
    ]


def test_samples():
    assert sample_size({"type": "ivf_flat", "nlist": 2048, "train_sample": None}, 10**7) == 131_072
    assert sample_size({"factory": "IVF4096,Flat", "train_sample": None}, 10**7) == 262_144
    assert (
        sample_size({"factory": "IVF64k_HNSW32,PQ64", "train_sample": None}, 10**7) == 64 * 65_536
    )
    assert sample_size({"type": "sq", "train_sample": None}, 10**7) == 65_536
    assert sample_size({"train_sample": 500}, 400) == 400


@pytest.mark.parametrize(
    ("params", "line"),
    [
        (
            {"type": "ivf_flat", "nlist": 500, "train_sample": 400},
            "indexes.x: 500 lists cannot be learned from 400 passages",
        ),
        ({"factory": "IVF2000,Flat"}, "indexes.x: 2000 lists cannot be learned from 1000 passages"),
        (
            {"factory": "OPQ8,IVF2048_HNSW32,PQ8"},
            "indexes.x: 2048 lists cannot be learned from 1000 passages",
        ),
        ({"factory": "IVF2k,Flat"}, "indexes.x: 2048 lists cannot be learned from 1000 passages"),
        (
            {"type": "pq", "bits": 12, "m": 8},
            "indexes.x.bits is 12: 4096 centroids cannot be learned from 1000 passages",
        ),
        (
            {"type": "pq", "bits": 4, "m": 4, "opq": True, "train_sample": 23},
            "indexes.x.opq: a rotation of 24 dimensions cannot be learned from 23 passages; set it to false",
        ),
        (
            {"type": "pq", "bits": 8, "m": 5},
            "indexes.x.m is 5, which does not divide the vectors' 24 dimensions; allowed: 1, 2, 3, 4",
        ),
        (
            {"type": "pq", "bits": 2, "m": 12},
            "indexes.x.bits is 2: FAISS cannot search so few of each of 12 parts of two dimensions",
        ),
    ],
)
def test_what_cannot_be_built_is_one_line(params, line):
    with pytest.raises(UserError, match=line):
        check(params, "indexes.x", 1000, 24)


@pytest.mark.parametrize(
    "params",
    [
        {"type": "pq", "bits": 3, "m": 12},
        {"type": "pq", "bits": 2, "m": 6},
        {"type": "ivf_pq", "bits": 2, "m": 12},
    ],
)
def test_few_bits_of_other_parts_or_in_lists_can_be_searched(params):
    check(params, "indexes.x", 1000, 24)


def test_links_of_a_graph_need_divide_nothing():
    check({"type": "hnsw", "m": 31}, "indexes.x", 10, 24)


def test_a_graph_grows_on_one_thread_and_other_indexes_on_all():
    for values, is_graph in (
        ({"type": "hnsw_sq"}, True),
        ({"type": "ivf_pq"}, False),
        ({"type": "factory", "factory": "PCA8,HNSW32,SQ8"}, True),
        ({"type": "factory", "factory": "IVF64,PQ4"}, False),
    ):
        stage = SimpleNamespace(values=values)
        assert KINDS["index"].takes_one_thread(stage) == is_graph
