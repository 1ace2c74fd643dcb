"""Lexical retrieval: indexes of Lucene and bm25s, the choice of k1 and b, BM25's runs."""

from tandem.stages.base import Kind

LUCENE = Kind(name="lucene", run="retrieval.lexical.lucene:run", env="lexical", threads="all", box="BM25")
BM25S = Kind(name="bm25s", run="retrieval.lexical.bm25s:run", env="lexical", box="BM25")
BM25 = Kind(name="bm25", run="retrieval.lexical.bm25:run", env="lexical", threads="all", box="BM25")
TUNE_BM25 = Kind(name="tune_bm25", run="retrieval.lexical.bm25:run_tuning", env="lexical", threads="all", box="BM25")

KINDS = (LUCENE, BM25S, BM25, TUNE_BM25)
