"""FAISS's list of factory strings: each makes an index that finds what FAISS's own does, or is refused early."""

import faiss
import numpy as np
import pytest
from clustered import brute, recall, vectors, write_embeddings

from tandem.contrib.indexes.ann import OpenedIndex
from tandem.contrib.indexes.factory_strings import describe_factory
from tandem.contrib.indexes.index import run
from tandem.contrib.indexes.index_types import check_index
from tandem.contrib.indexes.options import IndexParams
from tandem.errors import UserError
from tandem.retrieval.faiss_search import open_threads
from tandem.store.artifact import open_artifact

ROWS, DIM, PART = 600, 32, 250
SCALAR = ("SQ4", "SQ6", "SQ8", "SQfp16", "SQbf16", "SQ8_direct", "SQ8_direct_signed")
TURBO = ("SQtqmse1", "SQtqmse2", "SQtqmse3", "SQtqmse4", "SQtqmse8")
ONE_SIDED = ("SQtq2", "SQtq3", "SQtq4", "SQtq5")
CODES = (
    "Flat",
    *SCALAR,
    *TURBO,
    *ONE_SIDED,
    "PQ8x4np",
    "PQ4x6np",
    "PQ16x3",
    "PQ8x2",
    "RQ3x4",
    "RQ2x5_1x4",
    "RQ3x4_Nnone",
    "RQ3x4_Nfloat",
    "RQ3x4_Nqint8",
    "RQ3x4_Nqint4",
    "RQ3x4_Nlsq2x4",
    "RQ3x4_Nrq2x4",
    "LSQ3x4",
    "LSQ3x4_Nqint8",
    "PRQ2x2x4",
    "PRQ2x2x4_Nqint8",
    "PLSQ2x2x4",
    "PLSQ2x2x4_Nfloat",
    "RaBitQ",
    "RaBitQ4",
    "RaBitQ9",
    "RaBitQfs",
    "RaBitQfs4",
    "RaBitQfs_64",
    "RaBitQfs4_64",
    "EDEN",
    "EDEN4",
    "EDEN4BIASED",
    "EDEN8BIAS",
)
FAST = (
    "PQ8x4fs",
    "PQ8x4fs_64",
    "RQ4x4fs",
    "RQ4x4fs_64_Nnone",
    "LSQ4x4fs",
    "PRQ2x2x4fs",
    "PLSQ2x2x4fs",
)
RESIDUAL = (
    "PQ8x4fsr",
    "PQ8x4fsr_64",
    "RQ4x4fsr",
    "LSQ4x4fsr",
    "PRQ2x2x4fsr",
    "PLSQ2x2x4fsr_32_Nnone",
)
PANORAMA = ("FlatDedup", "FlatPanorama", "FlatPanorama4", "FlatPanorama5_64")
TRANSFORMS = (
    "PCA16",
    "PCAR16",
    "PCAW16",
    "PCAWR16",
    "L2norm",
    "L2Norm",
    "RR",
    "RR16",
    "RR64",
    "HR",
    "HR123",
    "ITQ",
    "ITQ16",
    "Pad64",
    "Pad16",
)
COARSE = (
    "IVF16_HNSW,Flat",
    "IVF16_HNSW8,PQ8x4np",
    "IVF16(PQ8x4np),Flat",
    "IVF16(Flat),Flat",
    "IVF16(HNSW8),SQ8",
    "IVF16(IVF4,Flat),Flat",
    "IVF16(IVF4,SQ4,Refine(SQ8)),Flat",
    "IVF16(SQ8),SQ8",
    "IVF16(PCA8,Flat),Flat",
    "IVF16(RCQ2x2),Flat",
    "IVF16(RCQ2x2),RQ3x4",
    "IVF16(Flat,RFlat),Flat",
)
SIGNS = (
    "LSH",
    "LSHr",
    "LSHt",
    "LSHrt",
    "LSH16",
    "LSH16rt",
    "PCAR16,L2Norm,PCAW8,LSHr",
    "ITQ16,LSHt",
    "HR,LSH",
)
GRAPHS = (
    "HNSW",
    "HNSW16",
    "HNSW16,Flat",
    *(f"HNSW16,{code}" for code in (*SCALAR, *TURBO)),
    "HNSW16_SQ8",
    "PCA16,HNSW8",
)
REFINED = (
    "Flat,RFlat",
    "SQ4,Refine(SQ8)",
    "PQ8x4fs,RFlat",
    "PQ8x4fs,Refine(SQfp16)",
    "IVF16,Flat,RFlat",
    "IVF16,PQ8x4np,Refine(SQ8)",
    "IVF16,PQ16x2",
    "SQ4,Refine(PQ16x2)",
    "HNSW16,RFlat",
    "HNSW16_SQ4,Refine(Flat)",
    "IVF16,FlatPanorama4,RFlat",
    "SQ4,Refine(RQ12x6)",
    "SQ4,Refine(RaBitQ4)",
    "SQ4,Refine(EDEN4)",
    "PCA16,IVF16,Flat,Refine(PQ8x4np)",
    "Flat,RefinePanorama(FlatIPPanorama4_1)",
    "IVF16,Flat,RefinePanorama(FlatIPPanorama4_1)",
)
WORKING = (
    *CODES,
    *FAST,
    "FlatIPPanorama4",
    "FlatIPPanorama5_64",
    "OPQ8,PQ8x4np",
    "OPQ8_16,PQ8x4fs",
    "OPQ8_64,IVF16,PQ8x4np",
    *(f"IVF16,{code}" for code in (*CODES, *FAST, *RESIDUAL, *PANORAMA)),
    *(f"{transform},{rest}" for transform in TRANSFORMS for rest in ("Flat", "IVF16,PQ8x4np")),
    *COARSE,
    *SIGNS,
    *GRAPHS,
    *REFINED,
)
# What FAISS knows, or reads in part, and cannot be an index of 32 dimensions here; and words of the reason.
REFUSED = {
    **dict.fromkeys(
        ("IDMap,Flat", "Flat,IDMap", "IDMap2,Flat", "IVF16,SQ8,IDMap2"),
        "passages are numbered already",
    ),
    **dict.fromkeys(
        ("MinMax,SQ8", "MinMaxFP16,Flat", "LSCQ2x4", "IVF16(LSCQ2x2),Flat"),
        "FAISS adds no vectors to it",
    ),
    **dict.fromkeys(("ZnLattice2x3_4", "IVF16,ZnLattice2x3_4"), "FAISS does not store its vectors"),
    **dict.fromkeys(
        ("NSG", "NSG32,Flat", "NSG16,PQ8x4", "PCA16,NSG16", "NSG1", "IVF120_NSG8,Flat"), "name HNSW"
    ),
    **dict.fromkeys(
        ("HNSW16_PQ8x4", "HNSW16,PQ8x4np", "HNSW16_16+PQ8", "HNSW16,FlatPanorama4"),
        "L2 distances alone",
    ),
    **dict.fromkeys(
        ("IMI2x2,Flat", "Residual16,PQ8x4", "Residual2x3,PQ8", "IVF16,PQ8+8"), "L2 distances alone"
    ),
    **dict.fromkeys(("FlatL2Panorama4", "Flat,RefinePanorama(FlatL2Panorama4)"), "FlatIPPanorama"),
    **dict.fromkeys(
        ("IVF16,ITQ16,SH", "IVF16,PCA16,SH1.2g", "IVF16,PCAR16,SH-1e2m"),
        "compares by Hamming distances",
    ),
    **dict.fromkeys(
        ("LSH,RFlat", "LSHrt,Refine(Flat)", "IVF16(LSHr),Flat", "MinMax,LSH,RFlat"), ""
    ),
    **dict.fromkeys(("RCQ2x4", "RCQ2x4,RFlat"), "it chooses lists"),
    **dict.fromkeys(("RQ3x4_Ncqint8", "IVF16,LSQ3x4_Ncqint4"), "it groups norms"),
    **dict.fromkeys(
        ("SVSFlat", "SVSVamana32,LVQ4x4", "IVF16_SVSVamana8,Flat"), "FAISS's packages lack it"
    ),
    **dict.fromkeys(("HNSW16_SQtq5", "HNSW16,SQtq2"), "does not compare codes with one another"),
    **dict.fromkeys(
        ("Flat,Refine(IVF4,Flat)", "Flat,Refine(PQ8x4fs)", "Flat,Refine(SQtq2)", "Flat,Refine()"),
        "re-rank",
    ),
    **dict.fromkeys(
        ("SQ0", "IVF16,SQ0", "HNSW16,SQ0", "HNSW16_SQ0"), "it stores nothing of a vector"
    ),
    "Flat,RefinePanorama(FlatIPPanorama4)": "one at a time",
    **dict.fromkeys(
        ("HNSW1", "HNSW0", "HNSW999999999", "IVF16_HNSW1,Flat"), "a node has 2 to 512 links"
    ),
    **dict.fromkeys(
        ("PQ7", "IVF16,PQ3x4", "OPQ7,PQ8", "OPQ8_20,Flat", "PCA16,PQ32", "PRQ3x2x4"),
        "does not divide the",
    ),
    **dict.fromkeys(
        ("PCA64,Flat", "ITQ33,LSH", "FlatIPPanorama40"), "the vectors have 32 dimensions"
    ),
    **dict.fromkeys(("PQ8x4fs_33", "RaBitQfs_33", "IVF16,RQ4x4fsr_48"), "is not a multiple of 32"),
    **dict.fromkeys(
        ("PQ16x2", "PQ16x1,RFlat", "PCA16,PQ8x2np", "IVF16(PQ16x2),Flat"),
        "cannot search parts of two dimensions by fewer than 3 bits",
    ),
    **dict.fromkeys(("PQ8x25", "RQ3x40", "LSQ2x99"), "at most 24 bits"),
    "IVF16(RCQ1x2),Flat": "it chooses among 4 lists, not 16",
    "IVF16(RQ2x4),Flat": "it is learned from the lists, at least 32",
    **dict.fromkeys(
        ("IVF601,Flat", "IVF1k,Flat", "IVF99999999999,Flat"),
        "lists cannot be learned from 600 passages",
    ),
    **dict.fromkeys(
        ("PQ8x10", "IVF16,PQ8x12", "RQ2x16", "PCA16,PQ8x17", "SQ8,Refine(PQ4x10)"),
        "learned from 600 vectors",
    ),
    **dict.fromkeys(
        (
            "nonsense",
            "",
            "IVF16",
            "IVF16,",
            "IVF16,Flt",
            "Flat,Flat",
            "IVF16((",
            "IVF16)",
            "SQ7",
            "Flat,PCA8",
        ),
        "",
    ),
    **dict.fromkeys(
        (
            "PQ0",
            "PQ8x0",
            "IVF0,Flat",
            "LSH0",
            "RR0,Flat",
            "PCA0,Flat",
            "OPQ0,PQ8",
            "RQ0x4",
            "RQ3x0",
        ),
        "",
    ),
    **dict.fromkeys(
        (
            "PQ8x4fs_0",
            "IVF16,FlatPanorama0",
            "IVF16,FlatPanorama4_0",
            "PRQ0x2x4",
            "PRQ2x0x4",
            "RaBitQ0",
        ),
        "",
    ),
    **dict.fromkeys(("RQ4x4fs_32_Nrq2x4", "IVF16,PLSQ2x2x4fsr_32_Nlsq2x4", "HNSW8,RaBitQ"), ""),
}


