"""How a representation is named, inherited and found, and mistakes about it as one line."""

from pathlib import Path

import pytest

from tandem.contrib.late_interaction.options import Multi
from tandem.errors import UserError
from tandem.plan.plan import Plan
from tandem.plan.searches import encode_both_sides

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def planner(configured):
    """`planner(**models)`: of the default with a late-interaction model `colbert`, and more models."""

    def make(**models):
        config = configured(
            "models", {"colbert": {"like": "de_bm25neg", "representation": "multi"}}
        )
        config["models"] = {**config["models"], **models}
        return Plan(config, ROOT).planner

    return make


def test_a_name_alone_has_the_defaults_and_single_is_in_no_key(planner):
    plan = planner(spelled={"like": "colbert", "representation": {"type": "multi", "dim": 128}})
    colbert = plan.model("colbert", "here")
    assert colbert.params.representation == Multi()
    # not those of the encoder's cosines
    assert (colbert.params.normalize, colbert.params.temperature) == (True, 1.0)
    assert plan.model("spelled", "here") is colbert
    assert "representation" not in plan.model("de_bm25neg", "here").values


def test_what_starts_from_it_is_of_its_representation(planner):
    plan = planner(further={"objective": "dual", "init": "colbert", "candidates": {"from": "bm25"}})
    assert plan.model("further", "here").params.representation == Multi()


def test_it_re_ranks_judges_and_teaches_pair_by_pair(planner):
    taught = {"like": "de_bm25neg", "train": {"distil": {"from": "colbert"}}}
    denoised = {"denoise": {"by": "colbert", "negative_below": 0.1}}
    judged = {"like": "de_bm25neg", "candidates": denoised}
    plan = planner(taught=taught, judged=judged)
    colbert = plan.model("colbert", "here")
    ranked = plan.run("bm25+colbert", "test", "here")
    assert (ranked.kind, ranked.upstream["model"]) == ("rerank", colbert)
    assert ranked.upstream["tokens"] is colbert.upstream["tokens"]
    assert plan.model("taught", "here").upstream["teacher"].upstream["judge.0"] is colbert
    assert plan.model("judged", "here").upstream["candidates"].upstream["judge.0"] is colbert


def test_end_to_end_its_search_is_found(planner):
    plan = planner()
    run = plan.run("colbert", "test", "here")
    assert (run.kind, run.name) == ("maxsim", "colbert.test")
    assert [run.upstream[side].kind for side in ("passages", "queries")] == ["token_vectors"] * 2
    indexed = plan.run("colbert@ivf_flat", "test", "here")
    assert indexed.upstream["index"].upstream["passages"] is run.upstream["passages"]
    assert (indexed.params.nprobe, indexed.params.rescore_factor) == (32, 2)


def test_indexes_of_its_tokens_are_measured(configured):
    config = configured("models", {"colbert": {"like": "de_bm25neg", "representation": "multi"}})
    config["tradeoffs"] = {"model": "colbert", "indexes": ["ivf_flat"]}
    stage = Plan(config, ROOT).view("tradeoffs").stage()
    assert (stage.kind, stage.upstream["passages"].kind) == ("tradeoffs", "token_vectors")
    assert stage.upstream["index.0"].upstream["passages"] is stage.upstream["passages"]


def test_what_no_index_finds_is_not_chosen_to_be_measured(configured):
    dual = {"objective": "dual", "candidates": {"from": "bm25"}}
    models = {"coil": dual | {"representation": "coil"}, "dual": dual}
    config = configured("models", models) | {
        "recipes": [],
        "tables": [],
        "systems": ["coil", "dual"],
    }
    stage = Plan(config, ROOT).view("tradeoffs").stage()
    assert stage.upstream["passages"].upstream["model"].name == "dual"


def test_fewer_vectors_are_an_option_that_is_in_no_other_key(planner):
    plan = planner(
        me_bert={"like": "colbert", "representation": {"type": "multi", "passage_vectors": 3}}
    )
    assert plan.model("me_bert", "here").values["representation"]["passage_vectors"] == 3
    assert "passage_vectors" not in plan.model("colbert", "here").values["representation"]


