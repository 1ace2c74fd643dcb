"""The comparison of indexes: its key, its stages and the command that writes its page."""

from tandem.commands import STEPS, Command, register_command
from tandem.config.settings import register_section
from tandem.contrib.tradeoffs.options import TermTradeoffsParams, Tradeoffs, TradeoffsParams
from tandem.stages import Kind, register_stage

register_section("tradeoffs", Tradeoffs, Tradeoffs(), "what `snakemake index_tradeoffs` measures")
register_stage(
    Kind(
        "tradeoffs",
        "contrib.tradeoffs.vector_tradeoffs:run",
        TradeoffsParams,
        version=2,
        env="search",
        threads="exclusive",
        lazy=("dataset",),
        box="Retrieval",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "term_tradeoffs",
        "contrib.tradeoffs.term_tradeoffs:run",
        TermTradeoffsParams,
        env="lexical",
        threads="exclusive",
        box="Retrieval",
        verb="measuring",
    ),
    in_runs=False,
)
register_command(
    Command(
        "index-tradeoffs",
        "contrib.tradeoffs.tradeoffs_page:index_tradeoffs",
        STEPS,
        "Recall and time of indexes.",
    )
)
