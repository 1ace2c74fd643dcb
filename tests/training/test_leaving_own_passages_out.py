"""Passages that are neither results nor negatives of a query: itself, and those whose grade says so."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pytest import approx
from tiny_project import QUESTIONS, SUBJECTS, passages, write_collection
from tiny_training import BATCH

from tandem.data.collection import EXCLUDED, LITERAL_MATCH
from tandem.data.tables import QRELS_SCHEMA
from tandem.extras.validation.validation_sets import (
    ValidationSet,
    rank_passages,
    read_validation,
    sum_ndcg,
    take_out,
    validate,
)
from tandem.models.ragged import Ragged
from tandem.store.artifact import open_artifact
from tandem.store.job import writing
from tandem.training.lists import Lists, Positives
from tandem.training.numbered import NumberedCollection

SUBJECT = next(iter(SUBJECTS))


@pytest.fixture
def asked(make_dataset, tmp_path):
    """The tiny corpus with the questions about its first two subjects, which stand behind its 60 passages."""
    asked = [
        (f"{split}-{name}", "", text.format(name))
        for split, text in QUESTIONS.items()
        for name in SUBJECTS
    ]
    ours = [
        row for row in asked if row[0].split("-")[1] in list(SUBJECTS)[:2] and row[0][:4] != "test"
    ]
    return make_dataset(tmp_path / "dataset" / "asked-0000000001", [*passages(), *ours])


def test_a_query_s_own_passage_is_no_negative(asked):
    data = NumberedCollection.of(asked, ignore_identical_ids=True)
    first, second = (f"train-{name}" for name in list(SUBJECTS)[:2])
    queries, own = data.queries.rows([first, second]), data.passages.rows([first, second])
    # the other's is relevant
    lists = Lists(queries, np.array([0, 1, 2]), np.ones(2, np.int64), own[::-1])
    assert data.list_positives(lists).mask_known(queries, own).all()
    counted = NumberedCollection.of(asked).list_positives(lists).mask_known(queries, own)
    assert counted.tolist() == [[False, True], [True, False]]


def test_a_copy_of_a_query_s_own_passage_is_no_negative():
    # passages 0 and 1 have the same tokens
    texts = Ragged(np.array([7, 8, 7, 8, 7, 9]), np.array([0, 2, 4, 5, 6]))
    positives = Positives(
        np.array([4]), np.array([2]), texts, own=np.array([-1, -1, -1, -1, -1, 0])
    )
    assert positives.mask_known(np.array([4, 5]), np.array([0, 1, 3])).tolist() == [
        [False] * 3,
        [True, True, False],
    ]


def test_a_query_s_own_passage_is_not_re_ranked(asked, write_ranked, tmp_path):
    names = [f"dev-{name}" for name in list(SUBJECTS)[:2]]
    ranked = [
        (name, [name, *(row[0] for row in passages()[:3])], np.arange(4.0, 0, -1)) for name in names
    ]
    run = write_ranked(
        "bm25", tmp_path / "bm25.dev-0123456789", {"split": "dev"}, {"dataset": asked}, ranked
    )
    lists = {
        on: read_validation(NumberedCollection.of(asked, on), run, 100, 3).batch.passages.tolist()
        for on in (False, True)
    }
    own = NumberedCollection.of(asked).passages.rows(names).tolist()
    assert lists == {False: [[row, 0, 1] for row in own], True: [[0, 1, 2]] * 2}


def test_a_query_s_own_passage_is_not_ranked(make_objective):
    grades, own = [{8: 1}, {2: 1, 17: 2}, {20: 1}, {26: 1}], np.array([5, 14, -1, 26])
    learner = make_objective("joint")
    validation = ValidationSet(BATCH, grades, "a test", left_out=own[:, None])
    scores, pool = learner.scores(BATCH, validation.pool), validation.pool
    expected = {}
    for part, rows in (("dual", np.tile(pool, (4, 1))), ("cross", BATCH.passages)):
        alone = np.where(rows == own[:, None], -1, rows)
        assert (alone != rows).sum() == 3
        expected[part] = approx(sum_ndcg(rank_passages(scores[part].numpy(), alone), grades) / 4)
    assert validate(learner, validation) == expected


@pytest.fixture(params=[("train", "dev")])
def graded(make_job, tmp_path, request):
    """The tiny corpus, whose first four passages have these grades of a training query and of a dev query."""
    docs = [row[0] for row in passages()[:4]]
    grades = (1, EXCLUDED, LITERAL_MATCH, 0)
    judged = [
        {"query_id": f"{split}-{SUBJECT}", "doc_id": doc, "relevance": grade, "split": split}
        for split in request.param
        for doc, grade in zip(docs, grades, strict=True)
    ]
    job = make_job("dataset", tmp_path / "graded-0000000001", {"source": "written by a test"})
    with writing(job) as draft:
        write_collection(draft.folder, passages())
        pq.write_table(pa.Table.from_pylist(judged, QRELS_SCHEMA), draft.folder / "qrels.parquet")
    return open_artifact(job.out)


def test_neither_an_excluded_passage_nor_a_literal_match_is_a_negative(graded):
    data = NumberedCollection.of(graded)
    query = data.queries.rows([f"train-{SUBJECT}"])
    lists = Lists(query, np.array([0, 1]), np.ones(1, np.int64), np.array([0]))
    positives = data.list_positives(lists)
    assert positives.mask_known(query, np.arange(5)).tolist() == [[True, True, True, False, False]]
    # none of them is relevant
    assert positives.look_up(query)[1].tolist() == [0]
    others = positives.without(np.array([query[0] + 1]))
    assert others.mask_known(query, np.arange(5)).tolist() == [[True, True, True, False, False]]


@pytest.mark.parametrize("graded", [("train", "dev"), ("dev",)], indirect=True)
def test_judgements_of_every_split_that_is_learned_from_count(graded):
    """Training queries may have no judgements, as where their positives are the passages with an answer."""
    names = [f"{split}-{SUBJECT}" for split in ("train", "dev")]
    splits = {False: (), True: ("dev",)}
    for learns_from_dev, further in splits.items():
        data = NumberedCollection.of(graded, False, *further)
        train, dev = data.queries.rows(names)
        lists = Lists(
            np.array([train, dev]), np.array([0, 1, 2]), np.ones(2, np.int64), np.full(2, 4)
        )
        positives = data.list_positives(lists)
        known = positives.mask_known(np.array([dev]), np.arange(6)).tolist()
        assert known == [[learns_from_dev] * 3 + [False, True, False]]


def test_an_excluded_passage_is_neither_re_ranked_nor_ranked(graded, write_ranked, tmp_path):
    name = f"dev-{SUBJECT}"
    docs = [row[0] for row in passages()[:4]]
    ranked = [(name, docs[::-1], np.arange(4.0, 0, -1))]
    run = write_ranked(
        "bm25", tmp_path / "bm25.dev-0123456789", {"split": "dev"}, {"dataset": graded}, ranked
    )
    validation = read_validation(NumberedCollection.of(graded), run, 100, 10)
    assert validation.batch.passages.tolist() == [[3, 2, 0]]
    assert validation.left_out.tolist() == [[1]]
    pool = np.array([[0, 1, 2], [1, 2, 3]])
    assert take_out(pool, np.array([[1, -1], [3, 1]])).tolist() == [[0, -1, 2], [-1, 2, -1]]
