"""Positive-aware mining: which passages score too near a positive to be negatives, with numbers worked out by hand."""

import json

import numpy as np
import pytest
from listed import listed_rows

from tandem.config.models import BelowPositive, Denoise
from tandem.config.references import parameters_of
from tandem.data.runs import iter_run
from tandem.models.ragged import Ragged
from tandem.negatives.candidates import run
from tandem.negatives.drawing import draw_denoised, draw_undenoised, keep_below, make_pool
from tandem.store.artifact import open_artifact

TEXTS = Ragged.of([np.array([row]) for row in range(100)])  # each passage is another
ROWS = np.array([1, 2, 3, 4, 5, 6])
COSINES = np.array([0.9, 0.8, 0.77, 0.76, 0.5, -0.1], np.float32)
SHARE, MARGIN = BelowPositive(share=0.95), BelowPositive(margin=0.05)


def pool(positives, scores=COSINES, **options):
    return make_pool(9, np.array(positives), (ROWS, scores), (1, 6), None, TEXTS, **options)


def draw(candidates, below, judged=False):
    keep_below(candidates, below, judged)
    return (
        draw_undenoised(candidates, None, np.random.default_rng(0))
        .rows[len(candidates.positives) :]
        .tolist()
    )


def test_a_share_of_the_positives_score():
    # 2 is the positive: 0.95 · 0.8 = 0.76, and 0.76 as float32 lies just below it
    candidates = pool([2])
    assert draw(candidates, SHARE) == [4, 5, 6]
    assert candidates.dropped["too near a positive"] == 2  # 1 and 3


def test_a_margin_under_the_positives_score():
    # 0.8 - 0.05 = 0.75
    assert draw(pool([2]), MARGIN) == [5, 6]
    assert draw(pool([2]), BelowPositive(margin=0.0)) == [3, 4, 5, 6]


def test_a_share_of_a_score_below_zero_lies_below_it():
    # the positive has -0.4: 0.9 of it would be -0.36, above it; the limit is -0.4 - 0.1 · 0.4 = -0.44
    scores = np.array([0.3, -0.1, -0.4, -0.42, -0.45, -0.9], np.float32)
    assert draw(pool([3], scores), BelowPositive(share=0.9)) == [5, 6]


def test_of_several_positives_the_lowest_that_has_a_score_counts():
    assert draw(pool([1, 5]), SHARE) == [6]  # 0.95 · 0.5
    assert draw(pool([1, 77]), SHARE) == [2, 3, 4, 5, 6]  # 77 was not retrieved: 0.95 · 0.9 = 0.855


def test_a_positive_that_was_not_retrieved_leaves_no_negative():
    candidates = pool([77])
    assert draw(candidates, MARGIN) == []
    assert candidates.dropped["no positive has a score"] == 6
    reranked = pool([5], scored=4)  # below rank 4 the numbers are not scores
    assert draw(reranked, MARGIN) == []


def test_the_backfill_keeps_its_distance_too():
    candidates = make_pool(9, np.array([2]), (ROWS, COSINES), (1, 2), (3, 6), TEXTS)
    candidates.judged, candidates.judged_positives = (
        np.array([0.5], np.float32),
        np.array([0.9], np.float32),
    )
    keep_below(candidates, SHARE, judged=False)
    backfill = parameters_of(Denoise)(positive_above=None, backfill={"first_rank": 3, "depth": 6})
    assert draw_denoised(candidates, 9, backfill, np.random.default_rng(0)).rows.tolist() == [
        2,
        4,
        5,
        6,
    ]


def test_a_judge_compares_and_may_still_accept_a_positive():
    candidates = pool([2])  # the window is 1, 3, 4, 5, 6
    candidates.judged = np.array([0.95, 0.05, 0.79, 0.04, 0.01], np.float32)
    # a positive that the judge does not believe in
    candidates.judged_positives = np.array([0.05], np.float32)
    keep_below(candidates, BelowPositive(share=0.5), judged=True)
    lists = draw_denoised(
        candidates,
        None,
        parameters_of(Denoise)(negative_below=0.1, positive_above=0.9),
        np.random.default_rng(0),
    )
    # 0.025: of 3, 5 and 6, which denoising keeps, 6 alone lies below
    assert lists.rows.tolist() == [2, 1, 6]
    assert lists.labels.tolist() == [1, 1, 0]
    # each of 4 once
    reasons = {"accepted as positive": 1, "too near a positive": 3, "not surely negative": 0}
    assert reasons.items() <= candidates.dropped.items()


