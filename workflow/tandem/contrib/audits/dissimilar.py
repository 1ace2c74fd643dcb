"""Source `dissimilar`: a dataset without the training queries that are similar to others (DuReader-retrieval §2.3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tandem.contrib.audits.options import Dissimilar
from tandem.data.sources import DatasetJob, dataset_format
from tandem.data.tables import stream_rows
from tandem.errors import UserError
from tandem.extras.derived import PASSAGE_PARTS, DerivedSource, require_input


@dataset_format("dissimilar")
class DissimilarSource(DerivedSource):
    """Drops training queries that resemble dev and test queries from the dataset of the input `of`.

    The input `similar`, an audit of that dataset, names them (DuReader-retrieval §2.3).
    """

    def __init__(self, job: DatasetJob, entry: Dissimilar) -> None:
        super().__init__(job, entry)
        audit = require_input(job, "similar", "similar_queries")
        audited = Path(audit.upstream["dataset"]).name
        if audited != self.base.key:
            raise UserError(
                f"dataset {job.key}: {audit.folder} is an audit of {audited}, not of {self.base.key}"
            )
        self._removed = {query for (query,) in stream_rows(audit.path("train.parquet"), "query_id")}
        self.facts |= {"similar": audit.key, "removed": len(self._removed)}

    def rows(self, part: str) -> Iterator[Any]:
        """Yield the rows of a part without those of removed queries."""
        return (
            row
            for row in super().rows(part)
            if part in PASSAGE_PARTS or row[0] not in self._removed
        )
