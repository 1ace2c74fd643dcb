"""Dense retrieval, indexes, re-ranking, long documents and fusion."""

from tandem.stages.base import Kind

EMBEDDINGS = Kind(
    name="embeddings", run="retrieval.encode:run", shard="retrieval.encode:run_shard", env="models", threads="all",
    gpu=("model",), box="Retrieval",
)  # fmt: skip
RETRIEVE = Kind(
    name="retrieve", run="retrieval.retrieve:run", shard="retrieval.retrieve:run_shard", env="search", threads="all",
    gpu=("passages",), lazy=("dataset", "passages"), box="Retrieval",
)  # fmt: skip
INDEX = Kind(
    name="index", run="retrieval.indexes.index:run", shard="retrieval.indexes.index:run_shard", env="search", threads="all",
    retries=2, lazy=("passages",), box="Retrieval",
)  # fmt: skip
ANN = Kind(name="ann", run="retrieval.indexes.ann:run", env="search", threads="all", lazy=("dataset",), box="Retrieval")
TRADEOFFS = Kind(
    name="tradeoffs",
    run="retrieval.indexes.ann:run_tradeoffs",
    env="search",
    threads="exclusive",
    lazy=("dataset",),
    box="Retrieval",
)
RERANK = Kind(
    name="rerank", run="retrieval.rerank:run", shard="retrieval.rerank:run_shard", env="models", threads="all", retries=2,
    gpu=("model", "judge"), box="Re-ranking",
)  # fmt: skip
RERANK_WINDOWS = Kind(
    name="rerank_windows", run="retrieval.rerank:run_windows", shard="retrieval.rerank:run_windows_shard", env="models",
    threads="all", retries=2, gpu=("judge",), box="Re-ranking",
)  # fmt: skip
AGGREGATE = Kind(name="aggregate", run="retrieval.windows:run", env="data", box="Retrieval")
FUSE = Kind(name="fuse", run="retrieval.fuse:run", env="data", box="Retrieval")
TUNE_FUSION = Kind(name="tune_fusion", run="retrieval.fuse:run_tuning", env="data", box="Retrieval")

KINDS = (EMBEDDINGS, RETRIEVE, INDEX, ANN, TRADEOFFS, RERANK, RERANK_WINDOWS, AGGREGATE, FUSE, TUNE_FUSION)
