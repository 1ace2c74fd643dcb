"""Datasets of source `dissimilar`: without the training queries that are similar to others."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.contrib.audits.similar_queries import run as similar_stage
from tandem.data.collection import Collection
from tandem.data.dataset import run
from tandem.data.tables import LISTS_SCHEMA
from tandem.errors import UserError
from tandem.store.artifact import open_artifact
from tandem.store.job import Job, writing


@pytest.fixture
def make(tmp_path):
    """`make(name, source, inputs, **execution)`: run the stage `dataset`."""

    def run_stage(name, source, inputs=None, **execution):
        out = tmp_path / "results" / name
        run(Job("dataset", out, {"source": source}, inputs or {}, execution))
        return open_artifact(out, "dataset")

    return run_stage


@pytest.fixture
def beir(tmp_path):
    """A BEIR folder, where two training queries repeat the test query and a third does not; with answers."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    passages = [
        {"_id": "d1", "title": "One", "text": "alpha beta"},
        {"_id": "d2", "title": "", "text": "gamma"},
    ]
    texts = {"q1": "alpha?", "q2": "gamma?", "q3": "Gamma", "q4": "gamma!", "q5": "delta"}
    files = {
        "corpus": passages,
        "queries": [{"_id": query, "text": text} for query, text in texts.items()],
        "answers": [{"_id": query, "answers": [query.upper()]} for query in ("q1", "q2", "q3")],
    }
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels" / "train.tsv").write_text("q1\td1\t1\nq3\td2\t1\nq4\td2\t1\nq5\td1\t1\n")
    (folder / "qrels" / "test.tsv").write_text("q2\td2\t1\n")
    return folder


@pytest.fixture
def repeated(beir, make):
    """The dataset of this folder."""
    return make("base", "beir", path=str(beir))


def audit(base, out):
    similar_stage(Job("similar_queries", out, {"depth": 5, "threshold": 0.5}, {"dataset": base}))
    return open_artifact(out)


def table(artifact, name):
    return pq.read_table(artifact.path(name)).to_pylist()


def test_similar_training_queries_are_removed_everywhere(repeated, make, tmp_path):
    similar = audit(repeated, tmp_path / "similar-0123456789")
    dataset = make("less", "dissimilar", {"of": repeated, "similar": similar})
    assert list(Collection(dataset).queries("train")) == ["q1", "q5"]
    assert Collection(dataset).queries("test") == {"q2": "gamma?"}
    assert Collection(dataset).qrels("train") == {"q1": {"d1": 1}, "q5": {"d1": 1}}
    assert [row["query_id"] for row in table(dataset, "answers.parquet")] == ["q1", "q2"]
    assert table(dataset, "corpus.parquet") == table(repeated, "corpus.parquet")
    assert dataset.manifest.facts["source"]["removed"] == 2
    assert dataset.manifest.facts["warnings"] == []


def test_training_lists_of_removed_queries_go_too(repeated, make, tmp_path):
    job = Job("dataset", tmp_path / "results" / "listed", repeated.params, {})
    with writing(job) as draft:
        for name in ("corpus", "queries", "qrels"):
            pq.write_table(
                pq.read_table(repeated.path(f"{name}.parquet")), draft.path(f"{name}.parquet")
            )
        rows = [("q3", "d2", 1, 0.5), ("q3", "d1", 0, None), ("q1", "d1", 1, None)]
        columns = [
            pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), LISTS_SCHEMA, strict=True)
        ]
        pq.write_table(pa.table(columns, schema=LISTS_SCHEMA), draft.path("lists.parquet"))
    base = open_artifact(job.out)
    similar = audit(base, tmp_path / "similar-0123456789")
    dataset = make("less", "dissimilar", {"of": base, "similar": similar})
    assert list(Collection(dataset).lists()) == [("q1", [("d1", 1, None)])]


def test_an_audit_of_another_dataset_is_refused(repeated, make, beir, tmp_path):
    other = make("other", "beir", path=str(beir))
    similar = audit(other, tmp_path / "similar-0123456789")
    with pytest.raises(UserError, match="is an audit of other, not of base"):
        make("less", "dissimilar", {"of": repeated, "similar": similar})
    with pytest.raises(UserError, match="the input similar is missing; give a similar_queries"):
        make("less", "dissimilar", {"of": repeated})
    with pytest.raises(UserError, match=r"similar .* is a dataset, not a similar_queries"):
        make("less", "dissimilar", {"of": repeated, "similar": other})
