"""The audits as stages: what each reads, what becomes of names and splits that are not there, and new labels."""

import re
from pathlib import Path

import pytest
import yaml

from tandem.contrib.audits.plan import (
    enter_dissimilar,
    list_judges,
    list_systems,
    plan_llm_judge,
    plan_noise,
    plan_pool,
    plan_relabelling,
    plan_similar_queries,
)
from tandem.errors import UserError
from tandem.extras.planning import find_originals
from tandem.plan.graph import upstream_first
from tandem.plan.plan import Plan
from tandem.plan.planner import Planners

ROOT = Path(__file__).parents[3]
MEMBERS = ["ce_bm25neg", "ce_deneg"]
ENSEMBLE = {"ensembles": {"both": {"of": MEMBERS}}}


@pytest.fixture
def planned(configured):
    """`planned(keys, **more)`: the default's plan with these keys."""
    return lambda keys, **more: Plan(configured() | keys | more, ROOT)


BY_COMPARING = {
    "models": {"duo": {"like": "ce_bm25neg", "compares": True, "train": {"loss": "pointwise"}}},
    "comparisons": {"best": {"by": "duo"}},
}
GENERATED = {
    "generators": {"t5": {"source": "hub", "name": "org/t5", "revision": "main"}},
    "generations": {"asked": {"by": "t5"}},
    "expansions": {"longer": {"from": "asked", "of": "bm25"}},
}

BROKEN = {
    "datasets": {"broken": {"source": "perturbed", "of": "pydocs", "kinds": ["swap"]}},
    "perturbed": {"swapped": {"of": "de_bm25neg", "dataset": "broken", "kind": "swap"}},
}


@pytest.mark.parametrize(
    ("keys", "system"),
    [
        ({"sparse": {"expanded": {"rm3": {}}}}, "expanded"),
        ({"fusions": {"both": {"of": ["bm25", "de_bm25neg"]}}}, "both"),
        ({}, "minilm"),
        ({}, "minilm@hnsw"),
        ({"encoders": {"own": {"source": "hub", "name": "org/own", "pooling": "cls"}}}, "own"),
        (GENERATED, "longer"),
        (BY_COMPARING, "bm25+best"),
        ({"scorers": {"overlap": {"scorer": "word_overlap"}}}, "bm25+overlap"),
        ({"runs": {"released": {"paths": {"test": "run.trec"}}}}, "released"),
        ({}, "given"),
        (BROKEN, "swapped"),
    ],
)
def test_systems_of_all_sorts_are_audited(planned, keys, system):
    ctx = planned(keys, audits={"systems": ["bm25", system]}).planner.ctx
    assert list_systems(ctx, "pydocs") == ["bm25", system]


def test_what_a_system_finds_for_broken_queries_is_pooled_for_the_queries_as_they_were(planned):
    plan = planned(BROKEN, audits={"systems": ["bm25", "swapped"], "judges": [], "retriever": None})
    pool = plan.view("audits").pool()
    runs = [stage for role, stage in pool.upstream.items() if role.startswith("run")]
    assert [stage.kind for stage in runs] == ["bm25", "restore_queries"]
    assert {stage.dataset for stage in runs} == {"pydocs"}


def test_an_encoder_as_published_alone_is_audited(beir, plan_of):
    datasets = {"d": {"source": "beir", "path": beir("d", ["test"])}}
    pool = plan_of(datasets, "d", audits={"systems": ["minilm"]}).view("audits").pool()
    assert pool.upstream["run.0"].name == "minilm.test"


@pytest.mark.parametrize(
    ("keys", "system", "model"),
    [
        ({}, "de_bm25neg@hnsw", "de_bm25neg"),
        ({"fusions": {"both": {"of": ["bm25", "bm25+ce_bm25neg"]}}}, "both", "ce_bm25neg"),
        (BY_COMPARING, "bm25+best", "duo"),
    ],
)
def test_a_system_whose_model_cannot_be_trained_is_left_out_by_a_line(
    beir, plan_of, keys, system, model
):
    datasets = {"d": {"source": "beir", "path": beir("d", ["test"])}}
    planned = plan_of(datasets, "d", audits={"systems": ["bm25", system]}, **keys)
    reason = f"{system} is left out: dataset d has no training queries for {model}"
    assert planned.check("audits") == [f"audits.systems: {reason}; name another with train_on"]
    assert list_systems(planned.planner.ctx, "d") == ["bm25"]
    alone = plan_of(datasets, "d", audits={"systems": [system]}, **keys)
    with pytest.raises(UserError, match=re.escape(reason) + ".*; without it there is none"):
        alone.check("audits")


