"""Register the stage `tune_bm25`; `plan.py` plans it for variants that are `tuned`."""

from tandem.contrib.bm25_tuning.options import TuneBm25Params
from tandem.stages import Kind, register_stage

register_stage(
    Kind(
        "tune_bm25",
        "contrib.bm25_tuning.search_grid:run",
        TuneBm25Params,
        env="lexical",
        threads="all",
        box="Sparse search",
        split_key="bm25.tune.split",
    ),
    in_runs=False,
)
