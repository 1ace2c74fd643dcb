"""RocketQA's rules: what is taken first, what a judge or an answer labels, what is drawn at random, lists joined."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from listed import listed_rows

from tandem.config.models import Denoise
from tandem.config.references import parameters_of
from tandem.data.collection import Collection
from tandem.data.rows import index_passages
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.extras.validation.validation_sets import set_apart
from tandem.models.ragged import Ragged
from tandem.negatives.candidates import draw_lists, run
from tandem.negatives.drawing import draw_denoised, draw_undenoised, judge_labelled, make_pool
from tandem.negatives.sources import PositiveLabels, draw_rows
from tandem.stages.negatives import CandidatesParams
from tandem.store.artifact import open_artifact
from tandem.store.job import writing
from tandem.training.instances import Instances, iter_batches
from tandem.training.lists import join_lists, read_lists
from tandem.training.numbered import NumberedCollection
from tandem.training.stage import read_training_lists

TEXTS = Ragged.of([np.array([row]) for row in range(100)])  # each passage is another
ROWS = np.array([1, 2, 3, 4, 5, 6, 7, 8])
SCORES = np.arange(8.0, 0, -1, dtype=np.float32)
MATCH = {"split": "train", "match": "string", "depth": 9, "title": False}
DENOISE = parameters_of(Denoise)(
    negative_below=0.1, positive_above=None, backfill={"first_rank": 6, "depth": 8}
)
PARAMS = CandidatesParams(
    seed=3, negatives=2, denoise=DENOISE, take="first", negatives_per="positive"
)


def rng():
    return np.random.default_rng(0)


def pool(positives, judged=None, window=(1, 5), backfill=(6, 8), barred=None):
    barred = None if barred is None else np.array(barred)
    candidates = make_pool(
        9, np.array(positives, np.int64), (ROWS, SCORES), window, backfill, TEXTS, barred
    )
    if judged is not None:
        candidates.judged = np.array(judged, np.float32)
        candidates.judged_positives = np.full(len(positives), 0.8, np.float32)
    return candidates


def test_the_first_negatives_are_those_ranked_highest():
    assert draw_undenoised(pool([2]), 2, rng(), first=True).rows.tolist() == [2, 1, 3]
    # 1 and 4 are not surely negative; of 3, 5 the judge is sure
    assert draw_denoised(
        pool([2], [0.5, 0.05, 0.3, 0.01]), 1, DENOISE, rng(), first=True
    ).rows.tolist() == [2, 3]


def test_negatives_are_counted_for_every_positive():
    per_positive = next(draw_lists(pool([2, 4], [0.01, 0.02, 0.03]), PARAMS))
    # two negatives for each of two positives: 1, 3 and 5 of the window, and one of ranks 6 to 8
    assert per_positive.rows[:5].tolist() == [2, 4, 1, 3, 5]
    assert per_positive.labels.tolist() == [1, 1, 0, 0, 0, 0]
    assert per_positive.rows[5] in (6, 7, 8)
    assert np.isnan(per_positive.judged[5])  # it was not judged
    per_query = next(
        draw_lists(
            pool([2, 4], [0.01, 0.02, 0.03]), PARAMS.model_copy(update={"negatives_per": "query"})
        )
    )
    assert per_query.rows.tolist() == [2, 4, 1, 3]


def test_what_is_barred_is_not_filled_up_with_either():
    lists = next(
        draw_lists(
            pool([2], [0.9, 0.9, 0.9], barred=[3, 6, 8]), PARAMS.model_copy(update={"negatives": 3})
        )
    )
    assert lists.rows.tolist() == [2, 7]


def test_a_judge_names_the_best_passage_and_sure_negatives():
    thresholds = parameters_of(Denoise)(negative_below=0.1, positive_above=0.9)
    lists = judge_labelled(
        pool([], [0.92, 0.05, 0.97, 0.5, 0.01]), 1, thresholds, rng(), first=True
    )
    assert lists.rows.tolist() == [3, 2]  # 1 is above the threshold too, but not the best
    assert lists.labels.tolist() == [1, 0]
    assert lists.sources == ["judge", "run"]
    np.testing.assert_allclose(lists.judged, [0.97, 0.05])
    assert (
        judge_labelled(
            pool([], [0.5, 0.9, 0.05, 0.05, 0.05]),
            1,
            thresholds.model_copy(update={"positive_above": 0.95}),
            rng(),
        )
        is None
    )
    nothing = judge_labelled(pool([], [], window=(9, 9)), 1, thresholds, rng())
    assert nothing is None


def test_the_threshold_of_a_pseudo_positive_is_strict_and_the_first_of_equals_wins():
    thresholds = parameters_of(Denoise)(negative_below=0.1, positive_above=0.5)
    assert judge_labelled(pool([], [0.5, 0.5, 0.0, 0.0, 0.0]), 1, thresholds, rng()) is None
    assert judge_labelled(
        pool([], [0.1, 0.75, 0.75, 0.0, 0.0]), None, thresholds, rng()
    ).rows.tolist() == [2, 4, 5]


def test_random_passages_are_distinct_and_follow_from_seed_and_query():
    rows = draw_rows(60, 8, 1, 5)
    assert len(set(rows.tolist())) == 8
    assert rows.tolist() == draw_rows(60, 8, 1, 5).tolist()
    assert rows.tolist() != draw_rows(60, 8, 1, 6).tolist()
    assert sorted(draw_rows(3, 8, 1, 5).tolist()) == [0, 1, 2]


@pytest.fixture(scope="module")
def draw(make_job, tmp_path_factory, dataset, tokens):
    """`draw(inputs, **params)`: the rows of candidates.parquet, its report and the artifact."""

    def make(inputs, **params):
        values = {
            "first_rank": 1,
            "depth": 9,
            "negatives": 2,
            "queries": None,
            "split": "train",
            "seed": 1,
        } | params
        out = tmp_path_factory.mktemp("drawn") / "c-0123456789"
        run(make_job("candidates", out, values, {"dataset": dataset, "tokens": tokens} | inputs))
        artifact = open_artifact(out)
        rows = listed_rows(artifact)
        return rows, json.loads((out / "report.json").read_text()), artifact

    return make


def test_a_teachers_first_passages_are_positives_and_its_last_ones_negatives(
    draw, train_run, dataset
):
    """DRAGON's labels: nobody's judgements count."""
    rows, report, artifact = draw(
        {"run": train_run}, labels="rank", positives=2, first_rank=8, depth=9, negatives=None
    )
    ranked = {query: docs for query, docs, _ in iter_run(train_run, dataset)}
    lists = {}
    for row in rows:
        lists.setdefault(row["query_id"], []).append((row["doc_id"], row["label"], row["source"]))
    assert len(lists) == report["queries"] == 20
    for query, own in lists.items():
        assert own[:2] == [(doc, 1, "rank") for doc in ranked[query][:2]]
        assert own[2:] == [(doc, 0, "run") for doc in ranked[query][7:9]]
    assert read_lists(artifact.path("candidates.parquet")).positives.tolist() == [2] * 20


def test_what_may_be_no_negative_is_no_positive_by_rank_either(make_dataset, make_job, tmp_path):
    passages = [(f"p{number}", "", f"text {number}") for number in range(6)]
    excluding = make_dataset(tmp_path / "excluding-0123456789", passages)
    rows = {
        "query_id": ["train-owl"],
        "doc_id": ["p1"],
        "relevance": pa.array([-100], pa.int32()),
        "split": ["train"],
    }
    pq.write_table(pa.table(rows), excluding.folder / "qrels.parquet")
    docs = index_passages(Collection(excluding))
    values = CandidatesParams(seed=3, labels="rank", positives=2)
    labels = PositiveLabels(
        make_job("candidates", tmp_path / "c-0123456789", values, {"dataset": excluding}), docs
    )
    assert labels.choose_first("train-owl", docs.rows(["p0", "p1", "p2", "p3"])).tolist() == [0, 2]


def test_random_negatives_need_no_run(draw):
    rows, report, _ = draw({}, depth=6, negatives=4)
    assert len(rows) == 20 * 5
    assert {row["source"] for row in rows} == {"qrels", "random"}
    for row in rows:
        positive = row["query_id"].removeprefix("train-") + "-3"
        assert (row["doc_id"] == positive) == bool(row["label"])
    # beyond the top of any run: negatives come from everywhere
    assert len({row["doc_id"] for row in rows if not row["label"]}) > 30
    assert report["percentiles"]["negatives"] is None
    assert report["without_run"] == 0


@pytest.fixture(scope="module")
def matches(make_job, tmp_path_factory, dataset, train_run):
    """Of every query's nine passages the second, the third (its labelled one) and the fifth hold an answer."""
    out = tmp_path_factory.mktemp("match") / "m-0123456789"
    with writing(make_job("match", out, MATCH, {"dataset": dataset, "run": train_run})) as draft:
        lines = [
            (query, doc, rank, rank in (2, 3, 5))
            for query, docs, _ in iter_run(train_run, dataset)
            for rank, doc in enumerate(docs, start=1)
        ]
        columns = dict(
            zip(("query_id", "doc_id", "rank", "relevant"), zip(*lines, strict=True), strict=True)
        )
        pq.write_table(pa.table(columns), draft.path("matches.parquet"))
    return open_artifact(out)


