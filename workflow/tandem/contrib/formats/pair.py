"""The queries of one dataset over the passages of another."""

from collections.abc import Iterator
from typing import Any

from tandem.contrib.formats.options import Pair
from tandem.contrib.formats.own_files import BeirQueries
from tandem.data.sources import DatasetJob, dataset_format
from tandem.errors import UserError
from tandem.extras.derived import PASSAGE_PARTS, DerivedSource


@dataset_format("pair")
class PairSource(DerivedSource):
    """Combines the passages of the input `corpus` with the queries of the input `queries`, else of the folder `path`.

    Judgements and training lists name passages by id; ids that the corpus lacks are handled as in any dataset.
    """

    def __init__(self, job: DatasetJob, entry: Pair) -> None:
        has_queries = "queries" in job.inputs
        if has_queries and job.execution.path:
            raise UserError(
                f"dataset {job.key}: has both queries_of and path; the queries come from one of them"
            )
        super().__init__(job, entry, "corpus")
        self._other = (
            DerivedSource(job, entry, "queries") if has_queries else BeirQueries(job, entry)
        )
        self.places["queries"] = self._other.places["queries"]
        self.literal_matches = self._other.literal_matches
        self.facts |= self._other.facts

    def locate_judgement(self, query: str, document: str) -> str:
        return self._other.locate_judgement(query, document)

    def rows(self, part: str) -> Iterator[Any]:
        if part in PASSAGE_PARTS:
            return super().rows(part)
        rows: Iterator[Any] = getattr(self._other, f"read_{part}")()
        return rows
