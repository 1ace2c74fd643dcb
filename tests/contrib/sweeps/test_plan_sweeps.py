"""Sweeps as planned: their points, what is shared, and the one-line error of each mistake."""

import json
from pathlib import Path

import pytest
from messages import unknown_key

from tandem.config.merging import merged, read_yaml
from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.plan.graph import upstream_first

ROOT = Path(__file__).parents[3]
LIST_SIZE = "models.rocketqav2.train.list_size"
RUNS = ["rocketqav2.retriever", "bm25"]
PRINTED = {"point": {LIST_SIZE: 4}, "system": "bm25", "value": 37.0, "source": "Table 1"}


@pytest.fixture
def planned(configured):
    """`planned(**options)`: the plan of the default configuration with one sweep, `mine`."""

    def make(**options):
        return FullPlan(
            configured(
                "sweeps", {"mine": {"grid": {LIST_SIZE: [4, 8]}, "systems": RUNS} | options}
            ),
            ROOT,
        )

    return make


def keys(plan, kind):
    """The keys of a kind's stages that the sweep's scores are made of."""
    matches, left = set(), [score.stage for score in plan.view("sweeps").planned["mine"].scored]
    while left:
        stage = left.pop()
        matches |= {stage.key} if stage.kind == kind else set()
        left += stage.upstream.values()
    return matches


def test_points_are_every_combination_and_share_what_they_agree_on(planned):
    plan = planned(grid={LIST_SIZE: [4, 8, "16"], "models.rocketqav2.train.lr": ["1e-5", 1e-4]})
    sweep = plan.view("sweeps").planned["mine"]
    assert [tuple(point.values()) for point in sweep.points] == [
        (4, 1e-5), (4, 1e-4), (8, 1e-5), (8, 1e-4), (16, 1e-5), (16, 1e-4),
    ]  # fmt: skip
    assert len({name for name in keys(plan, "model") if name.startswith("rocketqav2-")}) == 6
    # those that it starts from and is taught by are trained once
    assert len(keys(plan, "model")) == 6 + 3
    assert len(keys(plan, "bm25")) == 2  # of the training queries and of the test queries
    assert len(keys(plan, "lucene")) == len(keys(plan, "dataset")) == 1
    assert len(sweep.scores) == 6 + 1  # BM25 is the same at every point
    assert sweep.baseline == {LIST_SIZE: 4, "models.rocketqav2.train.lr": 1e-5}


@pytest.mark.parametrize(
    ("train", "key", "values"),
    [
        ({"budget_minutes": 5}, "steps", [5, 50]),
        ({"budget_minutes": 5}, "epochs", [1, 2]),
        ({"budget_minutes": 5, "sizes": "data"}, "lr", [1e-5, 1e-4]),
        ({"budget_minutes": 5, "sizes": "data"}, "list_size", [4, 8]),
    ],
)
def test_what_a_budget_decides_is_no_point_of_a_sweep(configured, train, key, values):
    config = configured("models.de_bm25neg.train", train)
    config["sweeps"] = {
        "mine": {"grid": {f"models.de_bm25neg.train.{key}": values}, "systems": ["de_bm25neg"]}
    }
    with pytest.raises(
        UserError, match=f"models.de_bm25neg.train.{key}: none of the systems depends on it"
    ):
        FullPlan(config, ROOT)


def test_a_point_that_is_the_default_is_the_tables_own_run(planned, configured):
    plan = planned()
    there = {stage.folder for rows in plan.tables.values() for _, stage in rows}
    (eight,) = {
        score.stage.folder
        for score in plan.view("sweeps").planned["mine"].scored
        if score.point == {LIST_SIZE: 8}
    } & {
        score.stage.folder
        for score in plan.view("sweeps").planned["mine"].scored
        if score.system == RUNS[0]
    }
    assert eight in there


def test_seeds_are_the_configurations_unless_told(planned, configured):
    assert {score.seed for score in planned().view("sweeps").planned["mine"].scored} == {42}
    assert {
        score.seed for score in planned(seeds=[3, 4]).view("sweeps").planned["mine"].scored
    } == {3, 4}
    config = configured("sweeps", {"mine": {"grid": {LIST_SIZE: [4, 8]}, "systems": RUNS}}) | {
        "seeds": [1, 2]
    }
    assert {
        score.seed for score in FullPlan(config, ROOT).view("sweeps").planned["mine"].scored
    } == {1, 2}


def test_seeds_of_one_model_leave_the_others_alone(planned):
    everywhere = planned(seeds=[42, 1])
    there = planned(seeds=[42, 1], seeds_at="models.rocketqav2.train.seed")
    assert len(keys(everywhere, "model")) == 2 * (2 + 3)
    assert len(keys(there, "model")) == 2 * 2 + 3


