"""The report's sections on similar queries and on false negatives, by real stages on a collection by hand."""

from functools import partial

import pytest

from tandem.cli import run as run_command
from tandem.contrib.audits.false_negatives import run as pool_stage
from tandem.contrib.audits.findings import collect_audits
from tandem.contrib.audits.relabel import run as relabel_stage
from tandem.contrib.audits.similar_queries import run as similar_stage
from tandem.evaluation.scores import run as score_stage
from tandem.extras.report.page import make_environment
from tandem.store.lineage import walk

NASTY = "<b>bold</b>"
PASSAGES = [("p1", "", "one"), ("p2", "", "two"), ("p3", "", "three")]
QUERIES = [
    ("t1", f"a {NASTY} b", "train"),
    ("t2", "other", "train"),
    ("q1", f"A {NASTY} b?", "test"),
    ("q2", f"a {NASTY} c", "test"),
    ("q3", "else", "test"),
]
QRELS = [
    ("t1", "p1", 1, "train"),
    ("q1", "p1", 1, "test"),
    ("q2", "p2", 1, "test"),
    ("q3", "p3", 1, "test"),
]
RANKED = {"q1": ["p1", "p2"], "q2": ["p1", "p2"], "q3": ["p1", "p2", "p3"]}


@pytest.fixture
def stages(make_artifact, make_collection, make_run, tmp_path):
    """Every stage of both audits, as lineage shows them."""
    root = tmp_path / "results" / "mini"
    data = make_collection(root / "dataset" / "mini-0123456789", PASSAGES, QUERIES, QRELS)
    ran = make_run(root / "bm25" / "bm25.test-0123456789", data, "test", RANKED)

    run_stage = partial(make_artifact, root)
    audit = run_stage(
        "similar_queries", similar_stage, {"depth": 2, "threshold": 0.5}, {"dataset": data}
    )
    params = {"split": "test", "depth": 2, "top": 1, "threshold": 0.5}
    pool = run_stage("false_negatives", pool_stage, params, {"dataset": data, "run.0": ran})
    sheet = tmp_path / "filled.csv"
    sheet.write_text("query_id,doc_id,verdict\nq2,p1,1\n")
    labels = run_stage(
        "relabel", relabel_stage, {}, {"dataset": data, "pool": pool}, {"path": str(sheet)}
    )
    how, sources = {"measures": ["RR@10"], "split": "test"}, {"dataset": data, "run": ran}
    scores = [
        run_stage("score", score_stage, how, sources, name="plain"),
        run_stage("score", score_stage, how, {**sources, "labels": labels}, name="labels"),
        run_stage("score", score_stage, how, {**sources, "subset": audit}, name="subset"),
    ]
    return walk([audit, pool, labels, *scores])


def shown(audits):
    return str(make_environment().get_template("_audits.html").make_module().findings(audits))


def test_similar_queries_by_hand(stages):
    audits = collect_audits(stages)
    [audit] = audits.similar
    # q1 repeats t1 but for case; q2 shares "a", "b", "bold", "b" with it; q3 shares nothing
    assert audit.summary.others == {"queries": 3, "similar": 2, "percent": 66.67}
    assert audit.effects.head == ["Run", "similar queries", "RR@10, similar", "RR@10, others"]
    # (1 + 1/2) / 2 and 1/3
    assert audit.effects.rows == [
        ["bm25.test-0123456789", "trained on, 2 · 1 queries", "75.00", "33.33"]
    ]
    page = shown(audits)
    assert "1 of 2 training queries are similar to 2 of 3 other queries (66.67 %)" in page
    assert ">75.00<" in page
    assert ">33.33<" in page
    assert NASTY not in page
    assert "&lt;b&gt;bold" in page


def test_false_negatives_by_hand(stages):
    audits = collect_audits(stages)
    [audit] = audits.false_negatives
    [labels] = audit.relabelled
    assert labels.summary.positives_per_query == {"before": 1.0, "after": 1.3333}
    # (1 + 1/2 + 1/3) / 3 by the old labels, (1 + 1 + 1/3) / 3 by the new
    assert labels.effects.rows == [["bm25.test-0123456789", "3", "61.11", "77.78"]]
    page = shown(audits)
    assert "positives per query 1.00 before, 1.33 after" in page
    assert "Relabelled by annotators" in page
    assert "reciprocal rank fusion" in page
    assert ">77.78<" in page


def test_the_command_writes_a_page_and_every_number(stages, tmp_path):
    parts = [str(stage.artifact.folder) for stage in stages.values()]
    page, table = tmp_path / "audits.html", tmp_path / "audits.csv"
    assert (
        run_command(["audits", "--parts", *parts, "--out", str(page), "--table", str(table)]) == 0
    )
    text = page.read_text()
    assert "Can mini be trusted?" in text
    assert text.count('<h2 id="similar">') == text.count('<h2 id="false-negatives">') == 1
    assert "similar_queries,others.similar,,2,," in table.read_text()


def test_nothing_to_show(stages):
    few = collect_audits({key: stage for key, stage in stages.items() if stage.kind == "dataset"})
    assert few == ([], [], [])
    assert shown(few).strip() == ""
