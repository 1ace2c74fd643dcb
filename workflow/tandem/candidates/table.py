"""candidates.parquet: one row per passage of a list, by id for people and by row for training."""

import numpy as np
import pyarrow as pa

from tandem.candidates.lists import TrainingList
from tandem.data.rows import IdRows
from tandem.models.ragged import Ids

SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("doc_id", pa.string()),
        ("label", pa.int8()),
        ("rank", pa.int32()),
        ("score", pa.float32()),
        ("judge", pa.float32()),
        ("source", pa.string()),
        ("list", pa.string()),
        ("query_row", pa.int64()),
        ("passage_row", pa.int64()),
    ]
)


def table(lists: list[TrainingList], docs: IdRows, queries: IdRows) -> pa.Table:
    """Lists as rows of `SCHEMA`, list after list, positives first."""

    def joined(name: str) -> Ids:
        return np.concatenate([getattr(one, name) for one in lists])

    query_row, rows = np.repeat([one.query for one in lists], [len(one.rows) for one in lists]), joined("rows")
    columns = {
        "query_id": queries.ids(query_row),
        "doc_id": docs.ids(rows),
        "label": joined("labels"),
        "rank": joined("ranks"),
        "score": joined("scores"),
        "judge": joined("judged"),
        "source": [source for one in lists for source in one.sources],
        "list": [one.kind for one in lists for _ in one.sources],
        "query_row": query_row,
        "passage_row": rows,
    }
    return pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names})
