"""A fusion is a run like any other; its settings are in the key, tuned ones by the stage that tunes them."""

from pathlib import Path

import pytest
from messages import unknown_key
from tiny_project import write_qrels_folder

from tandem.config.loading import load_settings
from tandem.config.merging import merged, read_yaml
from tandem.contrib.fusion.options import METHODS, FuseParams, TuneFusionParams, fusion_grid
from tandem.errors import UserError
from tandem.plan.graph import Stages
from tandem.plan.plan import Plan, check_all
from tandem.plan.planner import Planner
from tandem.stages.retrieval import fusion

ROOT = Path(__file__).parents[3]
BOTH = ["bm25", "de_bm25neg"]
TUNED = {"of": BOTH, "method": "weighted"}


@pytest.fixture
def planned(configured):
    """`planned(fusions, **changed)`: the plan of the default with fusions."""

    def make(fusions, **changed):
        return Plan({**configured(), "fusions": fusions, **changed}, ROOT)

    return make


@pytest.fixture(scope="module")
def laid(configured):
    """`laid(fusions)`: the settings of the default with fusions, not planned yet."""
    return lambda fusions: load_settings({**configured(), "fusions": fusions}, ROOT)


@pytest.fixture
def fused(laid):
    """`fused(spec, split)`: the stage that a fusion of that entry is."""
    return lambda spec, split="test": Planner(laid({"both": spec}), Stages()).run(
        "both", split, "here"
    )


def test_a_fusion_reads_its_runs_on_its_split(fused):
    for split in ("train", "dev", "test"):
        stage = fused({"of": BOTH}, split)
        assert (stage.kind, stage.name) == ("fuse", f"both.{split}")
        assert stage.upstream.keys() == {"dataset", "run.0", "run.1"}
        assert [stage.upstream[f"run.{at}"].name for at in range(2)] == [
            f"bm25.{split}",
            f"de_bm25neg.{split}",
        ]
        depth = {"train": 50, "dev": 100, "test": 1000}[split]
        assert stage.params == FuseParams(method="rrf", k=60, depth=depth, split=split)


def test_tuned_weights_come_from_dev_whatever_the_split(fused):
    test, train = fused(TUNED), fused(TUNED, "train")
    tuned = test.upstream["tuned"]
    assert (tuned.kind, tuned.name) == ("tune_fusion", "both.dev")
    assert tuned.digest == train.upstream["tuned"].digest
    assert tuned.params == TuneFusionParams(
        method="weighted", split="dev", measure="RR@10", step=0.1, depth=100
    )
    assert [tuned.upstream[f"run.{at}"].name for at in range(2)] == ["bm25.dev", "de_bm25neg.dev"]
    assert test.params == FuseParams(
        method="weighted", normalize="min_max", depth=1000, split="test"
    )


def test_told_weights_are_a_parameter_and_need_no_dev(fused):
    stage = fused(TUNED | {"weights": [1, "0.5"]})
    assert stage.values["weights"] == [1.0, 0.5]
    assert "tuned" not in stage.upstream
    assert stage.digest != fused(TUNED | {"weights": [0.5, 1]}).digest


def test_a_constant_is_tuned_where_it_is_null(fused):
    stage = fused({"of": BOTH, "k": None, "tune": {"k": [5, 60], "measure": "nDCG@10"}})
    assert stage.values["k"] is None
    assert (stage.upstream["tuned"].values["k"], stage.upstream["tuned"].values["measure"]) == (
        [5.0, 60.0],
        "nDCG@10",
    )


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"k": 10}, False),
        ({"depth": 50}, False),
        ({"of": ["de_bm25neg", "bm25"]}, False),
        # what reciprocal ranks do not look at
        ({"normalize": "z_score", "tune": {"step": 0.5}}, True),
    ],
)
def test_settings_are_in_the_key_as_far_as_they_are_looked_at(fused, changed, same):
    there, other = fused({"of": BOTH}, "dev"), fused({"of": BOTH} | changed, "dev")
    assert (other.digest == there.digest) is same