def test_answers_make_the_positive_and_bar_the_rest(draw, train_run, matches):
    rows, _, _ = draw(
        {"run": train_run, "match": matches}, labels="answers", take="first", negatives=3
    )
    own = [
        (row["rank"], row["label"], row["source"]) for row in rows if row["query_id"] == "train-owl"
    ]
    assert own == [(0, 1, "answer"), (1, 0, "run"), (4, 0, "run"), (6, 0, "run")]
    assert next(row["doc_id"] for row in rows if row["query_id"] == "train-owl") == "owl-2"
    # no answer from rank 6 on
    with pytest.raises(UserError, match="no query has a positive and a negative"):
        draw({"run": train_run, "match": matches}, labels="answers", first_rank=6)


def test_labels_of_qrels_with_answers_barred(draw, train_run, matches):
    rows, _, _ = draw(
        {"run": train_run, "match": matches}, bar_answers=True, take="first", negatives=3
    )
    own = [(row["rank"], row["doc_id"]) for row in rows if row["query_id"] == "train-owl"]
    assert own[0] == (0, "owl-3")
    assert [rank for rank, _ in own[1:]] == [1, 4, 6]


def test_answers_found_in_another_run_are_refused(
    draw, make_job, train_run, matches, dataset, tmp_path
):
    with writing(
        make_job("bm25", tmp_path / "other-0123456789", {"depth": 9}, {"dataset": dataset})
    ) as draft:
        draft.path("run.parquet").write_bytes(train_run.path("run.parquet").read_bytes())
    other = open_artifact(tmp_path / "other-0123456789")
    with pytest.raises(UserError, match="has matched .*expected"):
        draw({"run": other, "match": matches}, labels="answers")


