"""Datasets that have copies of a split's queries, broken ones for example, as further splits."""

from tandem.config.datasets import Inheriting, SplitsOf


class CopiesSplits(Inheriting):
    """A dataset with the splits of the one that it is `of`, and copies of some of these."""

    def map_copies(self) -> dict[str, str]:
        """Return copy → the split whose queries it has; here there are no copies."""
        return {}

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return the splits of the dataset, and the copies."""
        whole = super().follow_splits(splits_of)
        return whole and whole.union(self.map_copies())
