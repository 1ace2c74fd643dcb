"""Runs through indexes: what is in whose key, and every mistake as one line before anything runs."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from messages import unknown_key

from tandem.config.indexes import Index
from tandem.contrib.indexes.index_types import INDEX_FACTORIES
from tandem.contrib.indexes.options import FactoryIndex, IndexParams
from tandem.errors import UserError
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def planner(configured):
    """`planner(**indexes)`: of the default with indexes of one's own, or changed ones."""

    def make(**indexes):
        return Plan(configured("indexes", indexes), ROOT).planner

    return make


def run(planner, system="de_bm25neg@hnsw"):
    return planner.run(system, "test", "here")


def test_every_type_has_an_entry_that_works_as_it_is(planner):
    default = planner()
    of_vectors = {
        name for name, entry in default.settings.indexes.items() if isinstance(entry, Index)
    }
    assert of_vectors - {"two_bits"} == set(INDEX_FACTORIES) - {"factory"}  # named as their types
    for name in of_vectors:
        stage = run(default, f"de_bm25neg@{name}")
        assert (stage.kind, stage.name) == ("ann", f"de_bm25neg@{name}.test")
        assert stage.upstream["index"].upstream["passages"] is stage.upstream["passages"]


@pytest.mark.parametrize(
    "options",
    [
        {"ef_search": 7},
        {"rescore": False},
        {"rescore_factor": 4},
        {"recall_queries": 0},
        {"ef_search": "7"},
    ],
)
def test_how_is_searched_makes_another_run_of_the_same_index(planner, options):
    usual, other = run(planner()), run(planner(hnsw=options))
    assert other.digest != usual.digest
    assert other.upstream["index"].digest == usual.upstream["index"].digest


@pytest.mark.parametrize("options", [{"m": 16}, {"ef_construction": 40}, {"part": 1000}])
def test_how_is_built_makes_another_index(planner, options):
    assert (
        run(planner(hnsw=options)).upstream["index"].digest
        != run(planner()).upstream["index"].digest
    )


def test_equal_indexes_of_two_names_are_built_once(planner):
    changed = planner(twin={"type": "hnsw", "ef_search": 9})
    assert run(changed, "de_bm25neg@twin").upstream["index"] is run(changed).upstream["index"]


def test_an_entry_of_ones_own_type_replaces_that_of_the_catalogue(planner):
    changed = planner(hnsw={"factory": "IVF16,Flat", "nprobe": 3})
    assert run(changed).upstream["index"].params == IndexParams(
        type="factory", factory="IVF16,Flat", seed=42
    )


def test_an_entry_of_faisss_words_needs_no_type(planner):
    settings = planner(mine={"factory": "Flat"}).settings
    assert isinstance(settings.indexes["mine"], FactoryIndex)


def test_a_run_of_an_index_stands_wherever_a_run_does(configured):
    config = configured("models.ce_deneg.candidates.from", "de_bm25neg@ivf_pq")
    planner = Plan(config, ROOT).planner
    drawn = planner.model("ce_deneg", "here").upstream["candidates"]
    assert drawn.upstream["run"].kind == "ann"
    ranked = run(planner, "de_bm25neg@ivf_pq+ce_deneg")
    assert (ranked.kind, ranked.upstream["run"].name) == ("rerank", "de_bm25neg@ivf_pq.test")
    config = configured("models.de_bm25neg.train.distil", {"from": "given", "loss": "ranknet"})
    config["models"]["student"] = {
        "like": "de_bm25neg",
        "train": {"distil": {"from": "rocketqav2.retriever@sq"}},
    }
    teacher = Plan(config, ROOT).planner.model("student", "here").upstream["teacher"]
    assert teacher.upstream["run"].name == "rocketqav2@sq.train"


def test_gpus_and_shards_change_no_key(configured):
    usual = run(Plan(configured(), ROOT).planner)
    plan = Plan(configured("execution", {"index_gpu": "shard", "devices": 2, "shards": 3}), ROOT)
    stage = run(plan.planner)
    assert stage.digest == usual.digest
    assert "--run.index_gpu shard" in stage.upstream["index"].how
    assert len(plan.placement.shards("index", stage.upstream["index"].key)) == 3
    assert plan.placement.shards("ann", stage.key) == []


@pytest.mark.parametrize(("mode", "gpus"), [("none", 0), ("replicate", 2)])
def test_what_makes_an_index_or_searches_through_one_gets_its_gpus(configured, mode, gpus):
    config = configured("execution", {"index_gpu": mode, "devices": 2})
    plan = Plan(config, ROOT)
    searched = run(plan.planner)
    for stage in (searched, searched.upstream["index"], plan.view("tradeoffs").stage()):
        assert plan.placement.gpus(stage.kind, stage.key) == gpus


