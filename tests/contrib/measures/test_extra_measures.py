"""F1@k, DCG@k, nDCG with exponential gains and the precision-recall curve, by hand; no measure ends in a traceback."""

from math import log2

import ir_measures
import numpy as np
import pytest

from tandem.errors import UserError
from tandem.evaluation.measure_names import is_share, parse_measures
from tandem.evaluation.measures import evaluate

# Ranked a, b, c, d: b has grade 1, d grade 2, and e (grade 1) is not retrieved.
QRELS = {"q": {"a": 0, "b": 1, "d": 2, "e": 1}}
RUN = [("q", ["a", "b", "c", "d"], np.array([4, 3, 2, 1], np.float32))]


def values(*names, qrels=QRELS, run=RUN):
    return evaluate(parse_measures(names), qrels, run).values[0].tolist()


def test_f1_by_hand():
    # At 2: P = 1/2, R = 1/3, 2 PR / (P + R) = 2/5. At 4: P = 1/2, R = 2/3, 4/7. Fewer results than k count as misses:
    # at 10 P = 2/10, R = 2/3, 4/13. Of grade 2 alone, at 4: P = 1/4, R = 1, 2/5.
    assert values("F1@1", "F1@2", "F1@4", "F1@10", "F1(rel=2)@4") == pytest.approx(
        [0, 2 / 5, 4 / 7, 4 / 13, 2 / 5]
    )


def test_dcg_by_the_surveys_by_trec_evals_and_by_the_reviews_formula():
    # Gains 2^1 - 1 = 1 at rank 2 and 2^2 - 1 = 3 at rank 4, by log2(i + 1); with grades as gains; by log2(i).
    survey = 1 / log2(3) + 3 / log2(5)
    trec_eval = 1 / log2(3) + 2 / log2(5)
    review = 1 / log2(2) + 2 / log2(4)
    names = ("DCG@4", "DCG(dcg='log2')@4", "DCG(dcg='review')@4")
    assert values(*names) == pytest.approx([survey, trec_eval, review])
    assert values("DCG(dcg='review')@1") == [0]
    # Ideal: grades 2, 1, 1. By the review 2 + 1/log2(2) + 1/log2(3).
    ideal = 3 / log2(2) + 1 / log2(3) + 1 / log2(4)
    assert values("DCG(normalised=True)@4", "nDCG(dcg='exp-log2')@4") == pytest.approx(
        [survey / ideal] * 2
    )
    assert values("DCG(dcg='review',normalised=True)@4") == pytest.approx(
        [review / (2 + 1 + 1 / log2(3))]
    )


def test_err_by_hand():
    # R = 1/16 at rank 2 and 3/16 at rank 4: 1/2 · 1/16 + 1/4 · 15/16 · 3/16.
    assert values("ERR@4") == pytest.approx([1 / 32 + 45 / 1024])
    with pytest.raises(UserError, match="a relevance is 5; allowed are grades up to 4"):
        values("ERR@4", qrels={"q": {"a": 5}})


@pytest.mark.skipif(not ir_measures.gdeval.is_available(), reason="gdeval needs Perl")
def test_exponential_ndcg_and_err_are_gdevals_where_ids_are_numbers():
    generator = np.random.default_rng(5)
    qrels = {
        str(q): {f"d{n}": int(generator.integers(0, 5)) for n in range(9)} for q in range(1, 9)
    }
    scores = {
        query: {f"d{n}": float(at) for at, n in enumerate(generator.permutation(12))}
        for query in qrels
    }
    measures = parse_measures(["nDCG(dcg='exp-log2')@5", "ERR@5"])
    run = (
        (query, list(ranked), np.array([*ranked.values()], np.float32))
        for query, ranked in scores.items()
    )
    ours = evaluate(measures, qrels, run)
    for metric in ir_measures.gdeval.iter_calc(measures, qrels, scores):
        value = ours.values[ours.queries.index(metric.query_id), measures.index(metric.measure)]
        assert value == pytest.approx(metric.value, abs=1e-5)  # gdeval prints five decimals


def test_normalised_by_grades_it_is_trec_evals():
    assert values("DCG(dcg='log2',normalised=True)@3") == pytest.approx(values("nDCG@3"))


def test_the_precision_recall_curve_by_hand():
    # Hits at ranks 1 and 4 of five relevant passages: recall 1/5 with precision 1, recall 2/5 with precision 2/4; the
    # interpolated precision at a recall is the highest at that recall or a higher one, and 0 beyond 2/5.
    qrels = {"q": dict.fromkeys("adefg", 1)}
    curve = values(*(f"IPrec@{tenth / 10}" for tenth in range(11)), qrels=qrels)
    assert curve == pytest.approx([1] * 3 + [1 / 2] * 2 + [0] * 6)


def test_negative_grades_gain_nothing():
    assert values("DCG@2", "F1@2", qrels={"q": {"a": -2, "b": 1}}) == pytest.approx(
        [1 / log2(3), 2 / 3]
    )


@pytest.mark.parametrize("name", sorted(ir_measures.measures.registry))
def test_every_measure_is_a_number_or_refused(name):
    """With one judged passage that is first, or not retrieved at all, where pairs and shares have nothing to count."""
    for at in ("", "@10", "@0.5"):
        for docs in (["b"], ["x"], ["b", "x"]):
            run = [("q", docs, np.arange(len(docs), 0, -1, dtype=np.float32))]
            try:
                assert np.isfinite(values(f"{name}{at}", qrels={"q": {"b": 1}}, run=run)).all()
            except UserError:
                continue


def test_a_division_by_zero_is_one_line(monkeypatch):
    monkeypatch.setattr("tandem.contrib.measures.review_measures.compute_f1", lambda *_: 1 / 0)
    with pytest.raises(UserError, match=r"one of F1@10 divides by 0"):
        values("F1@10")


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("DCG@10", False),
        ("DCG(dcg='review')@10", False),
        ("DCG(dcg='review',normalised=True)@10", True),
        ("nDCG@10", True),
        ("F1@10", True),
        ("NumRet(rel=1)", False),
        ("NumRel", False),
        ("NumQ", False),
    ],
)
def test_gains_and_counts_are_not_shares(name, share):
    assert is_share(name) is share