@pytest.fixture
def stage(make_job, dataset, tokens, train_run, tmp_path):
    """`stage(below, **inputs)`: the stage's rows and its report."""

    def make(below, **inputs):
        params = {"depth": 9, "split": "train", "seed": 1, "precision": "fp32", "batch_tokens": 256}
        inputs = {role.replace("__", "."): artifact for role, artifact in inputs.items()}
        inputs |= {"dataset": dataset, "run": train_run, "tokens": tokens}
        job = make_job(
            "candidates", tmp_path / "c-0123456789", {**params, "below_positive": below}, inputs
        )
        run(job)
        rows = listed_rows(open_artifact(job.out))
        return rows, json.loads((job.out / "report.json").read_text())

    return make


def test_the_stage_compares_the_runs_scores(stage, train_run, dataset):
    # each query has its positive at rank 3, with score 7 of 9, 8, …, 1: at most 5.25 are ranks 5 to 9
    rows, report = stage({"share": 0.75})
    assert {row["rank"] for row in rows if not row["label"]} == {5, 6, 7, 8, 9}
    assert report["dropped"]["too near a positive"] == 20 * 3
    scores = {
        query: dict(zip(docs, scores, strict=True))
        for query, docs, scores in iter_run(train_run, dataset)
    }
    for row in rows:
        assert row["label"] or scores[row["query_id"]][row["doc_id"]] <= 0.75 * 7


def test_the_stage_compares_a_judges_probabilities(stage, cross_model, tokens):
    rows, report = stage(
        {"margin": 0.0, "judged": True}, judge__0=cross_model, judge_tokens__0=tokens
    )
    judged = {row["query_id"]: row["judge"] for row in rows if row["label"]}
    negatives = [row for row in rows if not row["label"]]
    assert all(row["judge"] <= judged[row["query_id"]] for row in negatives)
    assert len(negatives) == 20 * 8 - report["dropped"]["too near a positive"]
    assert 0 < len(negatives) < 20 * 8


@pytest.mark.parametrize(
    ("below", "margin"),
    [(SHARE, {"relative_margin": 0.05}), (BelowPositive(margin=0.2), {"absolute_margin": 0.2})],
    ids=["share", "margin"],
)
def test_the_same_negatives_as_sentence_transformers_mines(
    encoder_folder, documents, below, margin
):
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    model = SentenceTransformer(str(encoder_folder), device="cpu")
    texts = [text for _, _, text in documents]
    positives = {"what eats crabs": [2], "a wading bird": [3, 4], "who rests on sand banks": [34]}
    pairs = [(query, texts[row]) for query, rows in positives.items() for row in rows]
    mined = mine_hard_negatives(
        Dataset.from_dict({"query": [q for q, _ in pairs], "answer": [p for _, p in pairs]}),
        model,
        corpus=texts,
        range_max=len(texts) - 1,
        num_negatives=len(texts) - 1,
        output_format="labeled-pair",
        verbose=False,
        **margin,
    )
    theirs = {query: set() for query in positives}
    for query, text, label in zip(mined["query"], mined["answer"], mined["label"], strict=True):
        if not label:
            theirs[query].add(texts.index(text))
    scores = model.similarity(model.encode(list(positives)), model.encode(texts)).numpy()
    for own, (query, rows) in zip(scores, positives.items(), strict=True):
        order = np.argsort(-own)
        run_of_query = (order, own[order])
        candidates = make_pool(9, np.array(rows), run_of_query, (1, len(texts)), None, TEXTS)
        assert set(draw(candidates, below)) == theirs[query]
        assert 0 < len(theirs[query]) < len(texts) - len(rows)