def test_systems_by_default_are_left_out_in_silence(beir, plan_of):
    planned = plan_of({"d": {"source": "beir", "path": beir("d", ["test"])}}, "d")
    assert planned.check("audits") == []
    assert list_systems(planned.planner.ctx, "d") == ["bm25"]


def test_a_model_that_is_trained_on_a_dataset_of_its_own_is_audited(beir, plan_of):
    datasets = {
        name: {"source": "beir", "path": beir(name, [split])}
        for name, split in (("d", "test"), ("e", "train"))
    }
    own = {"models": {"de_bm25neg": {"dataset": "e"}}}
    planned = plan_of(datasets, "d", audits={"systems": ["bm25", "de_bm25neg"]}, **own)
    assert list_systems(planned.planner.ctx, "d") == ["bm25", "de_bm25neg"]
    assert list_judges(planned.planner.ctx, "d") == []


def test_an_encoder_as_published_proposes_pairs_of_queries(beir, plan_of):
    planned = plan_of(
        {"d": {"source": "beir", "path": beir("d", ["train", "test"])}},
        "d",
        audits={"retriever": "minilm", "judges": []},
    )
    vectors = plan_similar_queries(planned.planner.ctx, "d").upstream["vectors.train"]
    assert vectors.upstream["model"].kind == "untrained"


@pytest.mark.parametrize("name", ["bge-reranker-base", "de_bm25", "bm25"])
def test_only_a_dual_encoder_proposes_pairs_of_queries(planned, name):
    reranker = {"source": "hub", "name": "BAAI/bge-reranker-base", "revision": "main"}
    with pytest.raises(UserError, match=f"audits.retriever: {name} is not a dual encoder; "):
        planned({"rerankers": {"bge-reranker-base": reranker}}, audits={"retriever": name})


def test_a_published_cross_encoder_judges(planned):
    hub = {"source": "hub", "name": "cross-encoder/ms-marco-MiniLM-L6-v2", "revision": "main"}
    ctx = planned({"rerankers": {"mini": hub}}, audits={"judges": ["mini"]}).planner.ctx
    assert list_judges(ctx, "pydocs") == ["mini"]


def test_an_ensemble_judges_in_audits(planned):
    ensemble, members = (
        planned(ENSEMBLE, audits={"judges": judges}) for judges in (["both"], MEMBERS)
    )
    assert ensemble.view("audits").pool().digest == members.view("audits").pool().digest
    ctx = planned(ENSEMBLE, audits={"systems": ["bm25", "bm25+both"]}).planner.ctx
    assert list_systems(ctx, "pydocs") == ["bm25", "bm25+both"]


def test_a_language_model_grades_what_nobody_judged(planned):
    judge = {"model": "gpt", "endpoint": {"url": "http://localhost:8000/v1", "key": "THE_KEY"}}
    plan, plain = planned({}, audits={"llm_judge": judge}), planned({})
    stages = plan.view("audits").stages()
    stage = plan_llm_judge(plan.planner.ctx, "pydocs")
    pool = plan.view("audits").pool()
    assert stage.upstream["pool"] is pool
    assert stage.upstream["run.1"] is pool.upstream["run.1"]
    assert stage.execution["endpoint"]["key"] == "THE_KEY"
    assert "THE_KEY" not in stage.args
    assert plan.placement.gpus("judge_llm", stage.key) == 0
    by_it = [score for score in stages if score.upstream.get("labels") is stage]
    assert [score.upstream["run"].name for score in by_it] == ["bm25.test", "de_bm25neg.test"]
    assert all(score.upstream["subset"] is pool for score in by_it)
    others = [other.key for other in stages if other not in by_it]
    assert others == [other.key for other in plain.view("audits").stages()]
    with pytest.raises(
        UserError, match="audits.llm_judge.model is tiny, neither a folder nor organisation/name"
    ):
        planned({}, audits={"llm_judge": {"model": "tiny"}})


