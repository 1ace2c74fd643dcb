"""What is hidden and cut out: by hand, in its proportions, and the same whatever the split."""

import numpy as np
import pytest
from tiny_training import texts

from tandem.contrib.pretraining.masking import (
    IGNORED,
    Vocabulary,
    align_labels,
    crop,
    make_generator,
)
from tandem.contrib.pretraining.objectives import views
from tandem.contrib.pretraining.options import Spans
from tandem.models.ragged import Ragged, sum_lengths
from tandem.models.tokens import Template
from tandem.training.forward import Seeds

SPECIAL, MASK = np.arange(4), 1
VOCABULARY = Vocabulary(MASK, SPECIAL, np.arange(4, 1000))


@pytest.fixture(scope="module")
def many():
    """400 texts of 0 to 60 tokens; every tenth token is an unknown one."""
    rng = np.random.default_rng(3)
    offsets = sum_lengths(rng.integers(0, 61, 400))
    ids = rng.integers(4, 1000, offsets[-1])
    ids[::10] = 0
    return Ragged(ids, offsets)


def test_special_tokens_are_never_hidden_and_labels_stand_where_tokens_are(many):
    seen, labels = VOCABULARY.hide(many, 0.3, np.random.default_rng(1))
    hidden = labels.ids != IGNORED
    assert (labels.ids[hidden] == many.ids[hidden]).all()
    assert not np.isin(many.ids[hidden], SPECIAL).any()
    assert (seen.ids[~hidden] == many.ids[~hidden]).all()
    assert not np.isin(seen.ids[hidden], np.setdiff1d(SPECIAL, [MASK])).any()


def test_each_text_hides_its_share_exactly(many):
    _, labels = VOCABULARY.hide(many, 0.3, np.random.default_rng(1))
    for row in range(len(many)):
        ordinary = int((~np.isin(many[row], SPECIAL)).sum())
        expected = min(ordinary, max(1, round(0.3 * ordinary)))
        assert int((labels[row] != IGNORED).sum()) == expected, row


def test_of_the_hidden_80_percent_are_masked_10_replaced_10_kept(many):
    seen, labels = VOCABULARY.hide(many, 0.9, np.random.default_rng(1))
    hidden = labels.ids != IGNORED
    of, was = seen.ids[hidden], many.ids[hidden]
    assert hidden.sum() > 9000
    # three standard deviations of a share of 9,000 draws: 0.013 and 0.0095
    assert (of == MASK).mean() == pytest.approx(0.8, abs=0.013)
    assert ((of != MASK) & (of != was)).mean() == pytest.approx(0.1, abs=0.0095)
    assert (of == was).mean() == pytest.approx(0.1, abs=0.0095)


def test_a_token_is_chosen_as_often_as_another():
    rows = Ragged(np.tile(np.arange(4, 14), 2000), np.arange(2001) * 10)
    _, labels = VOCABULARY.hide(rows, 0.2, np.random.default_rng(1))
    often = (labels.ids.reshape(2000, 10) != IGNORED).mean(0)
    assert often == pytest.approx(np.full(10, 0.2), abs=0.03)
    assert (labels.ids.reshape(2000, 10) != IGNORED).sum(1).tolist() == [2] * 2000


def test_what_is_hidden_in_any_case_counts_among_the_share(many):
    _, first = VOCABULARY.hide(many, 0.3, np.random.default_rng(1))
    of_first = first.ids != IGNORED
    _, second = VOCABULARY.hide(many, 0.5, np.random.default_rng(2), always=of_first)
    hidden = second.ids != IGNORED
    assert hidden[of_first].all()
    for row in range(len(many)):
        ordinary = int((~np.isin(many[row], SPECIAL)).sum())
        expected = min(ordinary, max(1, round(0.5 * ordinary)))
        assert int((second[row] != IGNORED).sum()) == expected, row
    # of the other tokens (0.5 - 0.3) / (1 - 0.3)
    others = ~of_first & ~np.isin(many.ids, SPECIAL)
    assert hidden[others].mean() == pytest.approx(0.2 / 0.7, abs=0.02)


def test_spans_are_parts_of_their_text_with_a_share_within_bounds(many):
    spans = crop(many, Spans(crop_shortest=0.2, crop_longest=0.5), np.random.default_rng(2))
    starts = []
    for row in range(len(many)):
        text, span = many[row].tolist(), spans[row].tolist()
        places = [i for i in range(len(text) - len(span) + 1) if text[i : i + len(span)] == span]
        assert places or not text
        assert len(span) == 0 if not text else 1 <= len(span) <= max(1, round(0.5 * len(text)))
        assert not text or len(span) >= round(0.2 * len(text))
        starts += [places[0] / (len(text) - len(span))] if len(text) > 40 else []
    assert np.mean(starts) == pytest.approx(0.5, abs=0.1)
    assert min(starts) < 0.05 < 0.95 < max(starts)


def test_the_whole_text_is_a_span_of_share_one():
    spans = crop(
        texts().passages, Spans(crop_shortest=1.0, crop_longest=1.0), np.random.default_rng(2)
    )
    assert spans.ids.tolist() == texts().passages.ids.tolist()


def test_draws_depend_on_seed_step_and_purpose_alone():
    def first(*words):
        return int(make_generator(Seeds(words[0]), *words[1:]).integers(1 << 40))

    # what follows (seed, step) tells processes and micro-batches apart: they meet the same draws
    assert first((1, 2), 0) == first((1, 2, 7), 0) == first((1, 2, 0, 3), 0)
    assert (
        len(
            {
                first((1, 2), 0),
                first((1, 2), 1),
                first((1, 3), 0),
                first((2, 2), 0),
                first((1, 2), 0, 1),
            }
        )
        == 5
    )


def test_labels_stand_behind_the_special_tokens_by_hand():
    labels = Ragged(np.array([7, IGNORED, 9, 5]), np.array([0, 3, 3, 4]))
    assert align_labels(labels, 1, 5).tolist() == [
        [-100, 7, -100, 9, -100],
        [-100] * 5,
        [-100, 5, -100, -100, -100],
    ]


def test_views_by_hand():
    template = Template(((2,), (3,)), ((2,), (3,), (3,)), None, 0)
    draws = [np.random.default_rng(5), np.random.default_rng(6)]
    seen = views(np.array([3, 1]), 6, template, 0.5, draws)
    others = np.random.default_rng(5).random((3, 3)) >= 0.5
    expected = np.zeros((6, 6), bool)
    expected[:, [0, 4]] = True  # the vector's place and the last special token
    for i in range(3):
        for j in range(3):
            expected[1 + i, 1 + j] = others[i, j] and i != j
    assert (seen[0] == expected).all()
    # a passage of one token: it sees the vector and the special token, not itself
    assert seen[1][1].tolist() == [True, False, True, False, False, False]


def test_views_hide_their_share():
    template = Template(((2,), (3,)), ((2,), (3,), (3,)), None, 0)
    seen = views(np.array([200]), 202, template, 0.7, [np.random.default_rng(1)])[0][1:201, 1:201]
    assert not seen.diagonal().any()
    assert seen.sum() / (200 * 199) == pytest.approx(0.3, abs=0.01)
    assert len({row.tobytes() for row in seen}) == 200  # each position has a mask of its own
