"""Dense retrieval and re-ranking."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from tandem.config import retrieval
from tandem.config.retrieval import Encode, Inference
from tandem.plugins import Declarations
from tandem.registry import Registry
from tandem.stages.base import Entry, Kind, Params, Scoring

aggregation: Registry[Callable[..., Any]] = retrieval.aggregation
# `(pool, parameters) -> fused scores` of one query's documents, which a package of `contrib/` calls.
fusion: Registry[Callable[..., Any]] = Registry("fusion", "fusion", "retrieval")
# `(query, passages, *, options) -> scores` of one query's passages, all texts; used in runs `<first stage>+<scorer>`.
pair_scorer: Registry[Callable[..., Any]] = Registry(
    "pair scorer", "pair_scorer", "retrieval.rerank"
)
# Value of `Kind.vectors` → a `tandem.retrieval.encode.SideEncoder`.
side_encoder: Registry[Any] = Registry(
    "encoder of a side", "side_encoder", "retrieval", decides=False
)

# File of lines in addition to a run's columns → the function that yields the run's lists with them, best first:
# `(run, dataset, names) -> (query id, document ids, scores) of each query`.
RUN_LINES: Declarations[Entry] = Declarations()


class EmbeddingsParams(Encode, Params):
    """Vectors of passages or queries by a dual encoder."""

    side: Literal["passages", "queries"] = Field(description="which texts are encoded")
    split: str | None = Field(None, description="whose queries are encoded")


class RunParams(Params):
    """A run over one split's queries."""

    depth: int = Field(1000, ge=1, description="passages kept per query")
    split: str = Field("test", description="whose queries are searched for")


class RetrieveParams(RunParams):
    """Exact search by inner product over all passages."""


class ScoringParams(Inference, Params):
    """How cross-encoders score pairs."""


class RerankParams(ScoringParams):
    """Re-ranking of a run's top by cross-encoders."""

    depth: int = Field(50, ge=1, description="documents that are re-ranked per query")
    scorer: str | None = Field(
        None, description="registered scorer of texts, instead of cross-encoders"
    )
    options: dict[str, Any] = Field({}, description="options of the scorer")


KINDS = (
    Kind("embeddings", "retrieval.encode:run", EmbeddingsParams, env="models", threads="all", gpu=("model",),
        shard="retrieval.encode:run_shard", box="Encoding", holds="vectors", vectors="text", rule="encode",
        verb="encoding"),
    Kind("retrieve", "retrieval.retrieve:run", RetrieveParams, version=2, env="search", threads="all",
        gpu=("passages",), lazy=("dataset", "passages"), shard="retrieval.retrieve:run_shard", box="Retrieval",
        scoring=Scoring(by="dual", zero="cosine"), verb="searching"),
    Kind("rerank", "retrieval.rerank:run", RerankParams, version=2, env="models", threads="all", retries=2,
        gpu=("model", "judge"), shard="retrieval.rerank:run_shard", shard_for=("model", "judge"), box="Re-ranking",
        scoring=Scoring(by="cross", of="top"), verb="re-ranking"),
)  # fmt: skip