def test_similar_queries_may_have_judges_of_their_own(beir, plan_of):
    matcher = {"audits": {"similar_queries": {"judges": ["quora-matcher"]}}}
    planned = plan_of(
        {"d": {"source": "beir", "path": beir("d", ["train", "test"])}}, "d", **matcher
    )
    judge = plan_similar_queries(planned.planner.ctx, "d").upstream["judge.0"]
    assert (judge.kind, judge.upstream["encoder"].values["name"]) == (
        "reranker",
        "cross-encoder/quora-roberta-base",
    )
    assert planned.view("audits").pool().upstream["judge.0"].kind == "model"


@pytest.mark.parametrize(
    ("train", "decides"),
    [
        ({"loss": "pointwise"}, True),
        ({"loss": "listwise"}, False),
        ({"loss": "pointwise", "distil": {"from": "ms-marco-minilm-l6", "loss": "listmle"}}, False),
    ],
)
def test_a_cross_encoder_that_only_orders_lists_does_not_say_what_is_similar(
    train, decides, beir, plan_of
):
    """Of a listwise loss no score is enough: the vectors' cosine decides, and its verdicts are calibrated."""
    entry = {"source": "beir", "path": beir("d", ["train", "test"]), "dev_from_train": None}
    planned = plan_of({"d": entry}, "d", models={"ce_bm25neg": {"train": train}})
    similar = plan_similar_queries(planned.planner.ctx, "d")
    assert ("judge.0" in similar.upstream) == decides
    assert similar.values["threshold"] == (0.5 if decides else 0.8)
    pool = planned.view("audits").pool()
    assert pool.upstream["judge.0"].name == "ce_bm25neg"
    assert pool.values.get("calibrate", False) == (not decides)


def test_audits_with_training_queries(beir, plan_of):
    entry = {"source": "beir", "path": beir("d", ["train", "test"]), "dev_from_train": None}
    planned = plan_of({"d": entry}, "d")
    similar = plan_similar_queries(planned.planner.ctx, "d")
    assert set(similar.upstream) == {"dataset", "vectors.train", "vectors.test"}
    assert similar.values["splits"] == ["test"]
    rows = {row.system: stage for row, stage in planned.tables["dureader_retrieval/table6"]}
    assert {stage.upstream["subset"].digest for stage in rows.values()} == {similar.digest}
    without = rows["without similar queries"].upstream["run"].upstream["model"].upstream["dataset"]
    assert (without.dataset, without.values["source"]) == ("d-dissimilar", "dissimilar")
    assert without.upstream["similar"] is similar


@pytest.mark.parametrize(
    ("made", "others"),
    [
        ({"source": "unlabelled", "share": 0.4}, ["dev", "test"]),
        ({"source": "perturbed", "split": "train", "kinds": ["case", "order"]}, ["dev", "test"]),
        ({"source": "joined", "split": "train", "positions": [1, 4]}, ["dev", "test"]),
        ({"source": "perturbed", "kinds": ["case"]}, ["dev", "test", "test_case"]),
    ],
)
def test_what_models_learn_from_is_not_among_the_queries_that_others_resemble(
    planned, made, others
):
    plan = planned({"datasets": {"made": {**made, "of": "pydocs"}}, "dataset": "made"})
    similar = plan_similar_queries(plan.planner.ctx, "made")
    assert similar.values["splits"] == others
    vectors = {role for role in similar.upstream if role.startswith("vectors.")}
    assert vectors == {f"vectors.{split}" for split in ("train", *others)}


def test_a_source_says_which_of_its_splits_are_copies_whatever_they_are_called(planned):
    queries = {"train": "a.tsv", "train_case": "b.tsv"}
    datasets = {
        "own": {"source": "files", "path": "absent", "queries": queries},
        "long": {"source": "joined", "of": "pydocs", "split": "train", "positions": [1]},
        "broken": {"source": "perturbed", "of": "long", "split": "train_p1", "kinds": ["case"]},
        "both": {"source": "union", "of": ["long", "pydocs"]},
        "squad": {
            "source": "squad",
            "path": "absent",
            "files_of": {"train": "a.json", "test": "b.json"},
            "queries_of": {"test": "c.json"},
        },
    }
    ctx = planned({"datasets": datasets}).planner.ctx
    assert find_originals(ctx, "own", "train_case") == {"train_case"}  # no copy, but by its name
    assert find_originals(ctx, "long", "train_p2on") == {"train"}
    assert find_originals(ctx, "broken", "train_p1_case") == {"train"}  # a copy of a copy
    assert find_originals(ctx, "both", "train_p1") == {"train"}
    assert find_originals(ctx, "both", "test") == {"test"}
    assert find_originals(ctx, "squad", "test") == {"test"}  # its `queries_of` names files