@pytest.fixture(scope="module")
def passages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    return write_embeddings(
        folder / "de.passages-0123456789", vectors(ROWS, 1), "passages", {}, block=128
    )


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_index_here_is_one_line_while_planning(text):
    with pytest.raises(UserError) as error:
        check_index(IndexParams(factory=text), "indexes.x", ROWS, DIM)
    line = str(error.value)
    assert line.startswith("indexes.x")
    assert REFUSED[text] in line
    assert "\n" not in line


@pytest.mark.parametrize("text", WORKING)
def test_what_faiss_makes_is_built_in_parts_and_finds_what_faiss_finds(
    tmp_path, make_job, passages, text
):
    out, params = (
        tmp_path / "de@x-0123456789",
        {"type": "factory", "factory": text, "part": PART, "seed": 42},
    )
    run(make_job("index", out, params, {"passages": passages}))
    points, queries = vectors(ROWS, 1).astype(np.float32), vectors(40, 2).astype(np.float32)
    with open_threads(1) as threads:
        opened = OpenedIndex(open_artifact(out), threads)
        opened.tune(4, 64)
        scores, rows = opened.search(queries, 10)
        usual = faiss.index_factory(
            DIM, text, faiss.METRIC_L2 if "LSH" in text else faiss.METRIC_INNER_PRODUCT
        )
        usual.train(points)
        usual.add(points)
        if (lists := faiss.try_extract_index_ivf(usual)) is not None:
            lists.nprobe = 4
        theirs = usual.search(queries, 10)[1]
    assert ((rows >= 0) & (rows < ROWS)).all()
    assert (np.diff(scores) <= 0).all()  # best first
    true = brute(queries, points, 10).tolist()
    assert recall(rows.tolist(), true) >= recall(theirs.tolist(), true) - 0.12
    described = describe_factory(text, DIM)
    assert (described.lists, described.is_graph) == (opened.lists, opened.is_graph)


