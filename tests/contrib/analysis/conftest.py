"""Training lists of the tiny collection, written by hand."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.data.collection import Collection
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import writing


@pytest.fixture(scope="session")
def drawn(results, make_job, dataset):
    """Of each train query two lists, undenoised and denoised: its positive and five passages of other subjects.

    The second negative of the undenoised list was drawn at random: it has neither rank nor score.
    """
    from tandem.negatives.candidates import CANDIDATES_SCHEMA

    collection = Collection(dataset)
    rows = []
    for at in range(len(collection.queries("train"))):
        for kind, first in (("undenoised", 3), ("denoised", 30)):
            passages = [3 * at + 2, *((3 * at + first + i) % 60 for i in range(5))]
            for place, passage in enumerate(passages):
                chance = kind == "undenoised" and place == 2
                rows.append(
                    {
                        "label": int(place == 0),
                        "rank": 0 if place == 0 or chance else 10 * place,
                        "score": float("nan") if place == 0 or chance else 9.0 - place,
                        "judge": float("nan"),
                        "source": "qrels" if place == 0 else "random" if chance else "run",
                        "list": kind,
                        "query_row": at,
                        "passage_row": passage,
                    }
                )
    job = make_job(
        "candidates",
        results / "candidates" / "bm25-00000000d0",
        {"split": "train"},
        {"dataset": dataset},
    )
    with writing(job) as draft:
        pq.write_table(
            pa.Table.from_pylist(rows, CANDIDATES_SCHEMA), draft.path("candidates.parquet")
        )
        write_json(draft.path("report.json"), {"dropped": {"known positive": 12}})
    assert np.shape(rows) == (240,)
    return open_artifact(job.out)
