"""Measures: values by hand, equality with trec_eval and the MS MARCO script, one order for ties."""

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from ir_measures.bin import msmarco_eval

from tandem.data.runs import order_by_score, write_trec
from tandem.errors import UserError
from tandem.evaluation.measure_names import parse_measures
from tandem.evaluation.measures import evaluate
from tandem.extras.tied_scores import lower_ties

NAMES = ["RR@10", "nDCG@10", "R@5", "R@50", "AP", "Success@1", "P@5"]
TREC = {"nDCG@10": "ndcg_cut_10", "R@5": "recall_5", "R@50": "recall_50", "AP": "map", "P@5": "P_5"}


def scored(names, qrels, run):
    result = evaluate(
        parse_measures(names), qrels, ((q, d, np.asarray(s, np.float32)) for q, d, s in run)
    )
    return {
        q: dict(zip(names, row, strict=True))
        for q, row in zip(result.queries, result.values, strict=True)
    }, result


def random_case(seed, queries=40, documents=60):
    """Graded qrels and a run whose scores are a few integers, so that most documents are tied."""
    generator = np.random.default_rng(seed)
    names = [f"d{n}" for n in range(documents)]
    qrels, run = {}, []
    for q in range(queries):
        qrels[f"q{q}"] = {
            str(d): int(generator.integers(0, 3))
            for d in generator.choice(names, 12, replace=False)
        }
        docs = [str(d) for d in generator.choice(names, 40, replace=False)]
        run.append((f"q{q}", docs, generator.integers(0, 6, 40)))
    return qrels, run


def test_one_ranking_by_hand():
    # Ranked a, b, c, d: relevant are b (grade 1), d (grade 2) and e, which is not retrieved.
    qrels = {"q": {"b": 1, "d": 2, "e": 1, "a": 0}}
    values, _ = scored(NAMES, qrels, [("q", ["d", "b", "c", "a"], [1, 3, 2, 4])])
    dcg = 1 / np.log2(3) + 2 / np.log2(5)
    ideal = 2 + 1 / np.log2(3) + 1 / np.log2(4)
    assert values["q"] == pytest.approx(
        {
            "RR@10": 1 / 2,
            "nDCG@10": dcg / ideal,
            "R@5": 2 / 3,
            "R@50": 2 / 3,
            "AP": (1 / 2 + 2 / 4) / 3,
        }
        | {"Success@1": 0, "P@5": 2 / 5}
    )


def test_ties_go_to_the_lower_document_id_for_every_measure():
    # A constant score: ranked d1, d2, d3 whatever the file says; trec_eval alone would rank d3 first.
    values, _ = scored(
        ["RR@10", "nDCG@10", "AP", "Success@1"],
        {"q": {"d2": 1}},
        [("q", ["d3", "d2", "d1"], [7] * 3)],
    )
    assert values["q"] == pytest.approx(
        {"RR@10": 1 / 2, "nDCG@10": 1 / np.log2(3), "AP": 1 / 2, "Success@1": 0}
    )


def test_scores_equal_as_float32_are_ties():
    values, _ = scored(["RR@10"], {"q": {"b": 1}}, [("q", ["b", "a"], np.array([1 + 1e-12, 1.0]))])
    assert values["q"]["RR@10"] == 0.5


def test_missing_queries_count_as_zero_and_unanswerable_ones_not_at_all():
    qrels = {"a": {"x": 1}, "b": {"x": 1}, "none": {"x": 0}}
    values, result = scored(
        ["RR@10"], qrels, [("a", ["x"], [1]), ("none", ["x"], [1]), ("stranger", ["x"], [1])]
    )
    assert values == {"a": {"RR@10": 1}, "b": {"RR@10": 0}}
    assert (result.missing, result.values.mean()) == (1, 0.5)


