"""Queries that are passages themselves: a query's own passage is neither a result nor a negative of it."""

import numpy as np
import pytest
from pytest import approx
from tiny_project import QUESTIONS, SUBJECTS, passages
from tiny_training import BATCH

from tandem.extras.validation.validation_sets import (
    ValidationSet,
    rank_passages,
    read_validation,
    sum_ndcg,
    validate,
)
from tandem.models.ragged import Ragged
from tandem.training.lists import Lists, Positives
from tandem.training.numbered import NumberedCollection


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
    validation = ValidationSet(BATCH, grades, "a test", own=own)
    scores, pool = learner.scores(BATCH, validation.pool), validation.pool
    expected = {}
    for part, rows in (("dual", np.tile(pool, (4, 1))), ("cross", BATCH.passages)):
        alone = np.where(rows == own[:, None], -1, rows)
        assert (alone != rows).sum() == 3
        expected[part] = approx(sum_ndcg(rank_passages(scores[part].numpy(), alone), grades) / 4)
    assert validate(learner, validation) == expected
