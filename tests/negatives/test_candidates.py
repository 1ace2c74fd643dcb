"""Which passages become positives and negatives, rule by rule."""

import json
import re
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from listed import listed_rows

from tandem.config.models import Denoise
from tandem.config.references import parameters_of
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.extras.drawn_lists import describe_lists, explain_nothing_drawn, warn_of_judges
from tandem.models.ragged import Ragged
from tandem.negatives.candidates import run, write_part
from tandem.negatives.drawing import draw_denoised, draw_undenoised, find_near_copies, make_pool
from tandem.negatives.list_report import NegativesReport
from tandem.negatives.sources import draw_queries
from tandem.plugins import load_plugins
from tandem.stages.negatives import CandidatesParams, negatives
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.store.job import writing

WORDS = (b"", b"cat", b"dog", b"cat", b"cow", b"hen", b"ewe", b"ram")
TEXTS = Ragged.of([np.frombuffer(word, np.uint8) for word in WORDS])
RUN = (np.array([2, 1, 3, 4, 5, 6, 7]), np.array([7, 6, 5, 4, 3, 2, 1], np.float32))
DENOISE = parameters_of(Denoise)(negative_below=0.1, positive_above=0.9)


def pool(window=(1, 5), backfill=None):
    return make_pool(9, np.array([1]), RUN, window, backfill, TEXTS)


def rng():
    return np.random.default_rng(0)


def test_positives_and_their_duplicates_are_no_negatives():
    candidates = pool()
    assert candidates.rows.tolist() == [2, 4, 5]  # 1 is the positive, 3 says the same as it
    assert candidates.ranks.tolist() == [1, 4, 5]
    assert candidates.dropped == {"known positive": 1, "duplicate of a positive": 1}


def test_what_is_barred_is_neither_a_positive_nor_a_negative():
    candidates = make_pool(9, np.array([1]), RUN, (1, 5), None, TEXTS, np.array([4, 1]))
    assert candidates.rows.tolist() == [2, 5]
    assert candidates.positives.tolist() == [1]
    assert candidates.dropped == {
        "known positive": 1,
        "duplicate of a positive": 1,
        "neither positive nor negative": 1,
    }