def test_fusions_stand_wherever_a_run_does(planned, tmp_path):
    layout = tmp_path / "mine.yaml"
    layout.write_text(
        "title: T\nrows:\n- {system: F, run: both}\n- {system: R, run: both+ce_bm25neg}\n- {system: O, run: outer}\n"
    )
    fusions = {"both": TUNED, "outer": {"of": ["both", "bm25+ce_bm25neg", "bm25.krovetz"]}}
    plan = planned(fusions, tables=[str(layout)])
    scores = {row.system: stage for row, stage in plan.tables["mine"]}
    assert {name: stage.upstream["run"].kind for name, stage in scores.items()} == {
        "F": "fuse",
        "R": "rerank",
        "O": "fuse",
    }
    assert scores["R"].upstream["run"].upstream["run"] is scores["F"].upstream["run"]
    outer = scores["O"].upstream["run"].upstream
    assert [outer[f"run.{at}"].kind for at in range(3)] == ["fuse", "rerank", "bm25"]


def test_a_model_draws_from_a_fusion_and_learns_from_one(planned, configured):
    pupil = {
        "like": "de_bm25neg",
        "candidates": {"from": "both"},
        "train": {"distil": {"from": "both"}},
    }
    plan = planned({"both": TUNED}, models={**configured()["models"], "pupil": pupil})
    upstream = plan.planner.model("pupil", "here").upstream
    assert upstream["candidates"].upstream["run"].name == "both.train"
    assert upstream["teacher"].upstream["run"] is upstream["candidates"].upstream["run"]


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"of": ["bm25"]}, "fusions.both.of is ['bm25']; two runs or more are fused"),
        ({"of": ["bm25", "bm26"]}, "fusions.both.of: bm26 is not a model"),
        (
            {"of": ["bm25", "ce_deneg"]},
            "fusions.both.of: ce_deneg is a cross model, needed is dual or joint",
        ),
        (
            {"of": ["bm25", "rocketqav2.reranker"]},
            "fusions.both.of: rocketqav2.reranker is the other part of rocketqav2; needed is rocketqav2.retriever",
        ),
        (
            {"of": ["bm25", "bm25+rocketqav2.retriever"]},
            "fusions.both.of: rocketqav2.retriever is the other part of rocketqav2; needed is rocketqav2.reranker",
        ),
        ({"of": ["bm25", "bm25.klingon"]}, "fusions.both.of: bm25.klingon has an unknown analyzer"),
        ({"of": ["bm25", "both"]}, "fusions form a cycle: both -> both"),
        (
            TUNED | {"weights": [1]},
            "fusions.both.weights is [1.0]; allowed: 2 numbers, one a run, not all 0",
        ),
        (
            TUNED | {"weights": [0, 0]},
            "fusions.both.weights is [0.0, 0.0]; allowed: 2 numbers, one a run, not all 0",
        ),
        (
            {"of": BOTH, "weights": [1, 2]},
            "fusions.both.weights is [1.0, 2.0], but rrf takes none; used by weighted",
        ),
        (
            TUNED | {"tune": {"measure": "RR@200"}},
            "fusions.both.tune.measure: RR@200 looks deeper than the 100 passages of a query on dev; raise depth.dev",
        ),
        (
            TUNED | {"depth": 5},
            "fusions.both.tune.measure: RR@10 looks deeper than the 5 passages of a query on dev; "
            "raise depth.dev and fusions.both.depth",
        ),
        (
            {"of": ["bm25", "de_bm25neg"], "method": "weighted", "weights": [float("inf"), 1]},
            "fusions.both.weights.0 is inf; allowed: finite numbers below 2^53",
        ),
        (TUNED | {"tune": {"step": 0.3}}, "fusions.both.tune.step is 0.3, which does not divide 1"),
        (
            {"of": ["bm25"] * 6, "method": "weighted"},
            "fusions.both.tune.step is 0.1, which makes 3,003 combinations of 6 weights; allowed: 1,001",
        ),
    ],
)
def test_a_wrong_fusion_is_one_line(laid, spec, line):
    with pytest.raises(UserError) as error:
        check_all(laid({"both": spec}))
    (message,) = str(error.value).splitlines()
    assert line in message


