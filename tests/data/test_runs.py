"""A run's columns: order, ties and text by hand, what is refused, and that blocks change nothing."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from trec import iter_trec

from tandem.data import runs
from tandem.data.collection import Collection
from tandem.data.runs import (
    append_below,
    iter_rows,
    iter_run,
    order_by_score,
    write_run,
)
from tandem.errors import UserError
from tandem.extras.tied_scores import lower_ties
from tandem.store.artifact import open_artifact
from tandem.store.job import writing


@pytest.fixture
def write(make_job, dataset, tmp_path):
    """`write(lists)`: a run of (query, documents, scores) over the tiny collection."""

    def make(lists, split="test"):
        out = tmp_path / f"bm25.{split}-{len(list(tmp_path.iterdir())):010}"
        job = make_job("bm25", out, {"split": split}, {"dataset": dataset})
        with writing(job) as draft:
            draft.facts["lines"] = write_run(job, draft, lists)
        return open_artifact(job.out)

    return make


def test_ties_are_broken_by_document_id_after_rounding_to_float32(write):
    # 1 and 1 + 1e-9 are the same float32
    run = write([("test-owl", ["owl-3", "bat-1", "owl-2"], [1.0, 2.5, 1.0 + 1e-9])])
    assert run.manifest.facts["lines"] == 3
    # … and the second of a tie is written as the next lower float32, 1 - 2**-24
    lines = [f"bat-1 1 2.5 {run.key}", f"owl-2 2 1 {run.key}", f"owl-3 3 0.99999994 {run.key}"]
    assert run.path("run.trec").read_text() == "".join(f"test-owl Q0 {line}\n" for line in lines)


def test_scores_fall_strictly_as_ids_sorted_one_by_one_would(write, dataset, documents):
    ids, draw = [doc for doc, _, _ in documents], np.random.default_rng(3)
    few = np.array(
        [
            np.inf,
            2.5,
            np.nextafter(np.float32(2.5), np.float32(0)),
            1e-45,
            0.0,
            -0.0,
            -1e-45,
            -1,
            -np.inf,
        ]
    )
    lists = [
        (f"test-{name}", list(draw.permutation(ids)[:30]), draw.choice(few, 30))
        for name in ("owl", "bat", "mole")
    ]
    run = write(lists)
    expected = [
        (query, *zip(*lower_ties(order_by_score(docs, scores)), strict=True))
        for query, docs, scores in lists
    ]
    for rows in (iter_run(run, dataset), iter_trec(run.path("run.trec"))):
        for (query, docs, scores), (other, best, values) in zip(rows, expected, strict=True):
            assert (query, docs) == (other, list(best))
            assert scores.tobytes() == np.array(values, np.float32).tobytes()


def test_the_size_of_row_groups_changes_no_line(write, dataset, documents, monkeypatch):
    ids, draw = [doc for doc, _, _ in documents], np.random.default_rng(0)
    lists = [
        (f"test-{name}", ids[:7], draw.normal(size=7))
        for name in ("seal", "owl", "bat", "mole", "lynx")
    ]
    whole = write(lists)
    monkeypatch.setattr(runs, "LINES_PER_GROUP", 14)
    parts = write(lists)
    assert [pq.read_metadata(run.path("run.parquet")).num_row_groups for run in (whole, parts)] == [
        1,
        3,
    ]
    pairs = zip(iter_rows(whole, dataset), iter_rows(parts, dataset), strict=True)
    assert all(
        a[0] == b[0] and np.array_equal(a[1], b[1]) and np.array_equal(a[2], b[2]) for a, b in pairs
    )


def test_runs_that_models_learn_from_have_no_text(write):
    assert set(write([("train-owl", ["owl-1"], [1])], "train").manifest.files) == {"run.parquet"}
    assert set(write([("dev-owl", ["owl-1"], [1])], "dev").manifest.files) == {
        "run.parquet",
        "run.trec",
    }


def test_a_line_takes_at_most_eight_bytes(write, dataset, documents):
    ids, draw = [doc for doc, _, _ in documents], np.random.default_rng(0)
    queries = Collection(dataset).queries("train")
    path = write([(query, ids, draw.normal(size=60)) for query in queries], "train").path(
        "run.parquet"
    )
    group = pq.read_metadata(path).row_group(0)
    assert sum(group.column(number).total_compressed_size for number in range(3)) <= 8 * 60 * len(
        queries
    )


def test_a_score_that_is_no_number_is_refused(write):
    with pytest.raises(ValueError, match="not a number"):
        write([("test-owl", ["owl-1"], [float("nan")])])


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([("test-owl", ["owl-1", "owl-1"], [2, 1])], "query test-owl lists document owl-1 twice"),
        ([("test-owl", ["owl-1"], [2]), ("test-owl", ["owl-2"], [1])], "query test-owl again"),
        ([("test-owl", ["unicorn-1"], [2])], "holds no passage unicorn-1"),
        ([("test-unicorn", ["owl-1"], [2])], "holds no query test-unicorn"),
    ],
)
def test_what_is_wrong_with_lists_is_named(write, tmp_path, lists, message):
    with pytest.raises(UserError, match=message):
        write(lists)
    assert not list(tmp_path.glob("*/*"))


def test_a_run_over_another_dataset_is_refused(write, make_dataset, documents, tmp_path):
    other = make_dataset(tmp_path / "dataset" / "other-0123456789", documents)
    with pytest.raises(
        UserError, match="is a run over tiny-0000000001, not over .*other-0123456789"
    ):
        iter_run(write([("test-owl", ["owl-1"], [1])]), other)


@pytest.mark.parametrize("lowest", [0.0, -1.5, -3e4, -(2.0**24), -1e9, -1073741800.0, -1e30])
def test_what_is_below_a_re_ranked_top_falls_whatever_its_lowest_score(lowest):
    scores = append_below(np.array([3.0, lowest], np.float32), 1000)
    assert (np.diff(scores) < 0).all()
    if lowest > -(2.0**24):
        assert scores[2:].tolist() == [np.floor(lowest) - 1 - rank for rank in range(998)]
