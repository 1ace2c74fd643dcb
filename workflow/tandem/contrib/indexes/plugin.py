"""FAISS's indexes: types of entries of `indexes`, the stages that build and search them, and their comparison."""

from tandem.commands import STEPS, Command, register_command
from tandem.config.indexes import register_index
from tandem.config.settings import register_section
from tandem.contrib.indexes.factory_strings import describe_factory
from tandem.contrib.indexes.options import FAISS_INDEXES, AnnParams, IndexParams
from tandem.extras.tradeoffs_options import Tradeoffs, TradeoffsParams
from tandem.stages import Kind, register_stage
from tandem.stages.base import Planned, Scoring

register_index(*FAISS_INDEXES.values())


def grows_a_graph(stage: Planned) -> bool:
    """Return whether an index is a graph, which is built by one thread, so that it is the same every time."""
    if factory := stage.values.get("factory"):
        return describe_factory(factory).is_graph
    return FAISS_INDEXES[stage.values["type"]].is_graph


register_stage(
    Kind(
        "index",
        "contrib.indexes.index:run",
        IndexParams,
        version=2,
        env="search",
        threads="all",
        retries=2,
        lazy=("passages",),
        shard="contrib.indexes.index:run_shard",
        train="contrib.indexes.index:train_shard",
        box="Encoding",
        holds="index",
        one_thread_if=grows_a_graph,
        verb="indexing",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "ann",
        "contrib.indexes.ann:run",
        AnnParams,
        version=3,
        env="search",
        threads="all",
        lazy=("dataset",),
        box="Retrieval",
        scoring=Scoring(by="dual", zero="cosine"),
        verb="searching",
    ),
    in_runs=False,
)
register_section("tradeoffs", Tradeoffs, Tradeoffs(), "what `snakemake index_tradeoffs` measures")
register_stage(
    Kind(
        "tradeoffs",
        "contrib.indexes.vector_tradeoffs:run",
        TradeoffsParams,
        version=3,
        env="search",
        threads="exclusive",
        lazy=("dataset",),
        box="Retrieval",
    ),
    in_runs=False,
)
register_command(
    Command(
        "index-tradeoffs",
        "contrib.indexes.tradeoffs_page:index_tradeoffs",
        STEPS,
        "Recall and time of indexes.",
    )
)
