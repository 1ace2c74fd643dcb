"""What `snakemake index_tradeoffs` measures, the key `tradeoffs`, and the parameters of its stages."""

from pydantic import Field

from tandem.config.base import Count, Items, Section
from tandem.config.references import DualEncoderRef, parameters_of
from tandem.stages.base import Params


class TradeoffSweep(Section):
    """Values of search parameters that `tradeoffs` goes through."""

    nprobe: Items[Count] = Field((1, 4, 16, 64), min_length=1, description="of indexes with lists")
    ef_search: Items[Count] = Field((16, 64, 256), min_length=1, description="of graphs")
    rescore: Items[bool] = Field(
        (False, True), min_length=1, description="with exact scores and without"
    )
    rescore_factor: int = Field(2, ge=1, description="the index is asked for this many times k")


class Tradeoffs(Section):
    """What `snakemake index_tradeoffs` measures: the recall and latency of searches."""

    queries: int = Field(1000, ge=1, description="at most this many, evenly spaced")
    k: Items[Count] = Field(
        (10, 100), min_length=1, description="recall at these; searches are as deep as the largest"
    )
    repeats: int = Field(3, ge=1, description="latencies are medians of this many")
    indexes: Items[str] = Field(
        # FAISS's entries of the catalogue
        ("flat", "sq", "binary", "pq", "ivf_flat", "ivf_sq", "ivf_pq", "hnsw", "hnsw_sq"),
        min_length=1,
        description="entries of `indexes`",
    )
    sweep: TradeoffSweep = Field(TradeoffSweep(), description="values of search parameters")
    model: DualEncoderRef | None = Field(
        None,
        description="the dual encoder whose passages are indexed; null: `de_bm25neg`, else the first of the"
        " configuration's own",
    )
    split: str | None = Field(
        None, description="whose queries are searched for; null: the one that is reported"
    )


@parameters_of
class TradeoffsParams(Tradeoffs, Params):
    """Recall, latency and size of several indexes."""

    split: str = Field("test", description="whose queries are searched for")
