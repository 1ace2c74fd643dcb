"""Where a paper's table is searched when its own collection is not: `stand_in`.

`stand_in: squad` puts one dataset for all of a paper's, `stand_in: {msmarco: squad, natural-questions: scifact}` one
for each. What it does not name is searched where the paper does if the configured dataset is one of the table's own,
and else on the configured dataset: with the defaults every table runs on the embedded collection and says so.
"""

from collections.abc import Collection, Mapping
from typing import Any

from tandem.evaluation.layouts import Layout, names_dataset


def searched(
    named: str,
    stand_in: str | Mapping[str, str] | None,
    configured: str,
    of_table: Collection[str],
    otherwise: str | None = None,
) -> str:
    """Our dataset for one that a paper names, each as the catalogue does.

    Args:
        named: the paper's.
        stand_in: the configuration's key.
        configured: the configuration's `dataset`.
        of_table: every dataset that the table names.
        otherwise: where none of these says it; None: the configured dataset.
    """
    if isinstance(stand_in, str):
        return stand_in
    if stand_in and named in stand_in:
        return stand_in[named]
    return named if configured in of_table else otherwise or configured


class StandIns:
    """The stand-ins of one configuration for the datasets of one layout."""

    def __init__(self, config: Mapping[str, Any], layout: Layout) -> None:
        self.told: str | Mapping[str, str] | None = config["stand_in"]
        self.dataset, self.train_on = str(config["dataset"]), config["train_on"]
        self.catalogue, self.layout = config["datasets"], layout

    def collection(self, dataset: str) -> str:
        """The collection that a dataset is, as the layout names it.

        Queries without labels make no other collection of one, nor does what the layout says is the same.
        """
        while (spec := self.catalogue.get(dataset, {})).get("source") == "unlabelled":
            dataset = spec["of"]
        return next((name for name, others in self.layout.same.items() if dataset in others), dataset)

    def searched(self, named: str, otherwise: str = "") -> str:
        """Our dataset for one that the layout names, as the catalogue does.

        Args:
            named: empty where the layout names none.
            otherwise: where neither `stand_in` nor the layout says it; empty: the configured dataset.
        """
        if not named:
            return self.dataset
        configured = self.collection(self.dataset)
        found = searched(named, self.told, configured, self.layout.datasets, otherwise or self.dataset)
        return self.dataset if found == named == configured else found

    def changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """A row's changes of the configuration, the datasets among them replaced by those that stand in."""
        return {
            path: self.searched(value, self.train_on or "") if value and names_dataset(path) else value
            for path, value in changes.items()
        }