def test_queries_and_relevant_passages_are_counted_where_a_query_has_no_result():
    values, _ = scored(
        ["NumRel", "NumQ"], {"a": {"x": 1, "y": 2, "z": 0}, "b": {"x": 1}}, [("a", ["x"], [1])]
    )
    assert values == {"a": {"NumRel": 2, "NumQ": 1}, "b": {"NumRel": 1, "NumQ": 1}}


@pytest.mark.parametrize("seed", range(3))
def test_equal_to_trec_eval_given_our_order(seed):
    qrels, run = random_case(seed)
    values, result = scored([*TREC, "RR"], qrels, run)
    ordered = {}
    for query, docs, scores in run:
        ranked = sorted(zip(docs, scores, strict=True), key=lambda pair: (-pair[1], pair[0]))
        ordered[query] = {doc: 1000 - rank for rank, (doc, _) in enumerate(ranked)}
    reference = pytrec_eval.RelevanceEvaluator(qrels, {*TREC.values(), "recip_rank"}).evaluate(
        ordered
    )
    for query in result.queries:
        for ours, theirs in {**TREC, "RR": "recip_rank"}.items():
            assert values[query][ours] == pytest.approx(reference[query][theirs], abs=1e-12)


def test_equal_to_trec_eval_on_the_run_itself_without_ties():
    qrels, run = random_case(9)
    run = [(q, docs, np.arange(len(docs)) * 0.5) for q, docs, _ in run]
    values, _ = scored(list(TREC), qrels, run)
    reference = pytrec_eval.RelevanceEvaluator(qrels, set(TREC.values())).evaluate(
        {q: dict(zip(docs, map(float, scores), strict=True)) for q, docs, scores in run}
    )
    assert all(
        values[q][ours] == pytest.approx(reference[q][theirs], abs=1e-12)
        for q in values
        for ours, theirs in TREC.items()
    )


def test_each_measure_has_the_values_that_it_has_alone():
    """ir_measures would compute the plain ones by another one's gains, or on what another one leaves."""
    names = ["nDCG@10", "NumRet", "nDCG(gains={1:5})@10", "nDCG(judged_only=True)@10"]
    qrels, run = random_case(3)
    together, _ = scored(names, qrels, run)
    for name in names:
        alone, _ = scored([name], qrels, run)
        assert {query: values[name] for query, values in together.items()} == {
            query: values[name] for query, values in alone.items()
        }


def test_reciprocal_rank_follows_the_msmarco_script():
    # By rank, cut at 10, divided by the number of reference queries, in the run or not.
    qrels, run = random_case(4)
    qrels["unanswered"] = {"d0": 1}
    _, result = scored(["RR@10"], qrels, run)
    ranked = {
        q: [d for _, d in sorted(zip(-np.asarray(s), docs, strict=True))] for q, docs, s in run
    }
    reference = {
        q: [d for d, relevance in judged.items() if relevance] for q, judged in qrels.items()
    }
    ours = result.values.mean()
    total = sum(
        next(
            (1 / rank for rank, doc in enumerate(ranked.get(q, [])[:10], start=1) if doc in docs), 0
        )
        for q, docs in reference.items()
    )
    assert ours == pytest.approx(total / len(reference))
    script = msmarco_eval.compute_metrics(
        {q: dict.fromkeys(d, 1) for q, d in reference.items()}, ranked, max_rank=10
    )
    assert ours == pytest.approx(sum(script["MRR @10 by query"].values()) / len(reference))


def test_rank_eleven_is_worth_nothing():
    values, _ = scored(
        ["RR@10"], {"q": {"d10": 1}}, [("q", [f"d{n:02}" for n in range(11)], np.arange(11)[::-1])]
    )
    assert values["q"]["RR@10"] == 0