@pytest.mark.parametrize(
    "text", ["IVF16,FlatPanorama4", "IVF16,FlatDedup", "HNSW8_SQ4,RFlat", "RQ3x4", "PQ8x4fs"]
)
def test_threads_change_no_byte(tmp_path, make_job, passages, text):
    sums = []
    for workers in (1, 3):
        out, params = (
            tmp_path / f"{workers}/de@x-0123456789",
            {"type": "factory", "factory": text, "part": PART},
        )
        run(make_job("index", out, params, {"passages": passages}, {"workers": workers}))
        sums.append(open_artifact(out).manifest.checksums)
    assert sums[0] == sums[1]


@pytest.mark.parametrize(
    ("text", "rows", "dimension"),
    [
        ("PQ8", 256, None),
        ("PCA64,Flat", None, None),
        ("OPQ7,PQ7", 512, 14),
        ("RQ2x16", 65536, 32),
        ("HR,PQ8x4", 99, 24),
    ],
)
def test_what_is_not_known_is_not_held_against_a_string(text, rows, dimension):
    check_index(IndexParams(factory=text), "indexes.x", rows, dimension)


def test_the_dimension_behind_transforms_by_hand():
    # 24 numbers, 32 by Hadamard's matrix, 16 by the components, 20 with zeros
    assert describe_factory("HR,PCA16,Pad20,Flat", 24).dimension == 20
    with pytest.raises(ValueError, match="3 does not divide the 20 dimensions"):
        describe_factory("HR,PCA16,Pad20,PQ3x4", 24)


def test_as_many_vectors_are_needed_as_the_largest_code_has_by_hand():
    assert describe_factory("PCA8,IVF100,PQ4x9,Refine(PQ4x10)", 32).least == 1024
    assert describe_factory("IVF2k_HNSW32,PQ8", 32).least == 2048
    assert describe_factory("OPQ8_64,PQ8x4", 32).least == 64


def test_a_width_reaches_a_graph_behind_what_re_ranks_it(tmp_path, make_job, passages):
    out, params = (
        tmp_path / "de@x-0123456789",
        {"type": "factory", "factory": "PCA16,HNSW4,SQ4,RFlat", "part": ROWS},
    )
    run(make_job("index", out, params | {"ef_construction": 8}, {"passages": passages}))
    with open_threads(1) as threads:
        opened = OpenedIndex(open_artifact(out), threads, widen=False)
        found = []
        for width in (1, 400):
            opened.tune(None, width)
            rows = opened.search(vectors(40, 2).astype(np.float32), 10)[1]
            found.append(
                recall(rows.tolist(), brute(vectors(40, 2), vectors(ROWS, 1), 10).tolist())
            )
    assert found[0] < found[1] - 0.1