def test_near_duplicates_of_a_positive_are_no_negatives():
    texts = Ragged.of(
        list(map(np.array, ([], [1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [1, 2, 3], [5, 4, 3, 2, 1])))
    )
    run = (np.array([2, 3, 4]), np.array([3, 2, 1], np.float32))

    def remaining(similarity):
        return make_pool(9, np.array([1]), run, (1, 3), None, texts, None, similarity).rows.tolist()

    # trigrams of 1: 123 234 345. Of 2: 123 234 346, so 2 of 4 are shared; of 3: 123, 1 of 3; of 4: none.
    assert remaining(0.5) == [3, 4]
    assert remaining(0.51) == [2, 3, 4]
    assert remaining(0.3) == [4]


def test_the_window_counts_ranks_of_the_run():
    assert pool(window=(4, 6)).rows.tolist() == [4, 5, 6]
    assert pool(window=(2, 3)).rows.tolist() == []


def test_an_undenoised_list():
    lists = draw_undenoised(pool(), 2, rng())
    assert lists.rows[0] == 1
    assert lists.labels.tolist() == [1, 0, 0]
    assert lists.ranks[0] == 0
    assert np.isnan(lists.scores[0])
    assert set(lists.rows[1:]) < {2, 4, 5}
    assert lists.sources == ["qrels", "run", "run"]
    assert draw_undenoised(pool(), None, rng()).rows.tolist() == [1, 2, 4, 5]


def judged(candidates, probabilities):
    candidates.judged, candidates.judged_positives = (
        np.array(probabilities, np.float32),
        np.array([0.8], np.float32),
    )
    return candidates


def test_a_denoised_list_keeps_only_what_the_judge_is_sure_of():
    lists = draw_denoised(judged(pool(), [0.95, 0.05, 0.5]), None, DENOISE, rng())
    assert lists.rows.tolist() == [1, 2, 4]  # 2 is accepted as positive, 5 is neither
    assert lists.labels.tolist() == [1, 1, 0]
    assert lists.sources == ["qrels", "judge", "run"]
    np.testing.assert_allclose(lists.judged, [0.8, 0.95, 0.05])


def test_thresholds_are_strict_and_accepting_can_be_off():
    exact = judged(pool(), [0.9, 0.1, 0.01])
    exact.judged = exact.judged.astype(np.float64)
    exact.judged[:2] = 0.9, 0.1
    assert draw_denoised(exact, None, DENOISE, rng()).rows.tolist() == [1, 5]
    off = DENOISE.model_copy(update={"positive_above": None})
    assert draw_denoised(judged(pool(), [0.99, 0.05, 0.5]), None, off, rng()).rows.tolist() == [
        1,
        4,
    ]


def test_backfill_is_unjudged_and_counted():
    candidates = pool(backfill=(6, 7))
    candidates = judged(candidates, [0.5, 0.05, 0.5])
    lists = draw_denoised(candidates, 3, DENOISE, rng())
    assert lists.rows.tolist() == [1, 4, 6, 7]
    assert np.isnan(lists.judged[2:]).all()
    assert candidates.dropped["backfilled (negative)"] == -2
    enough = pool(backfill=(6, 7))
    assert draw_denoised(judged(enough, [0.5, 0.05, 0.5]), 1, DENOISE, rng()).rows.tolist() == [
        1,
        4,
    ]


@pytest.mark.parametrize(("negatives_per", "too_few"), [("query", 0), ("positive", 1)])
def test_a_list_has_too_few_negatives_where_each_positive_is_to_have_so_many(
    negatives_per, too_few, tmp_path
):
    # the passages 1 and 2 are relevant, 3 repeats 1: four of the run are left
    query = make_pool(9, np.array([1, 2]), RUN, (1, 7), None, TEXTS)
    values = {
        "first_rank": 1,
        "depth": 7,
        "negatives": 4,
        "queries": None,
        "split": "train",
        "seed": 1,
    }
    report = NegativesReport()
    params = CandidatesParams(**values, negatives_per=negatives_per)
    write_part(tmp_path / "part", [query], None, params, report, TEXTS)
    assert describe_lists(report)["too_few"] == too_few


def test_a_subset_of_queries_does_not_depend_on_their_order():
    queries = [f"q{i}" for i in range(50)]
    assert (
        draw_queries(queries, 10, 1)
        == draw_queries(queries[::-1], 10, 1)
        != draw_queries(queries, 10, 2)
    )
    assert len(draw_queries(queries, 10, 1)) == 10
    assert draw_queries(queries, None, 1) == set(queries)


def stage(make_job, out, inputs, **params):
    values = {
        "first_rank": 1,
        "depth": 9,
        "negatives": 4,
        "queries": None,
        "split": "train",
        "seed": 1,
    } | params
    run(make_job("candidates", out, values, inputs))
    return open_artifact(out), json.loads((out / "report.json").read_text())


def test_the_stage_draws_the_same_bytes_twice(make_job, dataset, tokens, train_run, tmp_path):
    inputs = {"dataset": dataset, "run": train_run, "tokens": tokens}
    first, report = stage(make_job, tmp_path / "a-0123456789", inputs)
    again, _ = stage(make_job, tmp_path / "b-0123456789", inputs)
    other, _ = stage(make_job, tmp_path / "c-0123456789", inputs, seed=2)
    sums = [sha256(artifact.path("candidates.parquet")) for artifact in (first, again, other)]
    assert sums[0] == sums[1] != sums[2]
    rows = listed_rows(first)
    assert len(rows) == 20 * 5
    # train queries ask for the third passage of their subject: rank 3 of the run
    assert {r["doc_id"] for r in rows if r["query_id"] == "train-owl" and r["label"]} == {"owl-3"}
    assert report["dropped"]["known positive"] == 20
    assert report["lists"] == {"undenoised": 20}
    assert report["too_few"] == 0


def test_lists_are_drawn_from_a_run_that_scores_everything_alike(
    make_job, write_ranked, dataset, tokens, tmp_path
):
    """Ties are stored as scores that fall by float32's smallest steps, of which there are fewer than bins."""
    collection = Collection(dataset)
    docs = collection.doc_ids().to_pylist()[:9]
    tied = write_ranked(
        "bm25",
        tmp_path / "tied-0123456789",
        {"depth": 9},
        {"dataset": dataset},
        ((query, docs, np.ones(9)) for query in collection.queries("train")),
    )
    inputs = {"dataset": dataset, "run": tied, "tokens": tokens}
    _, report = stage(make_job, tmp_path / "a-0123456789", inputs)
    assert report["lists"] == {"undenoised": 20}
    relevant = report["dropped"]["known positive"]
    assert sum(report["histogram"]["negatives"]) == 20 * 9 - relevant


def test_the_stage_judges_hybrid_lists(make_job, dataset, tokens, train_run, cross_model, tmp_path):
    inputs = {"dataset": dataset, "run": train_run, "tokens": tokens}
    inputs |= {"judge.0": cross_model, "judge_tokens.0": tokens}
    denoise = {"negative_below": 0.5, "positive_above": None, "hybrid": True, "backfill": None}
    params = {
        "denoise": denoise,
        "precision": "fp32",
        "batch_tokens": 256,
        "negatives": None,
        "queries": 7,
    }
    artifact, report = stage(make_job, tmp_path / "d-0123456789", inputs, **params)
    rows = listed_rows(artifact)
    for row in rows:
        assert 0 < row["judge"] < 1
        if row["list"] == "denoised" and not row["label"]:
            assert row["judge"] < 0.5
    negatives = sum(r["list"] == "denoised" and not r["label"] for r in rows)
    assert report["queries"] == 7
    assert negatives == 7 * 8 - report["dropped"]["not surely negative"]
    assert report["percentiles"]["positives"]["p50"] > 0
    assert 0 <= report["known_positives_below"]["0.5"] <= 1
    denoising = report["denoising"]
    assert denoising["passages"] == 7 * 8
    assert denoising["removed"] == report["dropped"]["not surely negative"]


@pytest.mark.parametrize("ignored", [True, False])
def test_a_query_s_own_passage_is_no_negative_where_scores_ignore_it(
    make_job, make_dataset, make_tokens, write_ranked, documents, tmp_path, ignored
):
    docs = [("train-owl", "", "the same words"), *documents]
    data = make_dataset(tmp_path / "r/dataset/own-0000000001", docs)
    ranked = [
        ("train-owl", ["train-owl", *(doc for doc, _, _ in documents)], range(len(docs), 0, -1))
    ]
    bm25 = write_ranked(
        "bm25", tmp_path / "r/bm25/bm25-0000000002", {"depth": len(docs)}, {"dataset": data}, ranked
    )
    params = {
        "depth": 9,
        "negatives": 3,
        "split": "train",
        "take": "first",
        "ignore_identical_ids": ignored,
    }
    inputs = {
        "dataset": data,
        "run": bm25,
        "tokens": make_tokens(tmp_path / "r/tokens/t-0000000003", data),
    }
    job = make_job("candidates", tmp_path / "r/candidates/c-0000000004", params, inputs)
    run(job)
    negatives = {row["doc_id"] for row in listed_rows(open_artifact(job.out)) if not row["label"]}
    assert ("train-owl" in negatives) is not ignored


def test_lists_without_negatives_are_a_mistake(make_job, dataset, tokens, train_run, tmp_path):
    inputs = {"dataset": dataset, "run": train_run, "tokens": tokens}
    with pytest.raises(UserError, match="no query has a positive and a negative"):
        stage(make_job, tmp_path / "e-0123456789", inputs, first_rank=3, depth=3)
    assert not (tmp_path / "e-0123456789" / "stage.json").exists()


def test_a_run_that_finds_nothing_is_named_as_the_reason_why_there_is_no_list(
    make_job, write_ranked, dataset, tokens, tmp_path
):
    run = write_ranked(
        "bm25",
        tmp_path / "bm25-0123456789",
        {"depth": 9, "split": "train"},
        {"dataset": dataset},
        [],
    )
    with pytest.raises(
        UserError, match=r"lists nothing for any of 20 queries; name another in candidates\.from"
    ):
        stage(
            make_job, tmp_path / "e-0123456789", {"dataset": dataset, "run": run, "tokens": tokens}
        )


@pytest.mark.parametrize(
    ("params", "without", "line"),
    [
        ({"least_grade": 3}, 0, r"\(0 queries have a positive, .*; lower candidates.least_grade"),
        ({"labels": "judge"}, 4, r"\(0 queries have a positive, .*; lower denoise.positive_above"),
        ({"labels": "judge"}, 1, r"\(3 queries have a positive, .*; widen candidates.depth"),
    ],
)
def test_what_to_change_where_there_is_no_list(params, without, line):
    report = NegativesReport()
    report.queries, report.without_positive = (4 if without else 0), without
    assert re.search(line, explain_nothing_drawn(CandidatesParams(**params), report))


def test_lists_without_a_judge_need_no_torch():
    line = "import sys, tandem.negatives.candidates; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", line], check=False).returncode == 0


