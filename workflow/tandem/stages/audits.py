"""Audits of collections and analyses of models."""

from tandem.stages.base import Kind

NOISE = Kind(name="noise", run="audits.noise.stage:run", env="data", threads="all", box="Audits")
SIMILAR_QUERIES = Kind(
    name="similar_queries", run="audits.similar.stage:run", env="models", threads="all", gpu=("judge",), box="Audits"
)
FALSE_NEGATIVES = Kind(
    name="false_negatives", run="audits.false_negatives.stage:run", env="models", threads="all", gpu=("judge",),
    box="Audits",
)  # fmt: skip
RELABEL = Kind(name="relabel", run="audits.false_negatives.relabel:run", env="data", box="Audits")
ERRORS = Kind(name="errors", run="analysis.errors:run", env="data", box="Audits")
DYNAMICS = Kind(
    name="dynamics", run="analysis.dynamics:run", env="models", threads="all",
    gpu=("point", "start", "retriever", "reranker"), box="Audits",
)  # fmt: skip
HARDNESS = Kind(name="hardness", run="analysis.hardness:run", env="models", threads="all", gpu=("judge",), box="Audits")

KINDS = (NOISE, SIMILAR_QUERIES, FALSE_NEGATIVES, RELABEL, ERRORS, DYNAMICS, HARDNESS)
