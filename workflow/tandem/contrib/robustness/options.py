"""Datasets with broken queries, runs on these, and the parameters of the stage that restores the queries."""

from typing import Annotated, Literal

from pydantic import Field

from tandem.config.base import Distinct, Section
from tandem.config.references import DatasetRef, Reference, RunRef
from tandem.config.training import PERTURBATIONS, Perturbation
from tandem.extras.copied_splits import CopiesSplits
from tandem.stages.retrieval import RunParams


class Perturbed(CopiesSplits):
    """A dataset with broken copies of a split's queries: a further split `<split>_<kind>` for each kind."""

    corpus_key = "of"
    of: DatasetRef = Field(description="the dataset")
    split: str = Field("test", description="whose queries are copied and broken")
    kinds: Distinct[Perturbation] = Field(
        PERTURBATIONS,
        description="a letter hit beside, swapped, dropped, doubled; capitals; another order of words",
    )
    source: Literal["perturbed"]
    words: int = Field(1, ge=1, description="words of a query that get a typo")
    seed: int = Field(42, ge=0, description="of what is drawn, with the kind and the query's id")

    def map_copies(self) -> dict[str, str]:
        """Return one for each kind of copies."""
        return {f"{self.split}_{kind}": self.split for kind in self.kinds}


class PerturbedRun(Section):
    """A run on broken queries, scored as one on the queries as they were asked; an entry of `perturbed`."""

    of: RunRef = Field(description="the run")
    dataset: Annotated[str, Reference("dataset", "perturbed")] = Field(
        description="a dataset of source perturbed, of the one that is scored"
    )
    kind: Perturbation = Field(description="one of its kinds")


class RestoreQueriesParams(RunParams):
    """A run on broken queries, made into one on the queries that they were."""

    kind: Perturbation = Field(description="what was broken")
