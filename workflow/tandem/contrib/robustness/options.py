"""Options of datasets with broken queries and of runs on these; parameters of the stage that restores the queries."""

from typing import Annotated, Literal

from pydantic import Field

from tandem.config.base import Distinct, Section
from tandem.config.references import DatasetRef, Reference, RunRef
from tandem.config.training import PERTURBATIONS, Perturbation
from tandem.extras.copied_splits import CopiesSplits
from tandem.stages.retrieval import RunParams


class Perturbed(CopiesSplits):
    """A dataset with broken copies of a split's queries: an additional split `<split>_<kind>` for each kind."""

    corpus_key = "of"
    of: DatasetRef = Field(description="the dataset")
    split: str = Field("test", description="whose queries are copied and broken")
    kinds: Distinct[Perturbation] = Field(
        PERTURBATIONS,
        description="a letter replaced by its neighbour, swapped, dropped, doubled; capitals; another order of words",
    )
    source: Literal["perturbed"]
    words: int = Field(1, ge=1, description="words of a query that get a typo")
    seed: int = Field(
        42, ge=0, description="of the random changes, with the kind and the query's id"
    )

    def map_copies(self) -> dict[str, str]:
        """Return the split of each kind of copies → the split that is copied."""
        return {f"{self.split}_{kind}": self.split for kind in self.kinds}


class PerturbedRun(Section):
    """A run on broken queries that is scored like a run on the original queries; an entry of `perturbed`."""

    of: RunRef = Field(description="the run")
    dataset: Annotated[str, Reference("dataset", "perturbed")] = Field(
        description="a dataset of source perturbed, made from the dataset that is scored"
    )
    kind: Perturbation = Field(description="one of its kinds")


class RestoreQueriesParams(RunParams):
    """A run on broken queries, turned into a run on the original queries."""

    kind: Perturbation = Field(description="how the queries were broken")
