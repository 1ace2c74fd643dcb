"""Source `perturbed`: a dataset with broken copies of a split's queries."""

from collections.abc import Iterator
from functools import cached_property

from pydantic import Field

from tandem.contrib.robustness.options import Perturbed
from tandem.contrib.robustness.perturbation import name_copy, perturb
from tandem.data.collection import EXCLUDED
from tandem.data.sources import Answers, DatasetJob, Judgement, Query, dataset_format
from tandem.extras.derived import DerivedSource


class PerturbedEntry(Perturbed):
    """`Perturbed`, and whether the passage with a query's id is excluded from the results of its copies."""

    excludes_own: bool = Field(False, description="as `ignore_identical_ids` of the dataset")


@dataset_format("perturbed")
class PerturbedSource(DerivedSource):
    """Add to the dataset of the input `of` a split `<split>_<kind>` for each kind of broken queries.

    A broken copy of query q is named `<kind>.q` and has q's judgements and answers. With `excludes_own`, the passage q
    is `EXCLUDED` for the copy, since their ids differ.
    """

    def __init__(self, job: DatasetJob, entry: PerturbedEntry) -> None:
        super().__init__(job, entry)
        self._entry = entry
        self.facts["changed"] = dict.fromkeys(entry.kinds, 0)  # texts that a kind has changed

    def read_queries(self) -> Iterator[Query]:
        """Yield the dataset's queries, and then the broken ones of each kind."""
        yield from super().read_queries()
        entry = self._entry
        for kind in entry.kinds:
            for query, text, split in super().read_queries():
                if split != entry.split:
                    continue
                broken = perturb(text, kind, query, entry.seed, entry.words)
                self.facts["changed"][kind] += broken != text
                yield name_copy(kind, query), broken, f"{split}_{kind}"

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield the dataset's judgements, and then those of each kind."""
        yield from super().read_qrels()
        copied = self._entry.split
        for kind in self._entry.kinds:
            for query, doc, relevance, split in super().read_qrels():
                if split == copied and not (doc == query and query in self._own_passages):
                    yield name_copy(kind, query), doc, relevance, f"{split}_{kind}"
            for query in sorted(self._own_passages):
                yield name_copy(kind, query), query, EXCLUDED, f"{copied}_{kind}"

    def read_answers(self) -> Iterator[Answers]:
        """Yield the dataset's answers, and then those of each kind."""
        yield from super().read_answers()
        copied = {query for query, _, split in super().read_queries() if split == self._entry.split}
        for kind in self._entry.kinds:
            for query, texts in super().read_answers():
                if query in copied:
                    yield name_copy(kind, query), texts

    @cached_property
    def _own_passages(self) -> set[str]:
        """Return the queries of `split` that are also passages; none if a query's own passage may be a result."""
        if not self._entry.excludes_own:
            return set()
        return self.find_own_passages(self._entry.split, (doc for doc, *_ in self.read_corpus()))
