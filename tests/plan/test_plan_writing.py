"""Cross-encoders that start from a generator: what they read, whose token ids, and every mistake in one line."""

from pathlib import Path

import pytest

from tandem.config.models import DUO_T5, MONO_T5
from tandem.errors import UserError
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[2]
MONO = {"objective": "cross", "init": "own", "candidates": {"from": "bm25", "depth": 20}}
RANK = {**MONO, "pooling": "decoder", "prompt": "Q: {query} D: {passage}", "words": ["relevant"]}
SERVER = {"source": "endpoint", "model": "gpt", "endpoint": {"url": "http://localhost:8000/v1"}}


@pytest.fixture
def plan(configured):
    """`plan(models, **blocks)`: the default with a generator and some models."""

    def make(models, **blocks):
        base = configured()
        base["models"] = {**base.get("models", {}), **models}
        own = {
            "own": {"source": "train", "length": 64},
            "further": {"source": "train", "start": "own"},
            "from_encoder": {"source": "train", "length": 64, "start": "encoder"},
        }
        base["generators"] = own | blocks.pop("generators", {})
        return Plan(base | blocks, ROOT)

    return make


def test_a_generators_decoder_writes_what_monot5_does_where_nothing_else_is_said(plan):
    planned = plan(
        {"mono": MONO, "on": {**MONO, "init": "mono"}, "encoder_alone": {**MONO, "pooling": "mean"}}
    )
    model = planned.planner.model("mono", "here")
    assert model.upstream["start"].kind == "train_generator"
    assert model.values["pooling"] == "decoder"
    assert (model.values["prompt"], model.values["words"]) == (MONO_T5, ["true", "false"])
    on = planned.planner.model("on", "here")
    assert {key: on.values[key] for key in ("pooling", "prompt", "words")} == {
        key: model.values[key] for key in ("pooling", "prompt", "words")
    }
    assert not {"prompt", "words"} & planned.planner.model("encoder_alone", "here").values.keys()


def test_a_new_generator_shares_the_token_ids_of_the_encoder(plan):
    inits = {"from_further": "further", "from_an_encoder": "from_encoder"}
    planned = plan({"mono": MONO} | {name: {**MONO, "init": init} for name, init in inits.items()})
    shared = planned.planner.model("ce_bm25neg", "here").upstream["tokens"]
    for name in ("mono", *inits):
        assert planned.planner.model(name, "here").upstream["tokens"] == shared
    run = planned.planner.run("bm25+mono", "test", "here")
    assert run.upstream["tokens"] == shared


def test_a_published_generator_has_token_ids_of_its_own(plan):
    model = plan({"mono": {**MONO, "init": "t5-base"}}).planner.model("mono", "here")
    assert model.upstream["start"].kind == "generator"
    assert model.upstream["tokens"].upstream["encoder"] == model.upstream["start"]


def test_prompt_and_words_are_part_of_the_key(plan):
    planned = plan(
        {"a": RANK, "b": {**RANK, "words": ["yes"]}, "c": {**RANK, "prompt": "{query} {passage}"}}
    )
    assert len({planned.planner.model(name, "here").digest for name in "abc"}) == 3


@pytest.mark.parametrize(
    ("models", "named"),
    [
        ({"m": {**MONO, "prompt": "Document: {passage}"}}, ["m.prompt", "{query}"]),
        ({"m": {**MONO, "prompt": "{passage} {query}"}}, ["m.prompt", "{passage}, {query}"]),
        (
            {"m": {**MONO, "prompt": "{query} {passage} {passage}"}},
            ["m.prompt", "{query}, {passage}, {passage}"],
        ),
        ({"m": {**RANK, "words": ["a", "b", "c"]}}, ["m.words"]),
        (
            {"m": {**MONO, "init": "encoder", "pooling": "decoder"}},
            ["m.pooling", "decoder", "encoder"],
        ),
        ({"m": {**MONO, "pooling": "mean", "words": ["true"]}}, ["m.words", "mean"]),
        (
            {"m": {**MONO, "init": "encoder", "pooling": "classifier", "prompt": MONO_T5}},
            ["m.prompt", "classifier"],
        ),
        (
            {"m": MONO, "n": {**MONO, "init": "m", "words": ["yes"]}},
            ["n.words", "yes", "m has", "true"],
        ),
        ({"m": {**MONO, "objective": "dual"}}, ["m.init", "own", "generator"]),
        ({"m": {**MONO, "init": "asked"}}, ["asked", "server"]),
        ({"m": {**MONO, "init": "onw"}}, ["m.init", "onw", "own"]),
    ],
)
def test_a_mistake_is_one_line(plan, models, named):
    with pytest.raises(UserError) as error:
        planned = plan(models, generators={"asked": SERVER})
        planned.planner.model([*models][-1], "here")
    line = str(error.value)
    assert "\n" not in line
    for word in named:
        assert word in line


DUO = {
    "objective": "cross",
    "init": "own",
    "compares": True,
    "candidates": {"from": "bm25", "depth": 20},
}


def test_all_aggregations_of_one_model_share_its_comparisons(plan):
    planned = plan(
        {"duo": DUO},
        comparisons={
            name: {"by": "duo", "aggregate": name, "top": 5}
            for name in ("sum", "binary", "copeland")
        },
    )
    runs = [
        planned.planner.run(f"bm25+ce_bm25neg+{name}", "test", "here")
        for name in ("sum", "binary", "copeland")
    ]
    assert {run.kind for run in runs} == {"rerank_compared"}
    assert len({run.digest for run in runs}) == 3
    [compared] = {
        run.upstream["compared"].digest: run.upstream["compared"] for run in runs
    }.values()
    assert compared.values["depth"] == 5
    assert compared.upstream["run"].kind == "rerank"
    model = compared.upstream["model"]
    assert (model.values["compares"], model.values["prompt"]) == (True, DUO_T5)


@pytest.mark.parametrize(
    ("models", "more", "target", "named"),
    [
        (
            {"m": {**DUO, "train": {"loss": "listwise"}}},
            {},
            "bm25+c",
            ["m.train.loss", "listwise", "pointwise"],
        ),
        (
            {"m": {**DUO, "train": {"distil": {"from": "ce_bm25neg"}}}},
            {},
            "bm25+c",
            ["m.train.distil"],
        ),
        ({"m": {**DUO, "prompt": MONO_T5}}, {}, "bm25+c", ["m.prompt", "{passage}", "{first}"]),
        ({"m": DUO}, {}, "bm25+m", ["bm25+m", "comparing", "comparisons"]),
        (
            {"m": DUO},
            {"ensembles": {"e": {"of": ["m", "ce_bm25neg"]}}},
            "bm25+e",
            ["ensembles.e", "m", "comparing"],
        ),
        (
            {"m": DUO, "n": {**DUO, "compares": False, "init": "m"}},
            {},
            "bm25+n",
            ["n.init", "m", "comparing"],
        ),
        ({"m": MONO}, {}, "bm25+c", ["comparisons.c.by", "m", "compares: true"]),
        (
            {"m": DUO},
            {"pipelines": {"p": {"of": ["bm25", "bm25+c"]}}},
            "p",
            ["pipelines.p.of", "c"],
        ),
    ],
)
def test_a_mistake_about_comparisons_is_one_line(plan, models, more, target, named):
    with pytest.raises(UserError) as error:
        plan(models, comparisons={"c": {"by": "m"}}, **more).planner.run(target, "test", target)
    line = str(error.value)
    assert "\n" not in line
    for word in named:
        assert word in line
