"""A teacher's scores stand beside the rows they belong to: its own logits, a mean of them, or those of a run."""

import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from listed import listed_rows
from messages import other_dataset

from tandem.config.settings import Execution
from tandem.contrib.distillation import teacher
from tandem.data.tables import LISTS_SCHEMA
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder
from tandem.models.tokens import Tokens
from tandem.negatives import candidates
from tandem.store.artifact import open_artifact
from tandem.store.job import writing

SCORING = {"precision": "fp32", "batch_tokens": 256}
HYBRID = {"negative_below": 0.6, "positive_above": None, "hybrid": True, "backfill": None}


@pytest.fixture
def own_tokens(make_tokens, dataset, tmp_path):
    """Token ids of its own for each test: the scored pairs are kept beside them."""
    return make_tokens(tmp_path / "tiny" / "tokens" / "tiny-0123456789", dataset)


@pytest.fixture
def lists(make_job, dataset, train_run, own_tokens, cross_model, tmp_path):
    """Hybrid lists: every query has an undenoised and a denoised one, which share passages."""
    inputs = {"dataset": dataset, "run": train_run, "tokens": own_tokens}
    inputs |= {"judge.0": cross_model, "judge_tokens.0": own_tokens}
    params = {
        "first_rank": 1,
        "depth": 9,
        "negatives": 6,
        "queries": None,
        "split": "train",
        "seed": 1,
    }
    job = make_job(
        "candidates",
        tmp_path / "candidates-0123456789",
        params | {"denoise": HYBRID} | SCORING,
        inputs,
    )
    candidates.run(job)
    return open_artifact(job.out)


@pytest.fixture
def teach(make_job, dataset, lists, tmp_path):
    """`teach(params, **inputs)`: the stage's scores and manifest."""

    def make(params, **inputs):
        out = tmp_path / f"teacher{len(list(tmp_path.iterdir()))}-0123456789"
        inputs = {role.replace("__", "."): source for role, source in inputs.items()}
        teacher.run(
            make_job("teacher", out, params, {"dataset": dataset, "candidates": lists, **inputs})
        )
        artifact = open_artifact(out, "teacher")
        return np.load(artifact.path("scores.npy")), artifact.manifest

    return make


@pytest.fixture
def release(write_ranked, dataset, tmp_path):
    """`release(ranked, kind, **params)`: a run artifact of (query, documents, scores)."""

    def make(ranked, kind="imported", **params):
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}-0123456789"
        return write_ranked(kind, out, params, {"dataset": dataset}, ranked)

    return make


def rows_of(lists):
    return listed_rows(lists)


def logits(model, tokens, rows):
    """The cross-encoder's scores of the lists' rows, computed without a store."""
    opened, cross = Tokens.open(tokens), CrossEncoder.load(model.folder / "cross")
    accelerate(
        cross,
        Execution(attention="padded"),
        SCORING["batch_tokens"],
        SCORING["precision"],
        training=False,
    )
    texts = (
        [opened.queries[r["query_row"]] for r in rows],
        [opened.passages[r["passage_row"]] for r in rows],
    )
    return cross.score(*texts, opened.template, SCORING["precision"], SCORING["batch_tokens"])


