"""Indexes, searches and shards: operations, memory and time counted by hand."""

import math
from pathlib import Path

import pytest
from pytest import approx

from tandem.extras.estimate.estimate import estimate_stage, new_setting
from tandem.extras.estimate.model_costs import count_token_rows
from tandem.extras.estimate.resources import RATES, START_ENVIRONMENTS, Hardware, cost
from tandem.extras.estimate.search_costs import IndexSize
from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[3]
SMALL = {"layers": 1, "hidden": 8, "feed_forward": 16, "vocabulary": 100}
LEARNED = {"train_sample": 500, "part": 400}
INDEXES = {
    "lists": {"type": "ivf_flat", "nlist": 10, "nprobe": 4, "recall_queries": 0, **LEARNED},
    "codes": {"type": "ivf_pq", "nlist": 10, "m": 4, "bits": 4, "opq": True, **LEARNED},
    "bytes": {"type": "sq", "sq": "8bit", "rescore": False, "recall_queries": 5, **LEARNED},
    "graph": {"type": "hnsw", "m": 3, "ef_construction": 20, "ef_search": 16, "part": 400},
    "signs": {"type": "binary", "recall_queries": 0, "part": 400},
    "words": {"factory": "IVF16,SQ8", **LEARNED},
}
N, D, QUESTIONS, DEPTH = 1000, 8, 30, 100


def planned(**more):
    """A thousand passages, 500 training and 30 dev queries, vectors of eight numbers."""
    counts = {"passages": N, "train": 500, "dev": QUESTIONS}
    config = {
        "dataset": "big",
        "datasets": {
            "big": {"source": "ir_datasets", "id": "msmarco-passage", "language": "en", "score_split": "dev",
                    "counts": counts, "tokens": {"passage": 60, "query": 8}},
        },
        "encoder": "b",
        "encoders": {"b": {"source": "hub", "name": "org/b", "revision": "main", "pooling": "cls", "shape": SMALL}},
        "models": {"de": {"objective": "dual", "candidates": {"from": "bm25", "depth": 20}}},
        "audits": {"retriever": None},
        "depth": {"train": 20, "dev": DEPTH, "test": DEPTH},
        "indexes": INDEXES,
    }  # fmt: skip
    return FullPlan(config | more, ROOT)


@pytest.fixture
def machine():
    """Every rate is another power of ten, so that a sum tells what it is made of."""
    rates = {
        "faiss": 1e3,
        "faiss_alone": 1e2,
        "flat_search": 1e4,
        "compared": 1e7,
        "hops": 1e6,
        "lines": 10.0,
    }
    work, starts = dict.fromkeys(("encode", "rerank"), 0.5), dict.fromkeys(START_ENVIRONMENTS, 1.0)
    return Hardware("mine", 2.0, work, dict.fromkeys(RATES, math.inf) | rates, starts, 2, 0, {})


def costs(plan, machine, stage):
    return estimate_stage(stage, new_setting(plan.settings, machine), machine)


def index(plan, name):
    return plan.planner.run(f"de@{name}", "dev", "test").upstream["index"]


def test_lists_by_hand(machine):
    """Ten rounds of 500 passages against ten centroids; then 1,000 passages against them."""
    plan = planned()
    cost = costs(plan, machine, index(plan, "lists"))
    learned, listed = 10 * 2 * 500 * 10 * D, 2 * N * 10 * D
    assert cost.wall == approx(1 + (learned + listed) / 1e3)
    assert cost.disk == N * (4 * D + 8) + 4 * 10 * D
    sharded = planned(execution={"shards": 4})
    assert costs(sharded, machine, index(sharded, "lists")).wall == approx(
        1 + (learned + listed / 4) / 1e3
    )


def test_codes_are_learned_and_made_by_one_thread(machine):
    plan = planned()
    cost = costs(plan, machine, index(plan, "codes"))
    codes = 25 * 2 * 500 * 16 * D
    rotation = 50 * (4 * 500 * D * D + 4 * 2 * 500 * 256 * D)
    alone = codes + rotation + 2 * N * 16 * D
    assert cost.wall == approx(1 + (10 * 2 * 500 * 10 * D + 2 * N * 10 * D) / 1e3 + alone / 1e2)
    assert cost.disk == N * (4 * 4 / 8 + 8) + 4 * 10 * D


def test_a_graph_is_grown_by_one_thread_and_has_links(machine):
    plan = planned()
    cost = costs(plan, machine, index(plan, "graph"))
    assert cost.wall == approx(1 + N * 20 * 6 * (2 * D / 1e2 + math.log2(400) / 1e6))
    assert cost.disk == N * (4 * D + 4 * 6)
    assert cost.memory == (150 << 20) + 400 * (4 * D + 4 * 6)


def test_the_words_of_faiss_tell_their_lists(machine):
    plan = planned()
    stage = index(plan, "words")
    assert IndexSize(stage, new_setting(plan.settings, machine)).nlist == 16


