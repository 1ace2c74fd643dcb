"""Lexical retrieval: BM25 by Lucene, through Pyserini's build of Anserini, or by bm25s where there is no Java."""