def test_a_judge_at_chance_is_named(make_job, tmp_path):
    judges = []
    for name, at_chance in (("ce_good", False), ("ce_lost", True)):
        job = make_job(
            "model", tmp_path / f"{name}-0123456789", {"objective": "cross", "train": {}}
        )
        with writing(job) as draft:
            draft.facts["at_chance"] = at_chance
        judges.append(open_artifact(job.out))
    assert warn_of_judges(judges, NegativesReport()) == [
        "ce_lost, which judges, stays at chance: it denoises nothing"
    ]


def test_a_judge_that_tells_relevant_passages_from_others_no_better_than_chance():
    report = NegativesReport()
    report.add_pool(judged(pool(), [0.9, 0.7, 0.2]))  # the positive has .8: above two of three
    assert warn_of_judges([], report) == []
    report.add_pool(judged(pool(), [0.9, 0.9, 0.8]))  # above none, and now above two of six
    (line,) = warn_of_judges([], report)
    assert line.startswith(
        "the judge ranks a relevant passage above another in 33% of the pairs, by chance in half"
    )


def test_the_share_of_known_positives_below_each_threshold():
    report = NegativesReport(DENOISE)  # 0.1 and 0.9
    for positive in (0.05, 0.5, 0.95, 0.99):
        candidates = judged(pool(), [0.04, 0.03, 0.02])
        candidates.judged_positives = np.array([positive], np.float32)
        report.add_pool(candidates)
    assert describe_lists(report)["known_positives_below"] == {"0.1": 0.25, "0.9": 0.5}
    (line,) = warn_of_judges([], report)
    assert line.startswith(
        "25% of the known positives are below 0.1, 50% of the known positives are below 0.9: so many"
    )


