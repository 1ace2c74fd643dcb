"""Collections, starting encoders' texts and imported runs."""

from tandem.stages.base import Kind

DATASET = Kind(name="dataset", run="data.stage:run", env="data", threads="all", box="Data")
GIVEN = Kind(name="given", run="data.given:run", env="data", box="Data")
IMPORTED = Kind(name="imported", run="data.imported:run", env="data", box="Data")

KINDS = (DATASET, GIVEN, IMPORTED)