def test_coil_re_ranks_and_searches_without_an_index(planner):
    plan = planner(coil={"like": "de_bm25neg", "representation": {"type": "coil", "cls_dim": None}})
    assert plan.run("bm25+coil", "test", "here").upstream["model"] is plan.model("coil", "here")
    assert plan.run("coil", "test", "here").values["same_token"] is True
    assert "same_token" not in plan.run("colbert", "test", "here").values
    with pytest.raises(
        UserError, match="coil@ivf_flat: an index of vectors does not know .*; leave out @ivf_flat"
    ):
        plan.run("coil@ivf_flat", "test", "here")


def test_a_poly_encoder_re_ranks_and_searches_nothing(planner):
    plan = planner(poly={"like": "de_bm25neg", "representation": {"type": "poly", "codes": 16}})
    assert plan.run("bm25+poly", "test", "here").upstream["model"] is plan.model("poly", "here")
    with pytest.raises(
        UserError, match="poly is a poly-encoder, which scores pairs .* as bm25[+]poly"
    ):
        plan.run("poly", "test", "here")


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"representation": "many"}, 'models.x.representation is "many"; allowed: single, .*multi'),
        (
            {"representation": {"type": "many"}},
            "models.x.representation is .*; allowed: single, .*multi",
        ),
        (
            {"representation": {"type": "multi", "dims": 8}},
            "models.x.representation.dims is not a known key",
        ),
        (
            {"representation": {"type": "multi", "dim": 0}},
            "models.x.representation.dim is 0; allowed: ≥ 1",
        ),
        (
            {"representation": "multi", "pooling": "mean"},
            "models.x.pooling is set, but .* multi does not use it",
        ),
        (
            {"representation": "multi", "train": {"regularise": {"passage": {"l1": 0.1}}}},
            "models.x.train.regularise is set, but the representation multi does not use it; leave it out",
        ),
        (
            {"representation": "coil", "normalize": True},
            "models.x.normalize is set, but .* coil does not use it",
        ),
        (
            {"init": "colbert", "representation": "single"},
            "models.x.representation is .*, but colbert has",
        ),
    ],
)
def test_mistakes(planner, keys, line):
    with pytest.raises(UserError, match=line):
        planner(x={"like": "de_bm25neg", **keys}).model("x", "here")


def test_what_needs_one_vector_a_text_says_so(planner):
    plan = planner()
    plan.model("colbert", "here")
    with pytest.raises(
        UserError, match="here: colbert is of representation multi; this needs single vectors"
    ):
        encode_both_sides(plan.ctx, "embeddings", "colbert", "test", "here", "pydocs")


@pytest.mark.parametrize(("mode", "gpus"), [("none", 0), ("replicate", 2)])
def test_what_makes_an_index_of_tokens_or_searches_through_one_gets_its_gpus(
    configured, mode, gpus
):
    config = configured("execution", {"index_gpu": mode, "devices": 2})
    config["models"]["colbert"] = {"like": "de_bm25neg", "representation": "multi"}
    plan = Plan(config, ROOT)
    indexed = plan.planner.run("colbert@ivf_pq", "test", "here")
    assert indexed.kind == "maxsim"
    for stage in (indexed, indexed.upstream["index"]):
        assert plan.placement.gpus(stage.kind, stage.key) == gpus
    exact = plan.planner.run("colbert", "test", "here")
    assert plan.placement.gpus("maxsim", exact.key) == 0  # without an index


def test_more_tokens_than_a_gpu_finds_are_refused(configured):
    config = configured("execution", {"index_gpu": "replicate"}) | {"depth": {"test": 1025}}
    config["models"]["colbert"] = {"like": "de_bm25neg", "representation": "multi"}
    # each token's neighbours are as many, whatever scores the passages
    config["indexes"] = {"mine": {"type": "ivf_flat", "rescore": False}}
    line = r"indexes.mine: 2,050 tokens near each of a query's \(depth 1,025 times 2\) are needed"
    with pytest.raises(UserError, match=line):
        Plan(config, ROOT).planner.run("colbert@mine", "test", "here")