def test_pseudo_labels_ignore_the_qrels_and_are_known_to_training(
    draw, make_job, dataset, tokens, train_run, cross_model
):
    judge = {"run": train_run, "judge.0": cross_model, "judge_tokens.0": tokens}
    denoise = {"negative_below": 0.5, "positive_above": 0.5, "hybrid": False, "backfill": None}
    params = {
        "denoise": denoise,
        "precision": "fp32",
        "batch_tokens": 256,
        "labels": "judge",
        "take": "first",
    }
    rows, report, pseudo = draw(judge, **params)
    lists = {row["query_id"]: [r for r in rows if r["query_id"] == row["query_id"]] for row in rows}
    assert lists
    for own in lists.values():
        assert [row["label"] for row in own] == [1] + [0] * (len(own) - 1)
        assert own[0]["source"] == "judge"
        assert own[0]["judge"] > 0.5 > max(row["judge"] for row in own[1:])
    assert len(lists) + report["without_positive"] <= 20
    _, _, labelled = draw({}, depth=6)
    job = make_job(
        "model",
        pseudo.folder.parent / "model",
        {"objective": "dual", "train": {}},
        {"candidates": labelled, "candidates.1": pseudo},
    )
    drawn = read_training_lists(job)
    assert len(drawn) == 20 + len(lists)
    data = NumberedCollection.of(dataset)
    query, doc = next((own[0]["query_id"], own[0]["doc_id"]) for own in lists.values())
    at, there = data.queries.rows([query]), data.passages.rows([doc])
    assert data.list_positives(drawn).mask_known(at, there).all()
    labels = data.collection.qrels("train")[query]
    without = read_lists(labelled.path("candidates.parquet"))
    assert data.list_positives(without).mask_known(at, there).all() == (doc in labels)


