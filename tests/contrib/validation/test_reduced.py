"""A dataset reduced for validation: the top of a run and what is relevant, nothing else."""

import json

import numpy as np
import pytest
from trec import iter_trec

from tandem.data.collection import Collection
from tandem.data.dataset import run
from tandem.data.given import run_given
from tandem.data.runs import write_run
from tandem.data.splits import compute_position
from tandem.errors import UserError
from tandem.store.artifact import open_artifact
from tandem.store.job import Job, writing

RANKED = {"v1": "abcd", "v2": "cbad", "v3": "dcba"}  # what the reference run lists, best first


@pytest.fixture
def base(tmp_path, make):
    """Passages a to h; dev queries v1 (relevant: e; judged irrelevant: b, h), v2 (relevant: c) and v3 (none)."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    docs = [json.dumps({"_id": i, "title": "", "text": f"text {i}"}) for i in "abcdefgh"]
    (folder / "corpus.jsonl").write_text("\n".join(docs) + "\n")
    queries = [json.dumps({"_id": q, "text": f"what {q}"}) for q in ("t1", "v1", "v2", "v3")]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n")
    (folder / "qrels" / "train.tsv").write_text("t1\tf\t1\n")
    (folder / "qrels" / "dev.tsv").write_text("v1\te\t1\nv1\tb\t0\nv1\th\t0\nv2\tc\t2\nv3\td\t0\n")
    return make("base", {"source": "beir"}, path=str(folder))


@pytest.fixture
def reference(base, tmp_path):
    """`reference(split)`: a run over the base."""

    def build(split="dev"):
        job = Job(
            "bm25", tmp_path / "results" / f"bm25.{split}-0", {"split": split}, {"dataset": base}
        )
        with writing(job) as draft:
            rows = ((query, list(docs), np.arange(4, 0, -1)) for query, docs in RANKED.items())
            write_run(job, draft, rows)
        return open_artifact(job.out)

    return build


@pytest.fixture
def reduce(base, reference, tmp_path):
    """`reduce(**params)`: the base reduced by the reference run."""

    def run_stage(**params):
        out = tmp_path / "results" / f"reduced-{len(list(tmp_path.glob('results/*')))}"
        run(Job("dataset", out, {"source": "reduced"} | params, {"of": base, "run": reference()}))
        return open_artifact(out)

    return run_stage


def docs(artifact):
    return "".join(Collection(artifact).doc_ids().to_pylist())


def test_top_and_relevant_passages_of_the_dev_queries_by_hand(reduce):
    dataset = reduce(depth=1, others=0)
    # v1: a; v2: c, which is relevant; v3: d; and e, relevant for v1
    assert docs(dataset) == "acde"
    assert list(Collection(dataset).queries("dev")) == ["v1", "v2", "v3"]
    # the judgements of b and h go with these passages; that of d stays
    assert Collection(dataset).qrels("dev") == {"v1": {"e": 1}, "v2": {"c": 2}, "v3": {"d": 0}}
    assert dataset.manifest.facts["warnings"] == []
    with pytest.raises(UserError, match="holds no split train"):
        Collection(dataset).queries("train")


def test_the_reference_run_is_the_run_given(reduce, tmp_path):
    dataset = reduce(depth=3, others=0)
    job = Job(
        "given",
        tmp_path / "results" / "given.dev-0",
        {"split": "dev", "depth": 2},
        {"dataset": dataset},
    )
    run_given(job)
    # c is relevant for v2 and stands in the run all the same
    assert [(query, ranking) for query, ranking, _ in iter_trec(job.out / "run.trec")] == [
        (query, list(listed[:2])) for query, listed in RANKED.items()
    ]


def test_other_passages_are_drawn_by_hash(reduce):
    few, more = reduce(depth=1, others=1), reduce(depth=1, others=2)
    left = sorted("bfgh", key=compute_position)
    assert set(docs(few)) - set("acde") == set(left[:3])  # one for each of three queries
    assert set(docs(more)) == set("abcdefgh")


def test_fewer_queries_bring_fewer_passages(reduce):
    import hashlib

    dataset = reduce(depth=2, others=0, dev_queries=1)
    (query,) = Collection(dataset).queries("dev")
    assert query == min(RANKED, key=lambda q: hashlib.sha1(q.encode()).hexdigest())
    relevant = {"v1": "e", "v2": "c", "v3": ""}[query]
    assert set(docs(dataset)) == set(RANKED[query][:2] + relevant)


def test_a_run_of_another_split_or_none_is_refused(base, reference, tmp_path):
    def job(**inputs):
        return Job(
            "dataset", tmp_path / "no", {"source": "reduced", "depth": 1}, {"of": base, **inputs}
        )

    with pytest.raises(UserError, match="is a run of split test, but split is dev"):
        run(job(run=reference("test")))
    with pytest.raises(UserError, match="is a dataset, not a run"):
        run(job(run=base))