@pytest.mark.parametrize(
    "keys",
    [
        {"train_on": "clean"},
        {"dataset": "clean"},
        {"train_on": "few", "datasets": {"few": {"source": "unlabelled", "of": "clean", "share": 0.1}}},
    ],
)  # fmt: skip
def test_models_are_trained_without_similar_queries_that_a_model_of_all_queries_finds(
    configured, keys
):
    clean = {"clean": {"source": "dissimilar", "of": "pydocs"}}
    config = configured() | keys
    config["datasets"] = configured()["datasets"] | clean | keys.get("datasets", {})
    planner = Planners(config, ROOT).base
    learned_from = planner.model("de_bm25neg", "systems").upstream["dataset"]
    data = planner.dataset("clean")
    assert data in upstream_first([learned_from])
    similar = data.upstream["similar"]
    default = Planners(configured(), ROOT).base
    assert similar.key == plan_similar_queries(default.ctx, "pydocs").key
    audited_by = similar.upstream["vectors.train"].upstream["model"]
    assert audited_by.key == default.model("de_bm25neg", "systems").key


def test_pools_are_as_deep_as_the_runs_where_nothing_else_is_said(beir, plan_of):
    datasets = {"d": {"source": "beir", "path": beir("d", ["train", "test"])}}
    for depth, pooled in ((100, 50), (20, 20)):
        planned = plan_of(datasets, "d", depth={"test": depth}, rerank={"depth": 10})
        assert plan_pool(planned.planner.ctx, "d").values["depth"] == pooled
    deep = {"false_negatives": {"depth": 30}}
    planned = plan_of(datasets, "d", depth={"test": 20}, rerank={"depth": 10}, audits=deep)
    with pytest.raises(UserError, match="audits.false_negatives.depth is 30, but runs on test"):
        plan_pool(planned.planner.ctx, "d")
    datasets = {"d": {"source": "beir", "path": beir("dev", ["train", "dev"])}}
    planned = plan_of(datasets, "d", depth={"test": 20}, rerank={"depth": 10}, audits=deep)
    with pytest.raises(UserError, match="runs on dev are 20 deep; raise depth.test"):
        plan_pool(planned.planner.ctx, "d")


@pytest.mark.parametrize("ignored", [True, False])
def test_audits_leave_out_what_scores_leave_out(beir, plan_of, ignored):
    entry = {"source": "beir", "path": beir("d", ["train", "test"])}
    planned = plan_of({"d": entry | {"ignore_identical_ids": ignored}}, "d")
    ctx = planned.planner.ctx
    for plan in (plan_pool, plan_noise):
        assert plan(ctx, "d").params.ignore_identical_ids == ignored


def test_corrected_labels_reuse_the_runs(beir, plan_of):
    planned = plan_of({"d": {"source": "beir", "path": beir("d", ["train", "test"])}}, "d")
    rows = {row.system: stage for row, stage in planned.tables["dureader_retrieval/figure2"]}
    assert rows["BM25, corrected"].upstream["run"] is rows["BM25"].upstream["run"]
    assert rows["BM25, corrected"].upstream["labels"].kind == "relabel"


@pytest.mark.parametrize(
    ("table", "role"),
    [
        ("figure2", "labels"),
        ("figure2", "subset"),
        ("table6", "subset"),
        ("table6_others", "others"),
    ],
)
def test_all_seeds_are_scored_by_the_same_labels_and_queries(beir, plan_of, table, role):
    entry = {"source": "beir", "path": beir("d", ["train", "test"]), "dev_from_train": None}
    planned = plan_of({"d": entry}, "d", seeds=[1, 2])
    scores = planned.tables[f"dureader_retrieval/{table}"]
    assert {row.seed for row, _ in scores} == {1, 2}
    audits = {stage.upstream[role].key for _, stage in scores if role in stage.upstream}
    assert len(audits) == 1


