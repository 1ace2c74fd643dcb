"""Aggregated runs as stages: what is searched, how deep, what is upstream; and every mistake in one line."""

import pytest
from messages import unknown_key

from tandem import ROOT
from tandem.config.loading import load_settings
from tandem.config.merging import merged, read_yaml
from tandem.errors import UserError
from tandem.plan.plan import Plan

DE = {"of": "de_bm25neg", "windows": "cut"}
CE = {"of": "bm25", "by": "ce_bm25neg", "windows": "cut"}


@pytest.fixture
def config(configured, folder):
    """`config(aggregations, cut={…}, long={…}, **more)`: the default on documents `long` with windows `cut`."""

    def make(aggregations, cut=None, long=None, **more):
        datasets = {
            "long": {"source": "beir", "path": folder, **(long or {})},
            "cut": {"source": "windows", "of": "long", **(cut or {})},
        }
        base = configured() | {"datasets": datasets | more.pop("datasets", {}), "dataset": "long"}
        return (
            base
            | {"aggregations": aggregations, "depth": {"train": 50, "dev": 80, "test": 200}}
            | more
        )

    return make


@pytest.fixture
def run(config):
    """`run(entry, split, …)`: the stage of an aggregated run called `x`."""

    def make(entry, split="test", **more):
        return Plan(config({"x": entry}, **more), ROOT).planner.run("x", split, "here")

    return make


def test_a_dual_encoder_searches_the_windows_deeper_and_is_aggregated(run):
    aggregate = run(DE | {"method": "kmax", "k": 2}, cut={"factor": 4})
    assert (aggregate.kind, aggregate.dataset, aggregate.name) == ("aggregate", "long", "x.test")
    assert aggregate.values == {
        "method": "kmax",
        "k": 2,
        "depth": 200,
        "split": "test",
        "missing": "lowest",
    }
    retrieve = aggregate.upstream["run"]
    assert (retrieve.kind, retrieve.dataset, retrieve.values["depth"]) == ("retrieve", "cut", 800)
    assert retrieve.upstream["passages"].upstream["tokens"].dataset == "cut"
    # the model was trained on documents, by runs over documents as deep as ever
    model = retrieve.upstream["passages"].upstream["model"]
    assert model.dataset == "long"
    assert model.upstream["candidates"].upstream["run"].values["depth"] == 50
    assert aggregate.upstream["windows"].upstream["of"] is aggregate.upstream["dataset"]
    assert run(DE, "dev").upstream["run"].values["depth"] == 800


def test_a_cross_encoder_scores_the_windows_of_the_documents_that_a_run_finds(run):
    aggregate = run(CE)
    assert (aggregate.kind, aggregate.dataset, aggregate.values["method"]) == (
        "rerank_windows",
        "long",
        "max",
    )
    assert (aggregate.values["depth"], aggregate.values["scores"]) == (10, "raw")
    assert aggregate.upstream["run"].dataset == "long"
    assert aggregate.upstream["judge.0"].name == "ce_bm25neg"
    assert aggregate.upstream["judge_tokens.0"].dataset == "cut"
    assert run(CE | {"method": "sum"}).values["scores"] == "probability"
    assert run(CE | {"method": "sum", "scores": "raw"}).values["scores"] == "raw"


def test_several_cross_encoders_score_windows(run):
    aggregate = run(CE | {"by": "both"}, ensembles={"both": {"of": ["ce_bm25neg", "ce_deneg"]}})
    assert [aggregate.upstream[f"judge.{i}"].name for i in range(2)] == ["ce_bm25neg", "ce_deneg"]
    assert aggregate.upstream["judge_tokens.1"].dataset == "cut"


def test_only_what_means_something_to_the_method_is_in_the_key(run):
    assert run(DE | {"k": 2}).digest == run(DE).digest
    assert run(DE | {"method": "kmax", "k": 2}).digest != run(DE | {"method": "kmax"}).digest
    assert run(DE | {"missing": "zero"}).digest == run(DE).digest
    assert run(DE | {"method": "sum"}).values["missing"] == "zero"
    assert (
        run(DE | {"method": "sum", "missing": "lowest"}).digest
        != run(DE | {"method": "sum"}).digest
    )


def test_an_aggregated_run_stands_wherever_a_run_may(config):
    models = config({})["models"] | {
        "second": {"like": "de_bm25neg", "candidates": {"from": "x", "depth": 50}},
        "pupil": {"like": "de_bm25neg", "train": {"distil": {"from": "y"}}},
    }
    fusions = {"fused": {"of": ["bm25", "x"]}}
    planner = Plan(config({"x": DE, "y": CE}, models=models, fusions=fusions), ROOT).planner
    assert planner.model("second", "here").upstream["candidates"].upstream["run"].name == "x.train"
    assert (
        planner.model("pupil", "here").upstream["teacher"].upstream["run"].kind == "rerank_windows"
    )
    assert planner.run("fused", "test", "here").upstream["run.1"].kind == "aggregate"
    behind = planner.run("x+ce_bm25neg", "test", "here")
    assert (behind.kind, behind.upstream["run"].name) == ("rerank", "x.test")
    assert planner.score("x", "here", "long").upstream["run"].kind == "aggregate"


def test_models_are_trained_on_windows(run, config):
    models = config({})["models"] | {"on_windows": {"like": "de_bm25neg", "dataset": "cut"}}
    aggregate = run(DE | {"of": "on_windows"}, models=models)
    assert aggregate.upstream["run"].upstream["passages"].upstream["model"].dataset == "cut"