def test_more_queries_than_are_evaluated_at_once(monkeypatch):
    monkeypatch.setattr("tandem.evaluation.measures.QUERIES_PER_EVALUATION", 7)
    qrels, run = random_case(2)
    pieces, _ = scored(NAMES, qrels, run)
    monkeypatch.undo()
    assert pieces == scored(NAMES, qrels, run)[0]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["nDGC@10"], "did you mean nDCG"),
        (["Accuracy@20"], r"Accuracy@20: did you mean Success@20"),
        (["IPrec"], "write IPrec@0.5"),
        (["F1"], "write F1@10"),
        (["zebra@10"], "is not a measure; allowed"),
        (["P"], "write P@10"),
        (["nDCG@ten"], "write nDCG@10, or nDCG without a cutoff"),
        (["Rprec@10"], "write Rprec, which takes no cutoff"),
        (["nDCG(dcg='exp-log2',gains={1:2})@10"], "computes nDCG with these parameters"),
        (["R@x"], "malformed"),
        (["RR@0"], "cutoff of at least 1"),
        (["MRR@10"], r"MRR@10 is written RR@10 here"),
        (["Precision(rel=2)@5"], r"is written P\(rel=2\)@5 here"),
        # plans read depths off names
        (["RR(cutoff=10)"], r"RR\(cutoff=10\) is written RR@10 here"),
        (["RR@ 10"], r"is written RR@10 here"),
        (["R@1_0"], r"is written R@10 here"),
        (["RR@10", "RR@10"], "is RR@10 again"),
        (["P(rel=0)@5"], "rel is 0; grades from 1 on"),
        (["nDCG(gains={1:0.5})@10"], "gains are whole numbers"),
        (["IPrec@0.151"], "two decimals at most"),
        (["IPrec@1.5"], "from 0 to 1"),
        ([], "the list is empty"),
    ],
)
def test_bad_names_are_told_in_one_line(names, message):
    with pytest.raises(UserError, match=message) as error:
        parse_measures(names)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["RBP@10", "BPM@10", "INST@10", "alpha_nDCG@10", "NERR10@10"])
def test_what_no_installed_provider_computes_is_said_to_be_that_and_is_not_offered(name):
    base = name.removesuffix("@10")
    with pytest.raises(UserError, match=f"no installed provider .* computes {base};"):
        parse_measures([name])
    with pytest.raises(UserError, match="allowed: ") as error:
        parse_measures(["zebra@10"])
    assert f" {base}," not in str(error.value)


def test_other_tools_read_the_same_numbers_off_a_run_with_ties(tmp_path):
    qrels, run = random_case(4)
    assert any(len(set(scores)) < len(scores) for _, _, scores in run)
    ranked = [
        (query, *zip(*lower_ties(order_by_score(docs, scores)), strict=True))
        for query, docs, scores in run
    ]
    write_trec(tmp_path / "run.trec", ranked, "tag")
    ours, _ = scored([*TREC, "RR@10"], qrels, run)
    measures = parse_measures([*TREC, "RR@10"])
    again = list(ir_measures.read_trec_run(str(tmp_path / "run.trec")))
    values = [
        (m.query_id, str(m.measure), m.value) for m in ir_measures.iter_calc(measures, qrels, again)
    ]
    assert values
    assert all(
        value == pytest.approx(ours[query][name], abs=1e-12)
        for query, name, value in values
        if query in ours
    )


def test_excluded_passages_leave_their_places_to_the_next():
    # Ranked x, a, y, b of which x and y are excluded: b, the relevant one, stands at rank 2.
    qrels = {"q": {"b": 1, "x": -100, "y": -100, "a": -1}, "other": {"a": 1}}
    run = [("q", ["x", "a", "y", "b"], [4, 3, 2, 1]), ("other", ["x", "a", "y", "b"], [4, 3, 2, 1])]
    values, _ = scored(["RR@10", "nDCG@2", "P@2"], qrels, run)
    assert values["q"] == pytest.approx({"RR@10": 1 / 2, "nDCG@2": 1 / np.log2(3), "P@2": 1 / 2})
    assert values["other"]["RR@10"] == 1 / 2  # x is excluded for q alone
    nothing, result = scored(["RR@10"], {"q": {"b": 1, "x": -100}}, [("q", ["x"], [1])])
    assert (nothing["q"]["RR@10"], result.missing) == (0, 1)