@pytest.mark.parametrize(
    ("layout", "own", "role"),
    [
        ({}, {"labels": "corrected"}, "labels"),
        ({"subset": "similar"}, {}, "subset"),
        ({"subset": "others"}, {}, "others"),
        ({"subset": "pooled"}, {}, "subset"),
    ],
)
def test_all_rows_are_scored_by_the_same_labels_and_queries_whatever_they_change(
    configured, tmp_path, layout, own, role
):
    """The row changes the audits' own retriever and judge."""
    changed = {"models.de_bm25neg.train.lr": 1e-6, "models.ce_bm25neg.train.lr": 1e-6}
    rows = [
        {"system": "DE", "run": "de_bm25neg", **own},
        {"system": "Slow", "run": "de_bm25neg", "with": changed, **own},
    ]
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"title": "Mine", "rows": rows, **layout}))
    planned = Plan(configured("tables", [str(file)]), ROOT)
    before, slow = (stage for _, stage in planned.tables["mine"])
    assert before.upstream[role] is slow.upstream[role]
    assert before.upstream["run"] is not slow.upstream["run"]


def test_a_verdict_that_is_corrected_in_a_long_sheet_corrects_the_labels_again(
    beir, plan_of, tmp_path
):
    datasets = {"d": {"source": "beir", "path": beir("d", ["train", "test"])}}
    sheet, keys = tmp_path / "sheet.csv", set()
    for verdict in (0, 1):
        others = "q1,d1,0\n" * 20_000
        sheet.write_text(f"query_id,doc_id,verdict\n{others}q1,d1,{verdict}\n{others}")
        planned = plan_of(datasets, "d", audits={"false_negatives": {"sheet": str(sheet)}})
        keys.add(plan_relabelling(planned.planner.ctx, "d").key)
    assert len(keys) == 2


def test_where_answers_decide_no_labels_are_corrected(beir, plan_of):
    entry = {"source": "beir", "path": beir("qa", ["train", "test"]), "relevance": "answers"}
    scores = [
        part
        for part in plan_of({"qa": entry}, "qa").view("audits").manifests()
        if Path(part).parts[2] == "score"
    ]
    assert len(scores) == 2  # BM25 and the dual encoder, each once
    with pytest.raises(UserError, match="audits.llm_judge: answers decide what is relevant in qa"):
        plan_of({"qa": entry}, "qa", audits={"llm_judge": {"model": "org/judge"}}).view(
            "audits"
        ).manifests()
    labelled = plan_of({"qa": entry | {"relevance": "qrels"}}, "qa").view("audits").manifests()
    assert len([part for part in labelled if Path(part).parts[2] == "score"]) == 6


def test_rows_on_corrected_labels_are_absent_where_answers_decide(beir, plan_of):
    entry = {"source": "beir", "path": beir("qa", ["train", "test"]), "relevance": "answers"}
    tables = plan_of({"qa": entry}, "qa").tables
    reason = "labels: corrected needs qrels, but dataset qa has answers"
    assert {row.absent for row in tables.absent["dureader_retrieval/figure2"]} == {reason}
    assert "BM25" in {row.system for row, _ in tables["dureader_retrieval/figure2"]}


def test_rows_on_corrected_labels_are_absent_where_nobody_corrects_them(beir, plan_of):
    datasets = {"d": {"source": "beir", "path": beir("d", ["train", "test"])}}
    tables = plan_of(datasets, "d", audits={"judges": []}).tables
    reason = "labels: corrected needs audits.false_negatives.sheet or audits.judges"
    assert {row.absent for row in tables.absent["dureader_retrieval/figure2"]} == {reason}
    assert "BM25" in {row.system for row, _ in tables["dureader_retrieval/figure2"]}


def test_a_group_cannot_be_audited(beir, plan_of):
    members = {
        "a": {"source": "beir", "path": beir("a", ["test"])},
        "g": {"source": "group", "of": ["a"]},
    }
    with pytest.raises(
        UserError, match="g is a group: it has scores, but no passages; name one of"
    ):
        plan_of(members, "g").view("audits").manifests()


def test_a_dataset_entered_for_one_variant_is_not_in_another(configured):
    planners = Planners(configured(), ROOT)
    enter_dissimilar(planners.of({"seed": 1}).ctx, "pydocs-dissimilar", planners.base.ctx, "pydocs")
    assert "pydocs-dissimilar" in planners.of({"seed": 1}).ctx.datasets
    assert "pydocs-dissimilar" not in planners.of({"seed": 2}).ctx.datasets
    assert "pydocs-dissimilar" not in planners.base.ctx.datasets
