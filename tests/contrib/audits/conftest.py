"""Collections and runs written by hand."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.data import tables
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import writing


@pytest.fixture(scope="session")
def make_collection(make_job):
    """`make_collection(out, passages, queries, qrels)`: a dataset of (id, title, text), (id, text, split) and
    (query, document, relevance, split)."""

    def make(out, passages, queries, qrels=()):
        job = make_job("dataset", out, {"source": "written by a test"})
        with writing(job) as draft:
            parts = ("corpus", passages), ("queries", queries), ("qrels", qrels)
            for name, rows in parts:
                schema = getattr(tables, f"{name.upper()}_SCHEMA")
                columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
                pq.write_table(
                    pa.table(list(columns), schema=schema), draft.path(f"{name}.parquet")
                )
            write_json(draft.path("statistics.json"), {})
        return open_artifact(out)

    return make


@pytest.fixture(scope="session")
def make_run(write_ranked):
    """`make_run(out, dataset, split, ranked)`: a run of {query: [documents, best first]}."""

    def make(out, dataset, split, ranked):
        rows = ((query, docs, list(range(len(docs), 0, -1))) for query, docs in ranked.items())
        return write_ranked("bm25", out, {"depth": 100, "split": split}, {"dataset": dataset}, rows)

    return make


@pytest.fixture(scope="session")
def make_artifact(make_job):
    """`make_artifact(root, kind, run, params, inputs, …)`: the artifact of a stage that is run in a folder."""

    def make(root, kind, run, params, inputs, execution=None, name=None):
        out = root / kind / f"{name or kind}-0123456789"
        run(make_job(kind, out, params, inputs, execution))
        return open_artifact(out)

    return make