def test_the_depth_of_the_split_that_is_reported_is_that_of_test(planned):
    tuned = TUNED | {"tune": {"measure": "RR@2000"}}
    line = "RR@2000 looks deeper than the 1000 passages of a query on dev; raise depth.test"
    with pytest.raises(UserError, match=line):
        planned({"both": tuned}, score={"split": "dev"})


def test_unknown_keys_and_values_are_one_line_each(planned):
    wrong = {
        "a": TUNED | {"weights": [1, -1]}, "b": TUNED | {"method": "combmnz"}, "c": TUNED | {"normalise": "none"},
        "d": {"method": "rrf"},
    }  # fmt: skip
    with pytest.raises(UserError) as error:
        planned(wrong)
    assert str(error.value).splitlines() == [
        "fusions.a.weights.1 is -1; allowed: ≥ 0",
        'fusions.b.method is "combmnz"; allowed: rrf, weighted',
        unknown_key("fusions.c.normalise", "normalize"),
        "fusions.d.of is missing",
    ]


def test_a_cycle_of_fusions_is_named(laid):
    with pytest.raises(UserError, match="fusions form a cycle: both -> other -> both"):
        check_all(laid({"both": {"of": ["bm25", "other"]}, "other": {"of": ["both", "bm25"]}}))


def test_a_model_that_draws_from_a_fusion_of_itself_is_a_cycle(planned, configured):
    models = {
        **configured()["models"],
        "pupil": {"like": "de_bm25neg", "candidates": {"from": "both"}},
    }
    with pytest.raises(
        UserError, match="entries form a cycle: models.pupil -> fusions.both -> models.pupil"
    ):
        planned({"both": {"of": ["bm25", "pupil"]}}, models=models)


def test_a_measure_below_the_fused_depth_is_refused(fused):
    assert fused({"of": BOTH, "depth": 20}, "train").values["depth"] == 20
    with pytest.raises(
        UserError, match=r"fusions.both.depth is 20, but Success@50 looks deeper; raise it, or set"
    ):
        fused({"of": BOTH, "depth": 20})


@pytest.mark.parametrize("run", ["both", "both+ce_bm25neg", "both+ce_bm25neg+ce_deneg"])
def test_a_column_below_the_fused_depth_is_refused(planned, tmp_path, run):
    layout = tmp_path / "mine.yaml"
    layout.write_text(
        f"{{title: Mine, columns: [{{measure: R@200}}], rows: [{{system: S, run: {run}}}]}}"
    )
    fusions = {"both": {"of": BOTH, "depth": 100}}
    keys = {"tables": [str(layout)], "depth": {"train": 50, "test": 300}}
    with pytest.raises(
        UserError,
        match=r"mine.yaml: the cutoff of R@200 is 200, but both goes only 100 deep; "
        r"raise fusions.both.depth",
    ):
        planned(fusions, **keys).check("all")
    fusions["both"]["depth"] = 200
    (_, score) = planned(fusions, **keys).tables["mine"][0]
    assert "R@200" in score.values["measures"]


@pytest.mark.parametrize(
    "name", ["bm25", "bm25.rrf", "given", "de_bm25neg", "rocketqav2.retriever"]
)
def test_a_fusion_has_a_name_of_its_own(laid, name):
    with pytest.raises(UserError, match=f"fusions.{name} has the name of "):
        check_all(laid({name: {"of": BOTH}}))


