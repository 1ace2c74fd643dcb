"""Variants by bm25s, and by classical scores: which stages they share, and what is wrong with them in one line."""

import pytest
from messages import unknown_key
from tiny_project import find_run

from tandem import ROOT
from tandem.config.settings import ExecutionSettings
from tandem.contrib.lexical.costs import estimate_bm25s
from tandem.contrib.lexical.options import Bm25sParams, LsiParams
from tandem.errors import UserError
from tandem.extras.estimate.resources import Setting, Volumes
from tandem.extras.estimate.stage_costs import estimate_tune_bm25
from tandem.plan.plan import Plan


def test_variants_of_bm25s_say_what_differs(plan_sparse):
    plan = plan_sparse(
        {
            "apart": {
                "engine": "bm25s",
                "fields": {"title": 2, "text": 1},
                "field_b": {"title": 0.3},
            },
            "k1": {
                "engine": "bm25s",
                "fields": {"text": 1},
                "field_b": {"text": 0.3},
                "tuned": True,
            },
            "stemless": {"engine": "bm25s", "analyzer": "none", "formula": "bm25+"},
        }
    )
    apart = find_run(plan, "apart")
    assert (apart.values["field_b"], apart.values["b"]) == ({"title": 0.3, "text": None}, 0.4)
    assert apart.upstream["bm25s"].params == Bm25sParams(fields=True)
    assert find_run(plan, "k1").upstream["tuned"].values["b"] == [0.2]
    stemless = find_run(plan, "stemless")
    assert (stemless.values["formula"], stemless.values["delta"]) == ("bm25+", 1.0)
    assert stemless.upstream.keys() == {"dataset", "bm25s"}
    assert stemless.upstream["bm25s"].params == Bm25sParams(analyzer="none", language="en")


def test_classical_scores_search_the_index_of_their_engine_and_have_no_k1(plan_sparse):
    plan = plan_sparse(
        {
            "likelihood": {"similarity": {"type": "dirichlet"}},
            "cosine": {"similarity": {"type": "tf_idf"}},
            "latent": {"similarity": {"type": "lsi", "dimensions": 20}},
            "and": {"match": "all"},
        }
    )
    bm25, likelihood, cosine, latent = (
        find_run(plan, name) for name in ("bm25", "likelihood", "cosine", "latent")
    )
    assert likelihood.upstream["lucene"] is bm25.upstream["lucene"]
    assert likelihood.values["similarity"] == {"type": "dirichlet", "mu": 1000.0}
    assert (likelihood.values["k1"], likelihood.values["b"]) == (None, None)
    assert cosine.upstream.keys() == {"dataset", "bm25s"}
    assert latent.upstream["bm25s"] is cosine.upstream["bm25s"]
    assert latent.upstream["lsi"].params == LsiParams(dimensions=20)
    assert (find_run(plan, "and").values["match"], find_run(plan, "and").values["k1"]) == (
        "all",
        0.9,
    )
    assert "match" not in bm25.values