DEEP = "indexes.mine: 2,050 passages of a query (depth 1,025 times 2) are needed, but a GPU finds at most 2,048"


@pytest.mark.parametrize(
    ("entry", "depth", "line"),
    [
        ({"type": "ivf_flat"}, 1024, None),
        ({"type": "ivf_flat"}, 1025, f"{DEEP}; lower rescore_factor or the depth, or"),
        ({"type": "flat", "rescore": False}, 2048, None),
        ({"type": "flat", "rescore": False}, 2049, "(depth 2,049 times 1) are needed"),
        ({"type": "hnsw"}, 1025, None),  # which the CPU searches
        ({"type": "ivf_pq", "nprobe": 2049}, 10, "indexes.mine.nprobe is 2,049, but a GPU"),
    ],
)
def test_more_neighbours_or_lists_than_a_gpu_has_are_refused(configured, entry, depth, line):
    config = configured("indexes", {"mine": entry}) | {"depth": {"test": depth}}
    assert run(Plan(config, ROOT).planner, "de_bm25neg@mine").values["depth"] == depth
    plan = Plan(config | {"execution": {"index_gpu": "replicate"}}, ROOT)
    with pytest.raises(UserError, match=re.escape(line)) if line else nullcontext():
        run(plan.planner, "de_bm25neg@mine")


def test_tradeoffs_ask_a_gpu_for_no_more_than_it_has(configured):
    config = configured("execution", {"index_gpu": "shard"})
    tradeoffs = {"indexes": ["flat"], "k": [1025], "sweep": {"rescore": [False]}}
    Plan(config | {"tradeoffs": tradeoffs}, ROOT).view("tradeoffs").stage()
    tradeoffs["sweep"] = {"rescore": [False, True]}
    with pytest.raises(UserError, match="depth 1,025 times 2"):
        Plan(config | {"tradeoffs": tradeoffs}, ROOT).view("tradeoffs").stage()


def test_a_small_collection_has_no_more_neighbours_than_passages(configured):
    entry = {"of": "pydocs", "source": "dissimilar", "counts": {"passages": 2048}}
    config = configured("datasets", {"small": entry}) | {"depth": {"test": 5000}}
    config |= {"indexes": {"mine": {"type": "flat"}}, "execution": {"index_gpu": "replicate"}}
    plan = Plan(config, ROOT)
    assert plan.planner.run("de_bm25neg@mine", "test", "here", "small").values["depth"] == 5000
    with pytest.raises(UserError, match="depth 5,000 times 2"):
        run(plan.planner, "de_bm25neg@mine")


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"type": "hnws"}, "indexes.x.type is 'hnws'; did you mean hnsw?"),
        ({"type": ["hnsw"]}, "indexes.x.type is ['hnsw']; did you mean hnsw?"),
        ({"m": 3}, "indexes.x.type is missing; allowed: flat, sq, binary, pq"),
        ({"type": "hnsw", "nprobe": 3}, unknown_key("indexes.x.nprobe")),
        ({"type": "ivf_flat", "nlist": 0}, "indexes.x.nlist is 0; allowed: ≥ 1"),
        ({"type": "sq", "sq": "7bit"}, 'indexes.x.sq is "7bit"; allowed: 8bit, 6bit, 4bit, fp16'),
        (
            {"type": "ivf_flat", "nlist": 900, "train_sample": 800},
            "indexes.x: 900 lists cannot be learned from 800",
        ),
        (
            {"factory": "IVF900,Flat", "train_sample": 800},
            "indexes.x: 900 lists cannot be learned from 800 passages",
        ),
        (
            {"type": "pq", "bits": 10, "train_sample": 800},
            "indexes.x.bits is 10: 1024 centroids cannot be learned",
        ),
        ({"type": "hnsw", "m": 513}, "indexes.x.m is 513; allowed: ≤ 512"),
        (
            {"factory": "IVF16,ZnLattice2x3_4"},
            "indexes.x.factory is IVF16,ZnLattice2x3_4: ZnLattice2x3_4: FAISS does not",
        ),
        (
            {"factory": "PCA64,IVF16,PQ48"},
            "indexes.x.factory is PCA64,IVF16,PQ48: PQ48: 48 does not divide the 64 dim",
        ),
        (
            {"factory": "PQ8x10", "train_sample": 800},
            "it is learned from 800 vectors, but needs 1,024; name a smaller",
        ),
    ],
)
def test_a_mistake_is_one_line(planner, entry, line):
    with pytest.raises(UserError, match=r"^indexes\.x.*$") as error:
        planner(x=entry)
    assert line in str(error.value)