@pytest.mark.parametrize(
    ("options", "unit", "language"),
    [
        ({}, "words", "en"),
        ({"language": "zh"}, "characters", "zh"),
        ({"language": "ja"}, "characters", "ja"),
    ],
)
def test_language_and_unit_are_those_of_the_documents(config, options, unit, language):
    spec = load_settings(config({}, long=options), ROOT).datasets["cut"]
    assert (spec.unit, spec.language, spec.analyzer, spec.relevance) == (
        unit,
        language,
        "default",
        "qrels",
    )
    assert (spec.length, spec.stride) == (150, 75)
    own = load_settings(
        config({}, long=options, cut={"unit": "words", "language": "de"}), ROOT
    ).datasets["cut"]
    assert (own.unit, own.language) == ("words", "de")


def test_how_deep_runs_go_is_no_part_of_the_windows(config):
    keys = {Plan(config({}, cut={"factor": n}), ROOT).planner.dataset("cut").key for n in (1, 9)}
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            DE | {"windows": "cuts"},
            "aggregations.x.windows is cuts, which is not a dataset of source windows; did you mean cut?",
        ),
        (
            DE | {"windows": "long"},
            "aggregations.x.windows is long, which is not a dataset of source windows",
        ),
        (
            DE | {"method": "mean"},
            'aggregations.x.method is "mean"; allowed: first, max, sum, kmax',
        ),
        (DE | {"k": 0}, "aggregations.x.k is 0; allowed: ≥ 1"),
        (DE | {"of": "de_bm"}, "aggregations.x.of: de_bm is not a model"),
        (DE | {"of": "x"}, "aggregations.x.of: x searches windows of long (cut), not of cut"),
        (CE | {"of": "x"}, "aggregations form a cycle: x -> x"),
        (
            CE | {"by": "de_bm25neg"},
            "aggregations.x.by: de_bm25neg is a dual model, needed is cross or joint",
        ),
        (
            CE | {"missing": "zero"},
            "aggregations.x.missing is zero, but aggregations.x.by scores every window",
        ),
        (DE | {"scores": "raw"}, "aggregations.x.scores is raw, but there is no aggregations.x.by"),
        ({"of": "bm25"}, "aggregations.x.windows is missing"),
        (DE | {"factor": 3}, unknown_key("aggregations.x.factor")),
    ],
)
def test_a_wrong_entry_is_one_line(config, entry, line):
    with pytest.raises(UserError) as error:
        Plan(config({"x": entry}), ROOT)
    (message,) = str(error.value).splitlines()
    assert line in message


@pytest.mark.parametrize("name", ["de_bm25neg", "bm25.long", "given", "de_bm25neg.retriever"])
def test_a_name_that_is_taken_is_refused(config, name):
    with pytest.raises(UserError, match=f"aggregations.{name} has the name of "):
        Plan(config({name: DE}), ROOT)


def test_a_name_is_a_name(config):
    with pytest.raises(UserError, match=r"aggregations.a\+b: a name is letters, digits"):
        Plan(config({"a+b": DE}), ROOT)


@pytest.mark.parametrize(
    ("cut", "line"),
    [
        (
            {"length": 100, "stride": 150},
            "datasets.cut.stride is 150, which skips words between windows of length 100; allowed: ≤ 100",
        ),
        ({"length": 0}, "datasets.cut.length is 0; allowed: ≥ 1"),
        ({"of": "short"}, "datasets.cut.of is short, which is not a dataset"),
        ({"of": "cut"}, "datasets form a cycle: cut -> cut"),
        ({"titles": "none"}, 'datasets.cut.titles is "none"; allowed: repeat, first'),
        ({"tokens_": 3}, unknown_key("datasets.cut.tokens_")),
    ],
)
def test_windows_that_cannot_be_cut_are_one_line(config, cut, line):
    with pytest.raises(UserError) as error:
        Plan(config({}, cut=cut), ROOT)
    (message,) = str(error.value).splitlines()
    assert line in message


def test_windows_of_other_documents_are_refused_where_they_are_asked_for(config):
    plan = Plan(config({"x": DE}, datasets={"other": {"source": "windows", "of": "cut"}}), ROOT)
    with pytest.raises(UserError, match=r"here: x searches windows of long \(cut\), not of pydocs"):
        plan.planner.run("x", "test", "here", "pydocs")


def test_the_example_resolves_and_all_its_rows_share_two_encodings_of_the_passages(configured):
    plan = Plan(merged(configured(), read_yaml(ROOT / "config/long_documents.yaml")), ROOT)
    assert plan.tables.files() == ["results/tables/long_documents.csv"]
    rows = {row.system: stage.upstream["run"] for row, stage in plan.tables["long_documents"]}
    assert [rows[name].kind for name in ("DE", "DE (MaxP)", "CE", "CE (MaxP)")] == [
        "retrieve", "aggregate", "rerank", "rerank_windows"
    ]  # fmt: skip
    searched = [
        rows[f"DE ({name})"].upstream["run"] for name in ("FirstP", "MaxP", "SumP", "K-MaxP")
    ]
    assert len({stage.key for stage in searched}) == 1


def test_windows_of_what_no_query_finds_of_its_own_id_are_not_found_either(config):
    windows = Plan(config({}, long={"ignore_identical_ids": True}), ROOT).planner.dataset("cut")
    assert windows.values["excludes_own"] is True
    assert "excludes_own" not in Plan(config({}), ROOT).planner.dataset("cut").values
