"""The key `audits`, datasets of source `dissimilar`, the audits' stages, and the commands `audits` and `annotate`."""

from tandem.commands import DATA, STEPS, Command, register_command
from tandem.config.datasets import register_source
from tandem.config.settings import register_section
from tandem.contrib.audits.options import (
    Audits,
    Dissimilar,
    FalseNegativesParams,
    JudgeLlmParams,
    NoiseParams,
    RelabelParams,
    SimilarQueriesParams,
)
from tandem.stages import Kind, register_stage

register_section("audits", Audits, Audits(), "audits of the dataset", of_run=True)
register_source(Dissimilar)

for kind in (
    Kind("noise", "contrib.audits.noise:run", NoiseParams, version=2, threads="all", box="Audits"),
    Kind("similar_queries", "contrib.audits.similar_queries:run", SimilarQueriesParams, env="models", threads="all",
        gpu=("judge",), box="Audits"),
    Kind("false_negatives", "contrib.audits.false_negatives:run", FalseNegativesParams, env="models", threads="all",
        gpu=("judge",), box="Audits"),
    Kind("relabel", "contrib.audits.relabel:run", RelabelParams, box="Audits"),
    Kind("judge_llm", "contrib.audits.llm_judge:run", JudgeLlmParams, version=4, env="models", threads="all",
        gpu=("pool",), box="Audits"),
):  # fmt: skip
    register_stage(kind, in_runs=False)

register_command(
    Command(
        "annotate",
        "contrib.audits.annotate:annotate",
        DATA,
        "What annotators and reviewers fill in next.",
    )
)
register_command(
    Command("audits", "contrib.audits.findings:write_audits", STEPS, "The page of the audits.")
)