@pytest.mark.parametrize("name", ["a+b", "my index", "de@x", "../x"])
def test_an_index_has_a_name_that_a_run_can_say(planner, name):
    with pytest.raises(UserError) as error:
        planner(**{name: {"type": "flat"}})
    assert str(error.value) == f"indexes.{name}: a name is letters, digits, '_', '-' and '.'"


def test_what_a_run_names_must_be_there(planner):
    default = planner()
    with pytest.raises(
        UserError, match="here: de_bm25neg@hnws: hnws is not an index; did you mean hnsw"
    ):
        run(default, "de_bm25neg@hnws")
    with pytest.raises(UserError, match="here: ce_bm25neg is a cross model, needed is dual"):
        run(default, "ce_bm25neg@hnsw")
    with pytest.raises(UserError, match="here: bm25 is not a model"):
        run(default, "bm25@hnsw")


def test_codes_that_do_not_fit_the_encoder_are_refused_before_anything_is_trained(planner):
    own = {"factory": "IVF16,PQ50"}  # which planning alone does not know the dimension for
    changed = planner(codes={"type": "ivf_pq", "m": 50}, fit={"type": "ivf_pq", "m": 48}, words=own)
    with pytest.raises(
        UserError, match=r"indexes.codes.m is 50, which does not divide the vectors' 384 dimensions"
    ):
        run(changed, "de_bm25neg@codes")
    with pytest.raises(
        UserError, match=r"indexes.words.factory is .*: PQ50: 50 does not divide the 384 dimensions"
    ):
        run(changed, "de_bm25neg@words")
    assert run(changed, "de_bm25neg@fit").upstream["index"].values["m"] == 48


def test_lists_that_a_known_corpus_cannot_fill_are_refused(configured):
    config = configured("indexes", {"many": {"type": "ivf_flat", "nlist": 10_000_000}})
    planner = Plan(config | {"dataset": "msmarco"}, ROOT).planner
    with pytest.raises(
        UserError, match="indexes.many: 10000000 lists cannot be learned from 8841823 passages"
    ):
        planner.run("de_bm25neg@many", "dev", "here")


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"factory": "HNSW32,SQ8"}, 1 << 22),
        ({"factory": "HNSW32", "part": 1000}, 1000),
        ({"factory": "IVF64,PQ4"}, 1 << 20),
    ],
)
def test_a_part_of_a_factorys_graph_is_that_of_a_graph(planner, entry, part):
    own = planner(mine={"type": "factory"} | entry)
    assert run(own, "de_bm25neg@mine").upstream["index"].values["part"] == part


def test_a_rotation_of_too_few_vectors_is_refused_before_they_are_encoded(planner):
    own = planner(mine={"type": "ivf_pq", "train_sample": 300})
    with pytest.raises(UserError, match="indexes.mine.opq: a rotation of 384 dimensions"):
        run(own, "de_bm25neg@mine")


def test_tokens_that_are_matched_are_not_compared_by_indexes(configured):
    model = {"like": "de_bm25neg", "representation": "coil"}
    config = configured("models.tokens", model)
    with pytest.raises(UserError, match="tradeoffs.model: tokens compares vectors of the same"):
        Plan(config | {"tradeoffs": {"model": "tokens"}}, ROOT).view("tradeoffs").stage()


def test_tradeoffs_measure_what_they_name(configured):
    plan = Plan(configured("tradeoffs", {"indexes": ["flat", "hnsw"], "k": [5]}), ROOT)
    stage = plan.view("tradeoffs").stage()
    assert [stage.upstream[f"index.{i}"].name for i in range(2)] == [
        "de_bm25neg@flat",
        "de_bm25neg@hnsw",
    ]
    assert stage.values["split"] == "test"
    assert stage.upstream["index.1"] is run(plan.planner).upstream["index"]
    with pytest.raises(UserError, match="tradeoffs.indexes: ivff is not an index"):
        Plan(configured("tradeoffs.indexes", ["ivff"]), ROOT).view("tradeoffs").stage()
    with pytest.raises(
        UserError,
        match="tradeoffs.split: queries are asked on split nope, but dataset pydocs has dev",
    ):
        Plan(configured("tradeoffs.split", "nope"), ROOT).view("tradeoffs").stage()
    with pytest.raises(UserError, match="tradeoffs.model: ce_bm25neg is a cross model"):
        Plan(configured("tradeoffs.model", "ce_bm25neg"), ROOT).view("tradeoffs").stage()
