"""Variants of BM25: which stages they share, what they leave as it was, and what is wrong with them in one line."""

from pathlib import Path

import pytest
from messages import unknown_key
from tiny_project import find_run

from tandem.errors import UserError
from tandem.plan.plan import Plan
from tandem.stages.data import Bm25Params, LuceneParams

ROOT = Path(__file__).parents[2]


def test_plain_bm25_is_as_it_was(plan_sparse):
    plan = plan_sparse({"rm3": {"rm3": {}}})
    bm25 = find_run(plan, "bm25")
    assert bm25.params == Bm25Params(k1=0.9, b=0.4, depth=1000, split="test")
    assert bm25.upstream.keys() == {"dataset", "lucene"}
    assert bm25.upstream["lucene"].params == LuceneParams(analyzer="default", language="en")


def test_variants_say_what_differs_and_share_the_rest(plan_sparse):
    plan = plan_sparse(
        {
            "same": {},
            "wide": {"k1": 2},
            "expanded": {"rm3": {"fb_docs": 5}},
            "split": {"fields": {"title": 2, "text": 1}},
        }
    )
    bm25, same, wide = (find_run(plan, name) for name in ("bm25", "same", "wide"))
    assert same is bm25
    assert (wide.name, wide.values["k1"], wide.upstream["lucene"]) == (
        "wide.test",
        2.0,
        bm25.upstream["lucene"],
    )
    expanded, split = (find_run(plan, name) for name in ("expanded", "split"))
    assert expanded.values["rm3"] == {"fb_terms": 10, "fb_docs": 5, "original_query_weight": 0.5}
    assert expanded.upstream["lucene"].params == LuceneParams(vectors=True)
    assert split.values["fields"] == {"title": 2.0, "text": 1.0}
    assert split.upstream["lucene"].params == LuceneParams(fields=True)


def test_a_variant_stands_wherever_a_run_does(configured):
    config = configured("sparse", {"expanded": {"rm3": {}}})
    config["models"]["pupil"] = {"like": "de_bm25neg", "candidates": {"from": "expanded"}}
    config["models"]["taught"] = {"like": "de_bm25neg", "train": {"distil": {"from": "expanded"}}}
    config["fusions"] = {"both": {"of": ["bm25", "expanded"]}}
    planner = Plan(config, ROOT).planner
    pupil, taught = planner.model("pupil", "here"), planner.model("taught", "here")
    assert pupil.upstream["candidates"].upstream["run"].name == "expanded.train"
    assert taught.upstream["teacher"].upstream["run"].name == "expanded.train"
    judged, fused = (planner.run(name, "test", "here") for name in ("expanded+ce_bm25neg", "both"))
    assert "expanded.test" in [stage.name for stage in judged.upstream.values()]
    assert {"bm25.test", "expanded.test"} <= {stage.name for stage in fused.upstream.values()}


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        ("ce_deneg", {}, "sparse.ce_deneg has the name of models.ce_deneg"),
        ("my bm25", {}, "sparse.my bm25: a name is letters, digits, '_', '-' and '.'"),
        ("a+b", {}, r"sparse.a\+b: a name is letters"),
        ("bm25", {}, "sparse.bm25 has the name of a run that every configuration has"),
        ("bm25.none", {}, "sparse.bm25.none has the name of a run that every configuration has"),
        (
            "v",
            {"fields": {"title": 1}, "field_b": {"title": 0.3}},
            "sparse.v.field_b: Lucene .* sparse.v.engine to bm25s",
        ),
        (
            "v",
            {"formula": "bm25+"},
            "sparse.v.formula is bm25., which Lucene lacks; set sparse.v.engine to bm25s",
        ),
        (
            "v",
            {"rm3": {}, "fields": {"text": 1}},
            "sparse.v has rm3 and fields; RM3 reads passages as a whole",
        ),
        (
            "v",
            {"tuned": True, "b": 0.1},
            "sparse.v.b is set, but sparse.v.tuned chooses it; leave one of them out",
        ),
        ("v", {"fields": {"body": 1}}, unknown_key("sparse.v.fields.body")),
        ("v", {"fields": {}}, "sparse.v.fields searches no field"),
        (
            "v",
            {"fields": {"title": {"weight": 2, "b": 0.3}}},
            "sparse.v.fields.title is a section, .* in field_b",
        ),
        ("v", {"fields": {"title": 0.5}}, "sparse.v.fields.title is 0.5; allowed: ≥ 1"),
        ("v", {"rm3": {"fb_docs": 51}}, "sparse.v.rm3.fb_docs is 51; allowed: ≤ 50"),
        ("v", {"match": "all", "rm3": {}}, "sparse.v has rm3 and match all"),
        ("v", {"engine": "solr"}, "sparse.v.engine is .solr.; allowed: lucene, bm25s, null"),
    ],
)
def test_what_is_wrong_with_a_variant_is_one_line(plan_sparse, name, entry, message):
    with pytest.raises(UserError, match=message) as error:
        plan_sparse({name: entry})
    assert "\n" not in str(error.value)
