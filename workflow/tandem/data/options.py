"""The parameters that every dataset takes, whatever its source."""

from dataclasses import dataclass
from typing import Any

from tandem.errors import UserError

# said about a dataset, not done to it
NOTES = frozenset({"source", "language", "licence", "description", "checksum", "fingerprint", "downloads"})


@dataclass(frozen=True)
class Options:
    """Typed parameters of a dataset.

    Attributes:
        title: keep titles; false blanks them.
        train_queries: at most so many training queries, a subset chosen by a hash of their ids; None for all.
        dev_queries: likewise.
        test_queries: likewise.
        dev_from_train: share of the training queries that become the dev split where the source has none.
        train_from_test: share of the test queries that become the train split where the source has none.
        unknown_documents: what to do about qrels naming a document the corpus lacks: `warn` keeps them, `drop` leaves
            them out, `error` refuses the dataset.
        blank_queries: what to do about queries without text: `drop` or `error`.
    """

    title: bool = True
    train_queries: int | None = None
    dev_queries: int | None = None
    test_queries: int | None = None
    dev_from_train: float | None = None
    train_from_test: float | None = None
    unknown_documents: str = "warn"
    blank_queries: str = "drop"

    def __post_init__(self) -> None:
        if not isinstance(self.title, bool):
            raise UserError(f"title: {self.title!r}; true and false are allowed")
        for name in ("train_queries", "dev_queries", "test_queries"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise UserError(f"{name}: {value!r}; a whole number from 1 is allowed, or null for all")
        for name in ("dev_from_train", "train_from_test"):
            share = getattr(self, name)
            if share is not None and (type(share) is not float or not 0 < share < 1):
                raise UserError(f"{name}: {share!r}; a number between 0 and 1 is allowed")
        policies = {"unknown_documents": ("warn", "drop", "error"), "blank_queries": ("drop", "error")}
        for name, allowed in policies.items():
            if getattr(self, name) not in allowed:
                raise UserError(f"{name}: {getattr(self, name)!r}; allowed are {', '.join(allowed)}")

    def most(self, split: str) -> int | None:
        """The largest number of queries of a split."""
        most: int | None = getattr(self, f"{split}_queries")
        return most


def read_options(params: dict[str, Any], of_source: frozenset[str]) -> Options:
    """The options among a dataset's parameters; a `UserError` on a key that neither they nor the source know."""
    known = set(Options.__dataclass_fields__)
    unknown = sorted(set(params) - known - of_source - NOTES)
    if unknown:
        allowed = ", ".join(sorted(known | of_source | NOTES))
        raise UserError(f"{unknown[0]}: no parameter of source {params.get('source')}; allowed are {allowed}")
    return Options(**{name: value for name, value in params.items() if name in known})