def test_the_engine_of_all_is_one_key(plan_sparse):
    plan = plan_sparse({"java": {"engine": "lucene", "analyzer": "krovetz"}}, engine="bm25s")
    assert find_run(plan, "bm25").upstream.keys() == {"dataset", "bm25s"}
    assert find_run(plan, "bm25.none").upstream["bm25s"].values["analyzer"] == "none"
    assert find_run(plan, "java").upstream.keys() == {"dataset", "lucene"}
    with pytest.raises(
        UserError,
        match="bm25.analyzer is krovetz, which bm25s lacks; allowed: default, porter, none, w",
    ):
        find_run(plan, "bm25.krovetz")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"engine": "bm25s", "rm3": {}},
            "sparse.v.rm3 needs Lucene, but the engine is bm25s; set sparse.v.engine to",
        ),
        (
            {"engine": "bm25s", "formula": "bm25l", "fields": {"title": 1}},
            "sparse.v has fields and formula bm25l, but BM25F has one formula; leave one out",
        ),
        (
            {"engine": "bm25s", "fields": {"title": 1}, "field_b": {"text": 0.3}},
            "sparse.v.field_b.text is set, but sparse.v.fields searches no text; give it a weight",
        ),
        ({"engine": "bm25s", "field_b": {"text": 0.3}}, "sparse.v.fields searches no text"),
        (
            {"engine": "bm25s", "fields": {"title": 1}, "field_b": {"title": 0.3}, "b": 0.4},
            "sparse.v.b is set, but every field has its own in sparse.v.field_b",
        ),
        (
            {"engine": "bm25s", "delta": 1},
            "sparse.v.delta is of bm25. and bm25l, but formula is lucene; leave it",
        ),
        (
            {"similarity": {"type": "dirichlet"}, "engine": "bm25s"},
            "sparse.v.similarity is dirichlet, which bm25s lacks; set sparse.v.engine to lucene",
        ),
        (
            {"similarity": {"type": "lsi"}, "engine": "lucene"},
            "sparse.v.similarity is lsi, which lucene lacks; set sparse.v.engine to bm25s",
        ),
        (
            {"similarity": {"type": "dfr"}, "k1": 1},
            "sparse.v.k1 is of BM25 alone, but sparse.v.similarity is dfr",
        ),
        ({"similarity": {"type": "dfr"}, "tuned": True}, "sparse.v.tuned is of BM25 alone"),
        ({"similarity": {"type": "lsi"}, "rm3": {}}, "sparse.v.rm3 is of BM25 alone"),
        (
            {"match": "all", "engine": "bm25s"},
            "sparse.v.match needs Lucene, but the engine is bm25s",
        ),
        (
            {"similarity": {"type": "dirichlet", "mu": 0}},
            "sparse.v.similarity.mu is 0; allowed: > 0",
        ),
        (
            {"similarity": {"type": "bert"}},
            "sparse.v.similarity.type is bert; allowed: dirichlet, ",
        ),
        ({"similarity": {"type": "dfr", "mu": 1}}, unknown_key("sparse.v.similarity.mu")),
    ],
)
def test_what_is_wrong_with_a_variant_is_one_line(plan_sparse, entry, message):
    with pytest.raises(UserError, match=message) as error:
        plan_sparse({"v": entry})
    assert "\n" not in str(error.value)


def test_a_language_that_bm25s_does_not_stem_is_refused(configured):
    entry = {"of": "pydocs", "source": "dissimilar", "language": "de"}
    config = configured("bm25", {"engine": "bm25s"}) | {"datasets": {"german": entry}}
    plan = Plan(config, ROOT)
    with pytest.raises(
        UserError,
        match="datasets.german.language is de, and bm25s stems English alone; set bm25.analyzer",
    ):
        plan.planner.run("bm25", "test", "here", "german")
    assert plan.planner.run("bm25.none", "test", "here", "german").kind == "bm25"


def test_more_dimensions_of_lsi_than_passages_are_refused(configured):
    def plan(dimensions):
        config = configured("datasets", {"mine": {"of": "pydocs", "source": "dissimilar"}})
        config["datasets"]["mine"]["counts"] = {"passages": 1200}
        config["sparse"] = {"latent": {"similarity": {"type": "lsi", "dimensions": dimensions}}}
        return Plan(config, ROOT).planner.run("latent", "test", "here", "mine")

    assert plan(1199).upstream["lsi"].params == LsiParams(dimensions=1199)
    line = "sparse.latent.similarity.dimensions is 1200, but dataset mine has 1,200 passages; allowed: below 1,200"
    with pytest.raises(UserError, match=line) as error:
        plan(1200)
    assert "\n" not in str(error.value)


def test_what_a_grid_costs_follows_from_its_points(configured):
    # 10 dev queries of the 500 are asked 2 x 3 times; a query costs for itself what 12 million passages add to it.
    config = configured("sparse", {"best": {"tuned": True, "engine": "bm25s"}})
    config["bm25"] = {"tune": {"k1": [1, 2], "b": [0.1, 0.2, 0.3], "queries": 10}}
    stage = find_run(Plan(config, ROOT), "best").upstream["tuned"]
    size = Volumes(1000, {"dev": 500}, {"passage": 60.0, "query": 8.0})
    depth = stage.values["depth"]
    about = Setting(
        lambda _: size, lambda _: pytest.fail("no encoder is asked for"), ExecutionSettings()
    )
    assert estimate_tune_bm25(stage, about).rows == (
        ("bm25", pytest.approx(6 * 10 * 12.001)),
        ("hits", 6 * 10 * depth),
    )
    assert estimate_bm25s(stage.upstream["bm25s"], about).rows == (("indexed", 1000),)
