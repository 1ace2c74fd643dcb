"""Register the engine bm25s with its index, and classical scores in place of BM25."""

from tandem.config.similarities import register_similarity
from tandem.contrib.lexical.options import (
    Bm25sParams,
    Boolean,
    Dfr,
    Dirichlet,
    JelinekMercer,
    Lsi,
    LsiParams,
    TfIdf,
)
from tandem.stages import Kind, register_stage

for similarity in (Dirichlet, JelinekMercer, Dfr, Boolean, TfIdf, Lsi):
    register_similarity(similarity)

register_stage(
    Kind(
        "bm25s",
        "contrib.lexical.bm25s:run",
        Bm25sParams,
        env="lexical",
        box="Sparse search",
        holds="lexical index",
        verb="indexing",
        version=2,  # words keep their marks
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "lsi",
        "contrib.lexical.vector_space:run",
        LsiParams,
        env="lexical",
        threads="all",
        box="Sparse search",
        holds="index",
        verb="decomposing",
        version=2,  # directions by one thread of BLAS; rounding is no cosine
    ),
    in_runs=False,
)
