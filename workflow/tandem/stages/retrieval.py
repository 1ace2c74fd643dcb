"""Dense retrieval, indexes, re-ranking, long documents and fusion."""

from tandem.stages.base import Kind

EMBEDDINGS = Kind(
    name="embeddings", run="search.encode:run", shard="search.encode:main_shard", env="models", threads="all",
    gpu=("model",), box="Retrieval",
)  # fmt: skip
RETRIEVE = Kind(
    name="retrieve", run="search.retrieve:run", shard="search.retrieve:main_shard", env="search", threads="all",
    gpu=("passages",), lazy=("dataset", "passages"), box="Retrieval",
)  # fmt: skip
INDEX = Kind(
    name="index", run="search.indexes.stage:run", shard="search.indexes.stage:main_shard",
    train="search.indexes.stage:main_train", env="search", threads="all", retries=2, lazy=("passages",),
    box="Retrieval",
)  # fmt: skip
ANN = Kind(name="ann", run="search.ann:run", env="search", threads="all", lazy=("dataset",), box="Retrieval")
TRADEOFFS = Kind(
    name="tradeoffs", run="search.tradeoffs:run", env="search", threads="exclusive", lazy=("dataset",), box="Retrieval"
)
RERANK = Kind(
    name="rerank", run="search.rerank:run", shard="search.rerank:main_shard", env="models", threads="all", retries=2,
    gpu=("model", "judge"), box="Re-ranking",
)  # fmt: skip
RERANK_WINDOWS = Kind(
    name="rerank_windows", run="search.rerank_windows:run", shard="search.rerank_windows:main_shard", env="models",
    threads="all", retries=2, gpu=("judge",), box="Re-ranking",
)  # fmt: skip
AGGREGATE = Kind(name="aggregate", run="search.aggregate:run", env="data", box="Retrieval")
FUSE = Kind(name="fuse", run="fusion.stage:run", env="data", box="Retrieval")
TUNE_FUSION = Kind(name="tune_fusion", run="fusion.tuning:run", env="data", box="Retrieval")

KINDS = (EMBEDDINGS, RETRIEVE, INDEX, ANN, TRADEOFFS, RERANK, RERANK_WINDOWS, AGGREGATE, FUSE, TUNE_FUSION)