def test_what_a_judge_accepts_is_known_to_the_batch_and_to_validation(
    draw, dataset, train_run, cross_model, tokens
):
    judge = {"run": train_run, "judge.0": cross_model, "judge_tokens.0": tokens}
    denoise = {"negative_below": 0.5, "positive_above": 0.5, "hybrid": True, "backfill": None}
    rows, _, artifact = draw(judge, denoise=denoise, precision="fp32", batch_tokens=256)
    accepted = {(row["query_row"], row["passage_row"]) for row in rows if row["source"] == "judge"}
    data, lists = NumberedCollection.of(dataset), read_lists(artifact.path("candidates.parquet"))
    positives = data.list_positives(lists)
    accepted_queries, passages = np.array(sorted(accepted)).T
    assert positives.mask_known(accepted_queries, passages).diagonal().all()
    # A query is validated on its first list, the undenoised one, where what the judge accepts is not a positive.
    _, held = set_apart(lists, positives, data, most=20, seed=0)
    validated = held.batch.queries.tolist()
    graded = {
        (query, row) for query, grades in zip(validated, held.grades, strict=True) for row in grades
    }
    expected = {(query, row) for query, row in accepted if query in validated}
    assert expected
    assert expected <= graded


def test_joined_lists_stand_one_after_the_other(draw):
    _, _, first = draw({}, depth=6)
    _, _, second = draw({}, depth=6, queries=5, seed=2)
    parts = [read_lists(artifact.path("candidates.parquet")) for artifact in (first, second)]
    both = join_lists(parts)
    assert len(both) == 25
    for index, (part, own) in enumerate([(parts[0], 19), (parts[1], 0), (parts[1], 4)]):
        at = own + (20 if index else 0)
        assert both.queries[at] == part.queries[own]
        mine = both.passages[both.offsets[at] : both.offsets[at + 1]]
        assert mine.tolist() == part.passages[part.offsets[own] : part.offsets[own + 1]].tolist()
    queries, passages = both.list_positives()
    assert list(zip(queries, passages, strict=True))[20:] == list(
        zip(*parts[1].list_positives(), strict=True)
    )
    seen = [
        query
        for batch in iter_batches(Instances(both, 2), 5, 1, 25)
        for query in batch.queries.tolist()
    ]
    assert sorted(seen) == sorted(both.queries.tolist())  # an epoch visits every list of both
    assert join_lists(parts[:1]) is parts[0]


@pytest.fixture
def labels_of(make_job, make_dataset, documents, tmp_path):
    """`labels_of(grades, inputs)`: a function of labels' parameters: train-owl's positives and what is barred for it.

    `grades` of passages are the only judgements.
    """

    def make(grades, inputs=None):
        dataset = make_dataset(
            tmp_path / f"graded{bool(inputs)}" / "dataset" / "graded-0123456789", documents
        )
        rows = [("train-owl", doc, grade, "train") for doc, grade in grades.items()]
        columns = dict(
            zip(("query_id", "doc_id", "relevance", "split"), zip(*rows, strict=True), strict=True)
        )
        pq.write_table(pa.table(columns), dataset.folder / "qrels.parquet")
        docs = index_passages(Collection(dataset))

        def labels(ids=(), **params):
            out, values = (
                tmp_path / "candidates" / "c-0123456789",
                CandidatesParams(seed=3, **params),
            )
            source = PositiveLabels(
                make_job("candidates", out, values, {"dataset": dataset, **(inputs or {})}), docs
            )
            return [
                set(docs.ids(r))
                for r in (
                    source.positives("train-owl", [*ids]),
                    source.barred("train-owl"),
                )
            ]

        return labels

    return make


def test_low_grades_are_neither_positives_nor_negatives(labels_of):
    labels = labels_of({"owl-1": 1, "owl-2": 2, "owl-3": 3, "eel-1": 0})
    assert labels() == [{"owl-1", "owl-2", "owl-3"}, set()]
    assert labels(least_grade=2) == [{"owl-2", "owl-3"}, {"owl-1"}]


def test_an_excluded_passage_is_neither_whatever_labels(labels_of, train_run, matches):
    grades = {"owl-2": -100, "owl-1": 1}
    assert labels_of(grades)(labels="judge") == [set(), {"owl-2"}]
    labels = labels_of(grades, {"run": train_run, "match": matches})
    # the run's second passage holds an answer, and so does the third
    assert labels(["owl-1", "owl-2", "owl-3"], labels="answers", depth=9)[0] == {"owl-3"}
