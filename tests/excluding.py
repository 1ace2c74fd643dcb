"""A collection whose qrels exclude passages, and jobs that choose by a measure on it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_project import write_collection

from tandem.data.collection import EXCLUDED, QRELS, Collection
from tandem.store.artifact import open_artifact
from tandem.store.job import writing


@pytest.fixture
def excluding_dataset(make_job, documents, tmp_path):
    """The tiny collection; of each dev query's subject passage 1 is relevant, 2 and 3 are excluded."""
    job = make_job(
        "dataset", tmp_path / "dataset" / "excluding-0123456789", {"source": "written by a test"}
    )
    with writing(job) as draft:
        write_collection(draft.folder, documents)
        qrels = pq.read_table(draft.path(QRELS))
        barred = [row for row in qrels.to_pylist() if row["split"] == "dev"]
        more = [
            r | {"doc_id": f"{r['doc_id'][:-1]}{n}", "relevance": EXCLUDED}
            for r in barred
            for n in (2, 3)
        ]
        pq.write_table(
            pa.concat_tables([qrels, pa.Table.from_pylist(more, qrels.schema)]), draft.path(QRELS)
        )
    return open_artifact(job.out)


@pytest.fixture
def job_on_excluded(make_job, write_ranked, excluding_dataset, tmp_path):
    """`job_on_excluded(kind, **params)`: a job on two runs of dev that rank 2, 3, 1."""

    def make(kind, **params):
        subjects = [
            query.removeprefix("dev-") for query in Collection(excluding_dataset).queries("dev")
        ]
        lists = [
            (f"dev-{s}", [f"{s}-{n}" for n in (2, 3, 1)], np.array([3, 2, 1], np.float32))
            for s in subjects
        ]
        own, inputs = {"depth": 20, "split": "dev"}, {"dataset": excluding_dataset}
        runs = [
            write_ranked("bm25", tmp_path / f"bm25/r{at}.dev-0123456789", own, inputs, lists)
            for at in (0, 1)
        ]
        params |= {"split": "dev", "measure": "RR@1", "depth": 20}
        return make_job(
            kind,
            tmp_path / kind / "x.dev-0123456789",
            params,
            inputs | {"run.0": runs[0], "run.1": runs[1]},
        )

    return make
