"""Our datasets for those that a paper names: what stands in for them, else the paper's own or the configured one."""

from collections.abc import Collection, Mapping
from typing import Any

from tandem.config.datasets import Dataset, Unlabelled
from tandem.config.settings import Settings
from tandem.evaluation.layouts import Layout, names_dataset
from tandem.plan.graph import JSON


def searched(
    named: str,
    stand_in: str | Mapping[str, str] | None,
    configured: str,
    of_table: Collection[str],
    otherwise: str | None = None,
) -> str:
    """Our dataset for one that a paper names, each as the catalogue does.

    `stand_in: squad` puts one dataset for all of a paper's, `stand_in: {msmarco: squad}` one for each. What it does not
    name is searched where the paper does if the configured dataset is one of the table's own, else on the configured.

    Args:
        configured: the configuration's `dataset`.
        of_table: every dataset that the table names.
        otherwise: where none of these decides; None: the configured dataset.
    """
    if isinstance(stand_in, str):
        return stand_in
    if stand_in and named in stand_in:
        return stand_in[named]
    return named if configured in of_table else otherwise or configured


class StandIns:
    """The stand-ins of one configuration for the datasets of one layout."""

    def __init__(self, settings: Settings, datasets: Mapping[str, Dataset], layout: Layout) -> None:
        self.stand_in, self.dataset, self.train_on = settings.stand_in, settings.dataset, settings.train_on
        self.datasets, self.layout = datasets, layout

    def collection(self, dataset: str) -> str:
        """The collection that a dataset is, as the layout names it.

        Queries without labels make no other collection of one, nor does what the layout says is the same.
        """
        while isinstance(entry := self.datasets.get(dataset), Unlabelled):
            dataset = entry.of
        return next((name for name, others in self.layout.same.items() if dataset in others), dataset)

    def searched(self, named: str, otherwise: str = "") -> str:
        """Our dataset for one that the layout names, if any; `otherwise` is the default, else the configured one."""
        if not named:
            return self.dataset
        configured = self.collection(self.dataset)
        ours = searched(named, self.stand_in, configured, self.layout.datasets, otherwise or self.dataset)
        return self.dataset if ours == named == configured else ours

    def changed(self, changes: Mapping[str, Any]) -> JSON:
        """A row's changes of the configuration, the datasets among them replaced by those that stand in."""
        return {
            path: self.searched(value, self.train_on or "") if value and names_dataset(path) else value
            for path, value in changes.items()
        }