def kept_pairs(folder):
    return sum(len(np.load(path)) // 3 for path in folder.rglob("pairs/*/*.npy"))


def test_a_cross_encoder_teaches_its_own_logits_and_scores_no_pair_twice(
    teach, lists, cross_model, own_tokens, tmp_path, monkeypatch
):
    scored, rows = kept_pairs(tmp_path), rows_of(lists)
    assert scored == 20 * 9  # denoising has asked for every pair already
    scores, manifest = teach(SCORING, judge__0=cross_model, judge_tokens__0=own_tokens)
    assert scores.dtype == np.float32
    assert scores.tobytes() == logits(cross_model, own_tokens, rows).tobytes()
    assert {row["list"] for row in rows} == {"undenoised", "denoised"}
    assert kept_pairs(tmp_path) == scored
    facts = {
        name: manifest.facts[name]
        for name in ("pairs", "scored", "missing", "missing_positives", "lowest", "highest")
    }
    bounds = {"lowest": float(scores.min()), "highest": float(scores.max())}
    assert facts == {
        "pairs": len(rows),
        "scored": len(rows),
        "missing": 0,
        "missing_positives": 0,
        **bounds,
    }
    monkeypatch.setattr(teacher, "PAIRS_PER_GROUP", 7)
    again, _ = teach(SCORING, judge__0=cross_model, judge_tokens__0=own_tokens)
    assert again.tobytes() == scores.tobytes()


def test_two_teachers_teach_the_mean_of_their_logits(
    teach, lists, cross_model, joint_model, own_tokens
):
    scores, _ = teach(
        SCORING,
        judge__0=cross_model,
        judge_tokens__0=own_tokens,
        judge__1=joint_model,
        judge_tokens__1=own_tokens,
    )
    both = [
        logits(model, own_tokens, rows_of(lists)).astype(float)
        for model in (cross_model, joint_model)
    ]
    assert not np.allclose(*both)
    assert scores == pytest.approx((both[0] + both[1]) / 2, rel=1e-6)


def test_a_weighted_mean_of_a_cross_encoder_and_a_run(
    teach, lists, train_run, cross_model, own_tokens
):
    judge = {"judge__0": cross_model, "judge_tokens__0": own_tokens}
    scores, manifest = teach({**SCORING, "weights": (3.0, 1.0)}, **judge, run__0=train_run)
    of_run, _ = teach({}, run=train_run)
    own = logits(cross_model, own_tokens, rows_of(lists)).astype(float)
    assert scores == pytest.approx((3 * own + of_run) / 4, rel=1e-5)
    assert manifest.facts["missing"] == 0


def test_normalised_scores_of_a_list_by_hand():
    # z: mean 2, deviation 1 of the population of 1 and 3; 0.5 and 0.5 are all equal
    scores, offsets = np.array([1.0, np.nan, 3.0, 0.5, 0.5]), np.array([0, 3, 5])
    np.testing.assert_array_equal(
        teacher.normalise_scores(scores, offsets, "z_score"), [-1, np.nan, 1, 0, 0]
    )
    np.testing.assert_array_equal(
        teacher.normalise_scores(scores, offsets, "min_max"), [0, np.nan, 1, 1, 1]
    )


def test_what_one_teacher_did_not_score_has_no_score(
    teach, lists, release, cross_model, own_tokens
):
    judge = {"judge__0": cross_model, "judge_tokens__0": own_tokens}
    partial = release([("train-owl", ["owl-1", "owl-2", "owl-3"], [3.0, 2.0, 1.0])])
    scores, manifest = teach(
        {**SCORING, "weights": (1.0, 1.0), "normalize": "z_score"}, **judge, run__0=partial
    )
    known = [
        row["query_id"] == "train-owl" and row["doc_id"].startswith("owl") for row in rows_of(lists)
    ]
    assert np.isfinite(scores).tolist() == known
    assert manifest.facts["scored"] == sum(known)


def score_of(row):
    """A score that no two pairs share, exact as float32; None for a pair that the run lacks."""
    return (
        None
        if (row["query_row"] + row["passage_row"]) % 5 == 0
        else 64.0 * row["query_row"] + row["passage_row"]
    )


def ranked(rows):
    """A run with the scores of `score_of`, queries and passages in another order than in the lists."""
    for query in sorted({row["query_id"] for row in rows}, reverse=True):
        scores = {row["doc_id"]: score_of(row) for row in rows if row["query_id"] == query}
        scores = {doc: score for doc, score in scores.items() if score is not None}
        if query != "train-owl":
            yield query, [*scores, "lynx-1"], [*scores.values(), -1.0]


@pytest.mark.parametrize("group", [1024, 3])
def test_a_run_teaches_its_scores_and_leaves_out_what_it_lacks(
    teach, lists, release, monkeypatch, group
):
    monkeypatch.setattr(teacher, "QUERIES_PER_LOOKUP", group)
    rows = [row for row in rows_of(lists) if row["doc_id"] != "lynx-1"]
    scores, manifest = teach({}, run=release(ranked(rows)))
    missing = positives = 0
    for row, score in zip(rows_of(lists), scores, strict=True):
        expected = -1.0 if row["doc_id"] == "lynx-1" else score_of(row)
        if row["query_id"] == "train-owl" or expected is None:
            assert np.isnan(score)
            missing, positives = missing + 1, positives + row["label"]
        else:
            assert score == expected
    assert missing > 15
    assert (manifest.facts["missing"], manifest.facts["missing_positives"]) == (missing, positives)
    assert (manifest.facts["scored"], manifest.facts["lowest"]) == (
        len(scores) - missing,
        np.nanmin(scores),
    )


def test_a_reranked_run_teaches_down_to_its_depth(teach, lists, release, train_run, dataset):
    from tandem.data.runs import iter_run

    below = (
        (query, docs, [9.5, 8.5, 7.5, *range(-1, -7, -1)])
        for query, docs, _ in iter_run(train_run, dataset)
    )
    scores, _ = teach({}, run=release(below, "rerank", depth=3))
    assert {float(score) for score in scores[~np.isnan(scores)]} == {9.5, 8.5, 7.5}
    assert np.isnan(scores).sum() == sum(row["rank"] > 3 for row in rows_of(lists))


def test_where_no_positive_has_a_score_a_warning_says_what_learns_nothing(teach, lists, release):
    negative = next(row for row in rows_of(lists) if not row["label"])
    run = release([(negative["query_id"], [negative["doc_id"]], [1.0])])
    _, manifest = teach({}, run=run)
    positives = manifest.facts["missing_positives"]
    [warning] = manifest.facts["warnings"]
    assert warning.startswith(f"none of the {positives} positives has a score")


@pytest.mark.parametrize(
    ("kind", "scores", "warned"),
    [("given", [None, 0.5], True), ("given", [None, None], False), ("imported", [0.5, 0.5], False)],
)
def test_scores_of_training_lists_that_are_not_used_are_warned_of(
    kind, scores, warned, make_job, lists, release, tmp_path
):
    written = make_job("dataset", tmp_path / "scored-0123456789", {"source": "written by a test"})
    pairs = [["q", "q"], ["a", "b"], [1, 0], scores]
    with writing(written) as draft:
        table = pa.table(
            [pa.array(*c) for c in zip(pairs, LISTS_SCHEMA.types, strict=True)], schema=LISTS_SCHEMA
        )
        pq.write_table(table, draft.path("lists.parquet"))
    run = release([("train-owl", ["owl-1"], [-1.0])], kind)
    inputs = {"dataset": open_artifact(written.out), "candidates": lists, "run": run}
    job = make_job("teacher", tmp_path / "teacher-0123456789", {}, inputs)
    doubts = list(teacher.list_score_doubts(job, {"missing_positives": 0}, positives=1))
    assert len(doubts) == warned
    assert all(line.startswith("the dataset's own training lists have scores") for line in doubts)


def test_a_run_over_other_queries_is_a_mistake(teach, release, tmp_path):
    with pytest.raises(
        UserError,
        match=r"has a score for none of the \d+ pairs of .*candidates-0123456789; name a run",
    ):
        teach({}, run=release([("test-owl", ["owl-1", "owl-2"], [2.0, 1.0])]))
    assert not list(tmp_path.rglob("scores.npy"))


def test_inputs_of_another_dataset_are_refused(
    teach, make_dataset, make_tokens, cross_model, documents, tmp_path
):
    other = make_dataset(tmp_path / "dataset" / "other-0123456789", documents)
    tokens = make_tokens(tmp_path / "tokens" / "other-0123456789", other)
    with pytest.raises(UserError, match=other_dataset(r"judge_tokens\.0", "other-0123456789")):
        teach(SCORING, judge__0=cross_model, judge_tokens__0=tokens)


def test_killed_and_resumed_gives_the_same_bytes(
    make_job, dataset, lists, joint_model, own_tokens, command, tmp_path
):
    inputs = {
        "dataset": dataset,
        "candidates": lists,
        "judge.0": joint_model,
        "judge_tokens.0": own_tokens,
    }
    job = make_job("teacher", tmp_path / "killed-0123456789", SCORING, inputs)
    script = (
        "import sys, time\n"
        "from tandem import __main__\n"
        "from tandem.retrieval import pair_scores as pairs\n"
        "append, pairs.TEXTS_BETWEEN_CHECKS, pairs.PENDING = pairs.PairStore.append, 16, 40\n"
        "pairs.PairStore.append = lambda *args: (append(*args), print('kept', flush=True), time.sleep(0.5))\n"
        "sys.argv[1:1] = ['teacher']\n"
        "sys.exit(__main__.main())\n"
    )
    before = kept_pairs(tmp_path)
    words = [sys.executable, "-c", script, *command(job)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ})
    assert [process.stdout.readline() for _ in range(2)] == ["kept\n", "kept\n"]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (job.out / "stage.json").exists()
    assert kept_pairs(tmp_path) - before == 96  # two parts of three chunks of 16
    teacher.run(job)
    scores = np.load(open_artifact(job.out).path("scores.npy"))
    assert scores.tobytes() == logits(joint_model, own_tokens, rows_of(lists)).tobytes()