def test_a_search_by_hand(machine):
    """Lists: ten centroids, four tenths of the passages, exact scores of 200; codes: one look-up a byte."""
    plan = planned()
    lists, codes, small, graph, signs = (
        costs(plan, machine, plan.planner.run(f"de@{name}", "dev", "test"))
        for name in ("lists", "codes", "bytes", "graph", "signs")
    )
    rescored, exact = 2 * 200 * D, QUESTIONS * N * (2 * D / 1e3 + 1 / 1e7)
    assert lists.wall == approx(1 + QUESTIONS * (2 * 10 * D + 400 * 2 * D + rescored) / 1e3)
    assert codes.wall == approx(1 + QUESTIONS * (2 * 10 * D + N * 4 + rescored) / 1e3 + exact)
    assert small.wall == approx(1 + QUESTIONS * N * 2 * D / 1e3 + 5 * N * (2 * D / 1e3 + 1 / 1e7))
    # a byte for eight dimensions, exact scores of four times the depth
    assert signs.wall == approx(1 + QUESTIONS * (N * D / 8 + 2 * 400 * D) / 1e3)
    assert costs(plan, machine, index(plan, "signs")).disk == N * D / 8
    # three graphs of at most 400 passages, 16 candidates with six links each
    steps = 3 * 16 * 6 * math.log2(400) / 1e6
    assert graph.wall == approx(
        1 + QUESTIONS * ((3 * 16 * 6 * 2 * D + rescored) / 1e3 + steps) + exact
    )


def test_gpus_search_at_the_rate_of_exact_search(machine):
    plan = planned(execution={"index_gpu": "replicate"})
    cost = costs(plan, machine, index(plan, "lists"))
    assert cost.wall == approx(1 + (10 * 2 * 500 * 10 * D + 2 * N * 10 * D) / 1e4)


def test_shards_share_a_search_but_not_the_queries_vectors(machine):
    single, four = planned(), planned(execution={"shards": 4})
    cost = [costs(plan, machine, plan.planner.run("de", "dev", "test")) for plan in (single, four)]
    searched = QUESTIONS * N * (2 * D / 1e4 + 1 / 1e7)
    assert [each.wall for each in cost] == [approx(1 + searched), approx(1 + searched / 4)]
    queries = [
        costs(plan, machine, plan.planner.run("de", "dev", "test").upstream["queries"]).wall
        for plan in (single, four)
    ]
    assert queries[0] == queries[1]
    lexical = [
        costs(plan, machine, plan.planner.run("bm25", "dev", "test")).wall
        for plan in (single, four)
    ]
    assert lexical[0] == lexical[1]  # its queries are one part


def test_a_list_that_is_re_ranked_twice_is_of_its_first_stages_split(machine):
    cross = {"objective": "cross", "candidates": {"from": "bm25", "depth": 20}}
    plan = planned(models={"one": cross, "other": {**cross, "train": {"lr": 1e-3}}})
    once, twice = (
        costs(plan, machine, plan.planner.run(f"bm25+{name}", "dev", "test"))
        for name in ("one", "one+other")
    )
    assert twice.operations == once.operations > 0


def test_no_stage_that_decides_a_run_is_left_out():
    training = {"model", "checkpoint", "train_generator"}
    encoding = {"embeddings", "token_vectors", "term_weights", "generated"}
    search = {
        "bm25",
        "tune_bm25",
        "retrieve",
        "retrieve_sparse",
        "maxsim",
        "index",
        "ann",
        "rerank",
        "rerank_windows",
    }
    assert training | encoding | search <= set(cost)


def test_a_row_of_coil_has_the_id_of_its_token(machine):
    coil = {
        "objective": "dual",
        "candidates": {"from": "bm25", "depth": 20},
        "representation": "coil",
    }
    plan = planned(models={"coil": coil})
    passages = plan.planner.run("coil", "dev", "test").upstream["passages"]
    setting = new_setting(plan.settings, machine)
    _, tokens = setting.lengths(passages.upstream["tokens"])
    # Of 32 numbers and 2 of the id, two bytes each; 768 numbers of the whole text are 24 rows more
    assert cost["token_vectors"](passages, setting).disk == approx(N * (tokens + 2 + 24) * 34 * 2)


def test_through_an_index_late_interaction_scores_a_few_times_the_depth(machine):
    late = {
        "objective": "dual",
        "candidates": {"from": "bm25", "depth": 20},
        "representation": "multi",
    }
    plan = planned(models={"late": late})
    setting = new_setting(plan.settings, machine)
    exact, through = (plan.planner.run(system, "dev", "test") for system in ("late", "late@lists"))
    everything, indexed = (dict(cost["maxsim"](stage, setting).rows) for stage in (exact, through))
    assert indexed["flat_search"] == approx(everything["flat_search"] * 2 * DEPTH / N)
    passages, queries = (
        count_token_rows(through.upstream[role], setting) for role in ("passages", "queries")
    )
    # each token of a query meets 10 centroids, and the tokens in four of ten lists
    assert indexed["faiss"] == approx(queries * 2 * 128 * (10 + 0.4 * passages), rel=1e-4)
