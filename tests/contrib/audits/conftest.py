"""Collections and runs written by hand."""

import pytest

from tandem.store.artifact import open_artifact


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
