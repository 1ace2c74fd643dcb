"""Scores of runs."""

from tandem.stages.base import Kind

SCORE = Kind(name="score", run="scoring.stage:run", env="data", box="Scores")
AVERAGE_RANK = Kind(name="average_rank", run="scoring.average_rank:run", env="search", threads="all", box="Scores")
MATCH = Kind(name="match", run="scoring.answers.stage:run", env="data", threads="all", box="Scores")

KINDS = (SCORE, AVERAGE_RANK, MATCH)
