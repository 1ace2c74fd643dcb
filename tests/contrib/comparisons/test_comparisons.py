"""Stages `compare` and `rerank_compared`: every aggregation by hand, kept numbers, shards, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from pytest import approx

from tandem.contrib.comparisons import compare_passages as comparisons
from tandem.contrib.comparisons.compare_passages import (
    aggregate,
    join_passages,
    list_pairs,
    run,
    run_rerank,
    run_shard,
)
from tandem.data.collection import Collection
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.models.hub import load_tokenizer
from tandem.models.pair_prompts import PairOptions
from tandem.models.ragged import Ragged
from tandem.models.tokens import Tokens
from tandem.stages import KINDS
from tandem.stages.base import Part
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import writing

SMALL_PARTS = replace(KINDS["compare"], part=Part(5, "queries"))  # of five lists of the twenty
RECIPE = {"objective": "cross", "compares": True, "train": {"seed": 3}}
PARAMS = {"depth": 4, "precision": "fp32", "batch_tokens": 512}


def logit(p):
    return np.log(p / (1 - p))


# p_ij of three passages: 0 beats 1 in both orders, 1 beats 2, 2 beats 0 as the first one alone
P = {(0, 1): 0.9, (0, 2): 0.4, (1, 0): 0.2, (1, 2): 0.8, (2, 0): 0.7, (2, 1): 0.3}
LOGITS = np.array([logit(P[pair]) for pair in zip(*map(list, list_pairs(3)), strict=True)])


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("sum", [1.3, 1.0, 1.0]),
        ("binary", [1, 1, 1]),
        ("min", [0.4, 0.2, 0.3]),
        ("max", [0.9, 0.8, 0.7]),
        # Σ p_ij + 1 - p_ji: (0.9 + 0.8) + (0.4 + 0.3), (0.2 + 0.1) + (0.8 + 0.7), (0.7 + 0.6) + (0.3 + 0.2)
        ("sym_sum", [2.4, 1.8, 1.8]),
        ("copeland", [1, 1, 1]),
    ],
)
def test_aggregations_by_hand(method, expected):
    assert aggregate(method, LOGITS, 3).tolist() == approx(expected)


def test_copeland_counts_half_of_what_is_equal_and_a_list_of_one_has_nothing_to_compare():
    # p_01 = p_10 = 0.6: neither is preferred
    assert aggregate("copeland", np.array([logit(0.6), logit(0.6)]), 2).tolist() == [0.5, 0.5]
    assert aggregate("copeland", np.array([logit(0.6), logit(0.5)]), 2).tolist() == [1, 0]
    assert aggregate("min", np.empty(0), 1).tolist() == [0]


@pytest.fixture(scope="module")
def duo_model(make_job, encoder, results):
    """A cross-encoder over the tiny encoder that compares passages."""
    import torch

    job = make_job("model", results / "model" / "duo-00000000d0", RECIPE, {"encoder": encoder})
    folder = encoder.folder / "hf"
    with torch.random.fork_rng(), writing(job) as draft:
        torch.manual_seed(3)
        model = CrossEncoder.start(folder, "mean", PairOptions(passages=2))
        for parameter in model.parameters():
            parameter.data += 0.2 * torch.randn_like(parameter)
        model.save(draft.folder / "cross", load_tokenizer(folder))
        write_json(draft.path("model.json"), {"objective": "cross"})
    return open_artifact(job.out)


@pytest.fixture
def lists(dataset):
    """Six passages of each test query, of one a single one."""
    rng = np.random.default_rng(3)
    ids = Collection(dataset).doc_ids().to_pylist()
    return [
        (
            query,
            [ids[i] for i in rng.permutation(60)[: 1 if n == 5 else 6]],
            np.arange(1 if n == 5 else 6, 0, -1.0),
        )
        for n, query in enumerate(Collection(dataset).queries("test"))
    ]


@pytest.fixture
def inputs(dataset, tokens, duo_model, write_ranked, lists, tmp_path):
    out = tmp_path / "tiny" / "bm25" / "run-0123456789"
    return {
        "dataset": dataset,
        "run": write_ranked("bm25", out, {"depth": 6}, {"dataset": dataset}, lists),
        "tokens": tokens,
        "model": duo_model,
    }


@pytest.fixture
def compare_job(make_job, inputs, tmp_path):
    """`compare_job(name, **execution)`."""

    def make(name="duo", inputs_=None, **execution):
        out = tmp_path / "tiny" / "compare" / f"{name}-0123456789"
        return make_job("compare", out, PARAMS, inputs_ or inputs, execution)

    return make


def test_a_list_is_ordered_by_the_models_own_comparisons(
    compare_job, make_job, inputs, dataset, lists, tmp_path
):
    job = compare_job()
    run(job)
    compared = open_artifact(job.out)
    assert compared.manifest.facts["comparisons"] == 12 * (len(lists) - 1)
    upstream = {"dataset": dataset, "run": inputs["run"], "compared": compared}
    own = {"depth": 4, "aggregate": "sum"}
    reranked = make_job(
        "rerank_compared", tmp_path / "tiny" / "rerank_compared" / "sum-0123456789", own, upstream
    )
    run_rerank(reranked)
    model = CrossEncoder.load(inputs["model"].folder / "cross").eval()
    opened = Tokens.open(inputs["tokens"])
    ids = Collection(dataset).doc_ids().to_pylist()
    rows = {query: row for row, query in enumerate(Collection(dataset).query_texts())}
    results = {query: docs for query, docs, _ in iter_run(open_artifact(reranked.out), dataset)}
    for query, docs, _ in lists:
        top = [ids.index(doc) for doc in docs[:4]]
        sums = np.zeros(len(top))
        for i, j in zip(*list_pairs(len(top)), strict=True):
            passages = [Ragged.of([opened.passages[top[place]]]) for place in (i, j)]
            joined = join_passages(*passages, model.separator(opened.template))
            score = model.score(
                [opened.queries[rows[query]]], joined, opened.template, "fp32", 512
            )[0]
            sums[i] += 1 / (1 + np.exp(-score))
        expected = [docs[at] for at in np.argsort(-sums, kind="stable")] + docs[4:]
        assert results[query] == expected


def test_shards_change_no_byte(compare_job, monkeypatch):
    whole = compare_job("whole")
    run(whole)
    monkeypatch.setattr(comparisons, "_AT_ONCE", 5)
    monkeypatch.setitem(comparisons.Parts.complete.__globals__["KINDS"], "compare", SMALL_PARTS)
    shared = compare_job("shared", shard=1, shards=2)
    assert run_shard(shared) == {"parts": [1, 3]}
    run(compare_job("shared"))
    assert (whole.out / "comparisons.npy").read_bytes() == (
        shared.out / "comparisons.npy"
    ).read_bytes()


def test_what_does_not_fit_is_refused(
    compare_job, inputs, cross_model, make_job, dataset, tmp_path
):
    with pytest.raises(UserError, match="compares: true"):
        run(compare_job(inputs_=inputs | {"model": cross_model}))
    from tandem.retrieval.pair_scores import load_scorer

    with pytest.raises(UserError, match="compares two passages"):
        load_scorer(inputs["model"].folder / "cross")
    job = compare_job("whole")
    run(job)
    upstream = {"dataset": dataset, "run": inputs["run"], "compared": open_artifact(job.out)}
    wrong = make_job(
        "rerank_compared",
        tmp_path / "tiny" / "rerank_compared" / "x-0123456789",
        {"depth": 3},
        upstream,
    )
    with pytest.raises(UserError, match="depth is 3"):
        run_rerank(wrong)
