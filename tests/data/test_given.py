import pytest

from tandem.data.collection import Collection
from tandem.data.given import run_given as run
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.store.artifact import open_artifact
from tandem.store.job import Job

CROSS = (
    "q one\t\tz\t0\nq one\t\tgold\t1\nq one\t\ta\t0\nq one\t\tm\t0\n"
    "q two\t\tgold\t1\n"
    "q three\t\tgold\t0\nq three\t\ta\t1\nq three\t\tz\t0\n"
)


@pytest.fixture
def dataset(tmp_path, make):
    """A dataset with the training lists of three queries, one without a negative."""
    folder = tmp_path / "tsv"
    folder.mkdir()
    (folder / "cross.tsv").write_text(CROSS)
    return make("dataset", {"source": "rocketqa_tsv", "cross": "cross.tsv"}, path=str(folder))


@pytest.fixture
def rank(tmp_path):
    """`rank(dataset, split, depth)`: the run, with texts in place of ids, and the artifact."""

    def run_stage(dataset, split="train", depth=100):
        out = tmp_path / "results" / f"given-{split}-{depth}"
        run(Job("given", out, {"split": split, "depth": depth}, {"dataset": dataset}))
        collection = Collection(dataset)
        queries, texts = (
            collection.queries(split),
            collection.texts(collection.doc_ids().to_pylist()),
        )
        artifact = open_artifact(out, "given")
        rows = iter_run(artifact, dataset)
        return [
            (queries[q], [texts[d][1] for d in docs], scores.tolist()) for q, docs, scores in rows
        ], artifact

    return run_stage


def test_negatives_rank_as_they_are_listed(dataset, rank):
    ranked, artifact = rank(dataset)
    assert ranked == [
        ("q one", ["z", "a", "m"], [-1, -2, -3]),
        ("q three", ["gold", "z"], [-1, -2]),
    ]
    assert {
        key: artifact.manifest.facts[key] for key in ("queries", "lines", "without_negative")
    } == {
        "queries": 2,
        "lines": 5,
        "without_negative": 1,
    }


def test_depth_cuts_the_end(dataset, rank):
    ranked, _ = rank(dataset, depth=1)
    assert [docs for _, docs, _ in ranked] == [["z"], ["gold"]]


def test_pools_of_dpr_rank_hard_negatives_first(tmp_path, make, rank):
    folder = tmp_path / "dpr"
    folder.mkdir()
    (folder / "psgs_w100.tsv").write_text(
        "id\ttext\ttitle\n" + "".join(f"{i}\tp{i}\t\n" for i in range(6))
    )
    (folder / "pool.json").write_text(
        '[{"question": "q", "answers": ["a"], "positive_ctxs": [{"psg_id": 3}],'
        ' "negative_ctxs": [{"psg_id": 0, "score": 99}, {"psg_id": 3}, {"psg_id": 77}],'
        ' "hard_negative_ctxs": [{"psg_id": 5, "score": 1}, {"psg_id": 1, "score": 2}]}]'
    )
    dataset = make("dpr", {"source": "dpr", "questions": {"train": "pool.json"}}, path=str(folder))
    # 77 is not a passage and was dropped with a warning; 3 is the positive.
    assert dataset.manifest.facts["warnings"] == [
        "1 rows of training lists name documents or queries that are not kept and were dropped"
    ]
    assert rank(dataset)[0] == [("q", ["p5", "p1", "p0"], [-1, -2, -3])]


def test_without_lists_or_negatives_there_is_no_run(tmp_path, dataset, rank, beir, make):
    without = make("beir", {"source": "beir"}, path=str(beir))
    with pytest.raises(UserError, match="has no training lists of its own; name a run instead"):
        rank(without)
    with pytest.raises(UserError, match="no split dev"):
        rank(dataset, split="dev")
    folder = tmp_path / "tsv"
    (folder / "cross.tsv").write_text("q one\t\tgold\t1\n")
    positive = make("positive", {"source": "rocketqa_tsv", "cross": "cross.tsv"}, path=str(folder))
    with pytest.raises(
        UserError, match="its training lists hold no negative for a query of split train"
    ):
        rank(positive, depth=7)
    assert not (tmp_path / "results" / "given-train-7" / "stage.json").exists()