def test_the_configurations_seed_may_touch_no_system(planned):
    sweep = planned(grid={"bm25.k1": [0.5, 1.0]}, systems=["bm25"], seeds=[1, 2])
    assert len(sweep.view("sweeps").planned["mine"].scores) == 2  # one a point, whatever the seed


def test_the_seed_may_be_on_the_grid(planned):
    sweep = planned(grid={"seed": [1, 2, 3]}, systems=["de_bm25neg"]).view("sweeps").planned["mine"]
    assert [score.seed for score in sweep.scored] == [42, 42, 42]
    assert len(sweep.scores) == 3


def test_a_seed_of_with_is_that_of_every_point_whatever_the_configurations_seeds(configured):
    sweep = {
        "grid": {LIST_SIZE: [4, 8]},
        "systems": ["de_bm25neg+ce_bm25neg", *RUNS],
        "with": {"seed": 7},
    }
    plan = FullPlan(configured("sweeps", {"mine": sweep}) | {"seeds": [42, 1]}, ROOT)
    models = {
        stage.values["train"]["seed"]
        for stage in plan.stages.values()
        if stage.key in keys(plan, "model")
    }
    assert models == {7}


def test_points_of_several_depths_show_the_measures_that_all_of_them_have(planned):
    deep = {"grid": {"depth.test": [100, 20]}, "systems": ["bm25"]}
    planned(**deep, measures=["RR@10"])
    with pytest.raises(UserError, match=r"sweeps\.mine\.measures: R@100 is not scored"):
        planned(**deep, measures=["R@100"])


def test_a_value_may_be_a_whole_section(planned):
    grid = {"models.de_bm25neg.representation": ["single", {"type": "sparse", "top": 32}]}
    sweep = planned(grid=grid, systems=["de_bm25neg"]).view("sweeps").planned["mine"]
    assert [score.stage.upstream["run"].kind for score in sweep.scored] == [
        "retrieve",
        "retrieve_sparse",
    ]
    assert [row["point"] for row in json.loads(sweep.to_json())["rows"]] == [
        {path: value} for path, values in grid.items() for value in values
    ]


def test_it_may_search_elsewhere(planned):
    sweep = json.loads(
        planned(dataset="squad", split="dev").view("sweeps").planned["mine"].to_json()
    )
    assert (sweep["dataset"], sweep["split"], sweep["stands_in_for"]) == ("squad", "dev", "")
    assert all(row["scores"].startswith("results/squad/score/") for row in sweep["rows"])


def test_what_is_told_to_the_command_does_not_depend_on_the_order_of_planning(planned):
    assert (
        planned().view("sweeps").planned["mine"].to_json()
        == planned().view("sweeps").planned["mine"].to_json()
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"grid": {"models.rocketqav2.train.list_siez": [1]}},
            unknown_key("grid.models.rocketqav2.train.list_siez: models.rocketqav2.train.list_siez"),
        ),
        ({"grid": {LIST_SIZE: [4, "many"]}}, f'grid.{LIST_SIZE}: {LIST_SIZE} is "many"; allowed: integer'),
        ({"grid": {"models.rocket.train.lr": [1]}}, "grid.models.rocket.train.lr: models.rocket.train.lr: models has"),
        ({"grid": {}}, "grid is empty"),
        ({"grid": {LIST_SIZE: []}}, f"grid.{LIST_SIZE} is []"),
        ({"grid": {LIST_SIZE: [4, "4"]}}, f"grid.{LIST_SIZE} names a value twice; list each once"),
        # it had no effect
        ({"with": {LIST_SIZE: 8}}, f"grid.{LIST_SIZE}: with has {LIST_SIZE} too; leave one of them out"),
        ({"grid": {"execution.shards": [1, 2]}}, "grid.execution.shards: none of the systems depends on it"),
        ({"x": "seed"}, "x: is seed; allowed: models"),
        ({"measures": ["nDCG@11"]}, "measures: nDCG@11 is not scored; did you mean nDCG@10?"),
        ({"printed": [PRINTED | {"measure": "MRR@10"}]}, "printed.0.measure: MRR@10 is written RR@10 here"),
        ({"baseline": {LIST_SIZE: 5}}, f"baseline: {LIST_SIZE}=5 is not a point; the grid has {LIST_SIZE}=[4, 8]"),
        ({"baseline": {"seed": 5}}, "baseline: seed is not in the grid"),
        ({"grid": {"seed": [1, 2]}, "seeds": [3]}, "seeds: grid has seed too"),
        ({"with": {"seed": 1}, "seeds": [3]}, "seeds: with has seed too"),
        (
            {"grid": {"score.measures": [["RR@10"], ["AP"]]}, "systems": ["bm25"]},
            "grid: the points have no measure in common",
        ),
        ({"seeds_at": "models.rocketqav2.train.sed"}, unknown_key("seeds_at: models.rocketqav2.train.sed")),
        (
            {
                "grid": {"models.de_bm25neg.train.lr": [1e-5, 1e-4]}, "systems": ["de_bm25neg"], "seeds": [1, 2],
                "seeds_at": "models.rocketqav2.train.seed",
            },
            "seeds_at: none of the systems depends on models.rocketqav2.train.seed",
        ),
        ({"with": {"depth.test": 0}}, "with: depth.test is 0; allowed: ≥ 1"),
        ({"dataset": "pydoc"}, "dataset: pydoc is unknown; did you mean pydocs?"),
        ({"colour": "red"}, unknown_key("colour")),
        (
            {"grid": {"dataset": ["pydocs", "squad"]}, "systems": ["bm25"]},
            "grid: points are compared query by query, but search pydocs test, squad",
        ),
        (
            {"grid": {"datasets.pydocs.test_queries": [100, 200]}, "systems": ["bm25"]},
            "grid.datasets.pydocs.test_queries: points are compared query by query",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_with_the_place(planned, options, line):
    with pytest.raises(UserError) as error:
        planned(**options)
    assert str(error.value).startswith(f"sweeps.mine.{line}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"grid": {LIST_SIZE: [4, 400]}},
            f"at {LIST_SIZE}=400: models.rocketqav2.train.list_size is 400, but",
        ),
        ({"systems": ["nobody"]}, f"at {LIST_SIZE}=4: sweeps.mine.systems: nobody is not a model"),
    ],
)
def test_what_cannot_be_had_at_a_point_names_it(planned, options, line):
    with pytest.raises(UserError) as error:
        planned(**options)
    assert str(error.value).startswith(f"sweeps.mine: {line}")