def test_a_fusion_is_not_looked_at_below_its_depth(planned, configured):
    short = {"both": {"of": BOTH, "depth": 20}}
    keys = {"score": {"measures": ["RR@10"]}, "tables": ["baseline"]}
    plan = planned(short, **keys, rerank={"depth": 30})
    with pytest.raises(
        UserError, match=r"rerank.depth is 30, but both goes only 20 deep; raise fusions.both.depth"
    ):
        plan.planner.run("both+ce_bm25neg", "test", "here")
    pupil = {"like": "de_bm25neg", "candidates": {"from": "both", "depth": 40}}
    with pytest.raises(
        UserError, match=r"models.pupil.candidates.depth is 40, but both goes only 20 deep"
    ):
        planned(short, **keys, models={**configured()["models"], "pupil": pupil})


def test_a_fusion_of_released_runs_needs_them_on_one_split_alone(planned, tmp_path):
    (tmp_path / "run").write_text("1 Q0 a 1 2 x\n")
    runs = {name: {"paths": {"train": str(tmp_path / "run")}} for name in ("one", "other")}
    plan = planned({"both": {"of": ["one", "other"]}}, runs=runs)
    assert plan.planner.run("both", "train", "here").upstream["run.0"].kind == "imported"
    with pytest.raises(UserError, match=r"runs.one.paths.test: missing; splits with a file: train"):
        plan.planner.run("both", "test", "here")


def test_where_nothing_can_be_tuned_the_table_says_so(planned, tmp_path):
    folder = write_qrels_folder(tmp_path / "mine", "one", ["test"])
    layout = tmp_path / "t.yaml"
    layout.write_text("title: T\nrows:\n- {system: F, run: both}\n")
    spec = {"of": ["bm25", "bm25.krovetz"], "method": "weighted"}
    mine = {
        "datasets": {"mine": {"source": "beir", "path": folder}},
        "dataset": "mine",
        "models": {},
    }
    plan = planned({"both": spec}, **mine, recipes=[], tables=[str(layout)])
    assert (
        plan.tables.missing["t"]
        == "fusions.both.tune.split: searches on split dev, but dataset mine has test"
    )
    assert planned(
        {"both": {**spec, "weights": [1, 2]}}, **mine, recipes=[], tables=[str(layout)]
    ).tables["t"]
    answers = {**mine["datasets"]["mine"], "relevance": "answers"}
    by_answers = planned(
        {"both": spec}, **{**mine, "datasets": {"mine": answers}}, recipes=[], tables=[str(layout)]
    )
    why = "fusions.both.weights is null: to be tuned, but dataset mine has answers and no qrels"
    assert why in by_answers.tables.missing["t"]


def test_the_tracked_example_is_planned():
    config = merged(read_yaml(ROOT / "config/config.yaml"), read_yaml(ROOT / "config/fusion.yaml"))
    plan = Plan(config, ROOT)
    assert plan.tables.files() == ["results/tables/fusion.csv"]
    kinds = [stage.upstream["run"].kind for _, stage in plan.tables["fusion"]]
    assert kinds == ["bm25", "retrieve", "fuse", "fuse", "fuse", "rerank", "rerank", "rerank"]


def test_every_method_that_has_keys_can_be_tuned():
    assert set(fusion) >= set(fusion_grid) == METHODS.keys()


@pytest.mark.parametrize(
    ("fusion", "line"),
    [
        (
            {"normalize": "z_score"},
            "fusions.f.normalize has no effect with method rrf; used by weighted",
        ),
        (
            {"method": "weighted", "weights": [1, 2], "k": 10},
            "fusions.f.k has no effect with method weighted; used by rrf",
        ),
        (
            {"tune": {"split": "train"}},
            "fusions.f.tune has no effect: fusions.f.k is set; with null it is tuned",
        ),
        ({"k": None, "tune": {"split": "train"}}, None),
    ],
)
def test_keys_that_a_method_does_not_look_at_are_named(planned, fusion, line):
    lines = planned({"f": {"of": ["bm25", "encoder"], **fusion}}).check("all")
    assert [text for text in lines if text.startswith("fusions")] == ([line] if line else [])