def test_what_denoising_takes_out_is_held_against_near_copies_of_the_positive():
    texts = Ragged.of(
        [
            np.array(ids)
            for ids in ([], [1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [1, 2, 3], [5, 4, 3, 2, 1])
        ]
    )
    run = (np.array([2, 3, 4]), np.array([3, 2, 1], np.float32))
    candidates = judged(make_pool(9, np.array([1]), run, (1, 3), None, texts), [0.5, 0.05, 0.3])
    # Trigrams of the positive: 123 234 345. Of 2: 123 234 346, so 2 of 4 are shared; of 3: 1 of 3; of 4: none.
    copies = find_near_copies(candidates.rows, candidates.positives, texts, 0.5)
    assert copies.tolist() == [True, False, False]
    report = NegativesReport(DENOISE)  # a negative is below 0.1
    report.add_denoised(candidates, copies)
    report.add_denoised(candidates, np.array([True, True, False]))  # the copy with .05 stays in
    counts = {"passages": 6, "removed": 4, "near_copies": 3, "removed_near_copies": 2}
    assert describe_lists(report)["denoising"] == counts | {"precision": 0.5, "recall": 0.666667}


@pytest.mark.parametrize(
    ("objective", "train", "warned"),
    [
        ("cross", {"loss": "listwise"}, True),
        ("cross", {"loss": "ranknet"}, True),
        ("cross", {"loss": "pointwise"}, False),
        ("cross", {"loss": "pointwise", "distil": {"loss": "listmle", "supervision": 0}}, True),
        ("joint", {"supervision": "listwise"}, True),
        ("joint", {"supervision": "pointwise"}, False),
    ],
)
def test_a_judge_that_only_orders_lists_has_no_thresholds(
    make_job, tmp_path, objective, train, warned
):
    params = {"objective": objective, "train": train}
    with writing(make_job("model", tmp_path / "ce-0123456789", params)) as draft:
        draft.facts["steps"] = 1
    report = NegativesReport(DENOISE)
    report.add_pool(judged(pool(), [0.04, 0.03, 0.02]))  # the positive has .8
    lines = warn_of_judges([open_artifact(tmp_path / "ce-0123456789")], report)
    assert [line.split(":")[0] for line in lines] == [
        "ce, which judges, has learned to order lists, not what probability is enough"
    ] * warned


PLUGIN = """
from tandem.stages.negatives import CandidatesParams, negatives

@negatives("own")
def own(job, labels, docs, queries):
    for query in labels.queries:
        yield %s
"""


@pytest.fixture
def drawn(tmp_path, monkeypatch, make_job, dataset, tokens):
    """`drawn(entry)`: the stage, with a plugin that gives this for each query."""
    for name in ("_entries", "_plugins"):
        monkeypatch.setattr(negatives, name, dict(getattr(negatives, name)))

    def make(entry):
        (tmp_path / "own.py").write_text(PLUGIN % entry)
        load_plugins([str(tmp_path / "own.py")])
        params = {"source": "own", "depth": 3, "split": "train"}
        job = make_job(
            "candidates",
            tmp_path / "own-0123456789",
            params,
            {"dataset": dataset, "tokens": tokens},
        )
        run(job)
        return open_artifact(job.out)

    return make


def test_a_plugins_rows_and_scores_may_be_lists(drawn):
    artifact = drawn("query, [], [0, 3, 6], [2.0, 1.0, float('nan')]")
    rows = pq.read_table(artifact.path("candidates.parquet")).to_pylist()
    assert {row["passage_row"] for row in rows if not row["label"]} == {0, 3, 6}


@pytest.mark.parametrize(
    "entry",
    [
        "query, [], [4, 5, 5], [3, 2, 1]",
        "query, [], [4, len(docs)], [2, 1]",
        "query, [], [4, -1], [2, 1]",  # would be the last passage
        "query, [], [4, 5], [1]",
        "query, [4, 5], [2, 1]",
        "query, [], ['otter-1'], [1]",
    ],
)
def test_what_a_plugin_gives_is_checked(drawn, entry):
    with pytest.raises(UserError, match="^candidates: own.* must give "):
        drawn(entry)


def test_a_plugin_gives_each_query_once(drawn):
    with pytest.raises(UserError, match=r"own gives train-\w+ twice"):
        drawn("query, [], [4], [1]\n        yield query, [], [5], [1]")