def test_two_sweeps_with_one_target_are_refused(configured):
    entry = {"grid": {LIST_SIZE: [4, 8]}, "systems": RUNS}
    with pytest.raises(UserError) as error:
        FullPlan(configured("sweeps", {"depth-1": entry, "depth_1": entry}), ROOT)
    assert (
        str(error.value)
        == "sweeps.depth_1 has the target sweep_depth_1 of sweeps.depth-1; name it otherwise"
    )


def test_figure_4_ships_at_the_papers_lengths_and_small(configured):
    plan = FullPlan(configured(), ROOT)
    assert plan.files_of_all() == []
    assert plan.view("sweeps").requested == []
    assert plan.view("sweeps").files_of(["rocketqav2_figure4"]) == [
        "results/sweeps/rocketqav2_figure4.json"
    ]
    figure, small = (
        plan.view("sweeps").planned[f"rocketqav2_figure4{name}"] for name in ("", "_small")
    )
    assert figure.values == {LIST_SIZE: [8, 16, 32, 64, 128]}
    assert json.loads(figure.to_json())["stands_in_for"] == "msmarco"
    assert set(small.values[LIST_SIZE]) == {2, 4, 8, 16}
    assert plan.view("sweeps").by_target["rocketqav2_figure4"] == ["rocketqav2_figure4"]


def test_an_encoder_trained_for_fewer_dimensions_is_cut_without_training_it_again(configured):
    small = ROOT / "config/small"
    plan = FullPlan(merged(configured(), read_yaml(small / "dimensions.yaml")), ROOT)
    trained = plan.planner.model("matryoshka", "here").values["train"]["matryoshka"]
    config = merged(configured(), read_yaml(small / "matryoshka.yaml"))
    # for its folder
    config["encoders"]["matryoshka"] = read_yaml(ROOT / "config/encoders/minilm.yaml")["minilm"]
    sweep = FullPlan(config, ROOT).view("sweeps").planned["matryoshka"]
    stages = upstream_first(point.stage for point in sweep.scored)
    assert [stage.values["dim"] for stage in stages if stage.kind == "untrained"] == [384, *trained]
    assert "model" not in {stage.kind for stage in stages}
    assert (
        sweep.values["encode.dtype"]
        == plan.view("sweeps").planned["dimensions"].values["encode.dtype"]
    )


def test_a_shipped_sweep_without_its_models_is_a_mistake_only_where_it_is_wanted(configured):
    config = configured() | {"recipes": ["dureader_retrieval"], "tables": []}
    config["models"] = {
        name: spec for name, spec in config["models"].items() if name != "rocketqav2"
    }
    plan = FullPlan(config, ROOT)
    with pytest.raises(
        UserError, match=r"rocketqav2_figure4 cannot be made: config/sweeps/rocketqav2_figure4.yaml"
    ):
        plan.view("sweeps").files_of(["rocketqav2_figure4"])
