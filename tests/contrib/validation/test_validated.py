"""Checkpoints as stages: the chain, its validations, what shares what, and every mistake in one line."""

from pathlib import Path

import pytest
from messages import unknown_key
from tiny_project import write_qrels_folder

from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.plan.plan import Plan
from tandem.stages.data import DatasetParams
from tandem.stages.evaluation import ScoreParams

ROOT = Path(__file__).parents[3]
DE, DOTTED = "models/de_bm25neg/train", "models.de_bm25neg.train"


@pytest.fixture
def plan(configured, overridden):
    """`plan({a/b/c: value, …})`: the default's plan with these keys; dev runs are deep enough for the usual depth."""

    def make(keys):
        config = configured("depth.dev", 100)
        return Plan(overridden(config, keys), ROOT)

    return make


def of_kind(plan, kind):
    """The stages of a kind that the wanted tables need, in the order of their planning."""
    waiting, needed = plan.tables.requested_scores(), set()
    while waiting:
        stage = waiting.pop()
        if id(stage) not in needed:
            needed.add(id(stage))
            waiting += stage.upstream.values()
    return [stage for (k, _), stage in plan.stages.items() if k == kind and id(stage) in needed]


def test_four_segments_and_the_start_are_validated_on_one_reduced_dataset(plan):
    planned = plan({f"{DE}/checkpoints": 4, f"{DE}/choose": "dev"})
    chain = of_kind(planned, "checkpoint")
    assert [stage.name for stage in chain] == [f"de_bm25neg.{n}" for n in range(5)]
    assert [stage.values["until"] for stage in chain] == [[n, 4] for n in range(5)]
    assert [stage.upstream.get("after") for stage in chain] == [None, None, *chain[1:4]]
    model = planned.planner.ctx.entry("models", "de_bm25neg")
    assert list(model.upstream) == [
        f"{role}.{n}" for role in ("checkpoint", "validation") for n in range(5)
    ]
    scores = [model.upstream[f"validation.{n}"] for n in range(5)]
    (reduced,) = {score.upstream["dataset"] for score in scores}
    assert reduced.name == "pydocs-reduced-bm25-100"
    assert reduced.params == DatasetParams(source="reduced", depth=100, others=0)
    assert {role: stage.name for role, stage in reduced.upstream.items()} == {
        "of": "pydocs",
        "run": "bm25.dev",
    }
    for score, checkpoint in zip(scores, chain, strict=True):
        assert score.params == ScoreParams(measures=("RR@10",), split="dev")
        passages = score.upstream["run"].upstream["passages"]
        assert (passages.upstream["model"], passages.upstream["dataset"]) == (checkpoint, reduced)
    # the token ids too are made once
    assert (
        len({s.upstream["run"].upstream["passages"].upstream["tokens"].folder for s in scores}) == 1
    )


def test_the_last_checkpoint_waits_for_no_validation_but_the_report_shows_them(plan):
    planned = plan({f"{DE}/checkpoints": 2})
    model = planned.planner.ctx.entry("models", "de_bm25neg")
    assert list(model.upstream) == ["checkpoint.1", "checkpoint.2"]
    rows = [it.row for it in planned.view("fidelity").list_checkpoints(full=False)]
    assert [(row["model"], row["part"], row["full"]) for row in rows] == [
        ("de_bm25neg", "dual", "")
    ] * 2
    assert [Path(row["checkpoint"]).name for row in rows] == [
        s.key for s in of_kind(planned, "checkpoint")
    ]


def test_choosing_otherwise_trains_nothing_again(plan):
    def chain(more):
        return [
            stage.folder for stage in of_kind(plan({f"{DE}/checkpoints": 2} | more), "checkpoint")
        ]

    there = chain({})
    assert chain({f"{DE}/choose": "dev"})[1:] == there  # after the start, which is validated too
    assert chain({"validation": {"measure": "nDCG@10", "depth": 50}}) == there
    assert chain({f"{DE}/lr": 1e-6}) != there


def test_no_checkpoints_is_as_before(plan, configured):
    default, explicit = (
        FullPlan(config, ROOT)
        for config in (configured(), configured(f"{DOTTED}.checkpoints", None))
    )
    assert default.stages.keys() == explicit.stages.keys()
    assert not of_kind(default, "checkpoint")
    assert default.view("fidelity").list_checkpoints() == []
    with pytest.raises(UserError, match="no model of the wanted tables has train.checkpoints"):
        default.view("fidelity").compared()


def test_cross_encoders_re_rank_the_reference_run_and_both_parts_of_a_joint_model_are_validated(
    plan,
):
    joint = {"models/rocketqav2/train/checkpoints": 2, "models/rocketqav2/train/choose": "dev"}
    planned = plan(joint | {"models/rocketqav2/validation": {"part": "cross", "queries": 50}})
    rows = [it.row for it in planned.view("fidelity").list_checkpoints()]
    assert [(row["part"], Path(row["reduced"]).name.rpartition("-")[0]) for row in rows] == [
        ("cross", "given+rocketqav2.0.dev"),
        ("cross", "given+rocketqav2.1.dev"),
        ("cross", "given+rocketqav2.2.dev"),
        ("dual", "rocketqav2.0.dev"),
        ("dual", "rocketqav2.1.dev"),
        ("dual", "rocketqav2.2.dev"),
    ]
    model = planned.planner.ctx.entry("models", "rocketqav2")
    assert model.upstream["validation.1"].folder == rows[1]["reduced"]
    run = model.upstream["validation.1"].upstream["run"]
    assert run.upstream["model"].name == "rocketqav2.1"
    assert (run.upstream["run"].kind, run.dataset) == (
        "given",
        "pydocs-reduced-de_bm25neg-100-queries50",
    )
    # on the full corpus: the reference run itself, on the same fifty queries
    whole = planned.stages.find("score", Path(rows[1]["full"]).name)
    assert (whole.dataset, whole.upstream["run"].upstream["run"].name) == (
        "pydocs",
        "de_bm25neg.dev",
    )
    assert whole.upstream["subset"].values["dev_queries"] == 50


def test_the_average_rank_reads_the_vectors_and_searches_nothing(plan):
    keys = {f"{DE}/checkpoints": 2, f"{DE}/choose": "dev"}
    planned = plan(keys | {"validation": {"method": "average_rank", "depth": 30, "others": 30}})
    model = planned.planner.ctx.entry("models", "de_bm25neg")
    value = model.upstream["validation.2"]
    assert (value.kind, value.values, set(value.upstream)) == (
        "average_rank", {"split": "dev"}, {"dataset", "passages", "queries"}
    )  # fmt: skip
    assert value.dataset == "pydocs-reduced-bm25-30-others30"
    assert not [stage for stage in of_kind(planned, "retrieve") if stage.dataset == value.dataset]


def test_the_average_rank_ignores_identical_ids_where_the_dataset_says_so(plan):
    keys = {f"{DE}/checkpoints": 2, f"{DE}/choose": "dev", "validation": {"method": "average_rank"}}
    planned = plan(keys | {"datasets": {"pydocs": {"ignore_identical_ids": True}}})
    value = planned.planner.ctx.entry("models", "de_bm25neg").upstream["validation.2"]
    assert value.values == {"split": "dev", "ignore_identical_ids": True}


def test_a_checkpoint_is_a_system_and_a_start(plan):
    keys = {f"{DE}/checkpoints": 3, "models/ce_bm25neg/init": "de_bm25neg.2"}
    planned = plan(keys | {"models/ce_deneg/candidates": {"from": "de_bm25neg.1", "depth": 50}})
    chain = of_kind(planned, "checkpoint")
    first, second = (
        planned.planner.ctx.entry("models", name) for name in ("ce_bm25neg", "ce_deneg")
    )
    assert first.upstream["start"] is chain[1]
    assert (
        second.upstream["candidates"].upstream["run"].upstream["passages"].upstream["model"]
        is chain[0]
    )
    score = planned.planner.score("de_bm25neg.3", "here")
    assert (score.name, score.values["split"]) == ("de_bm25neg.3.test", "test")
    with pytest.raises(UserError, match=r"here: de_bm25neg.4 is not a model"):
        planned.planner.score("de_bm25neg.4", "here")


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({f"{DE}/checkpoints": 0}, f"{DOTTED}.checkpoints is 0; allowed: ≥ 1"),
        ({f"{DE}/checkpoints": 41}, f"{DOTTED}.checkpoints is 41, but there are only 40 steps"),
        (
            {f"{DE}/checkpoints": 10**8},
            f"{DOTTED}.checkpoints is 100000000, but there are only 40 steps",
        ),
        ({"validation": {"depht": 3}}, unknown_key("validation.depht", "depth")),
        (
            {"models/de_bm25neg/validation": {"fidelity": True}},
            "models.de_bm25neg.validation.fidelity is not a known",
        ),
        (
            {f"{DE}/checkpoints": 2, "depth/dev": 50},
            "datasets.pydocs-reduced-bm25-100.depth (validation.depth) is 100, but runs on dev are 50 deep; "
            "raise depth.dev or lower it",
        ),
        (
            {f"{DE}/checkpoints": 2, "validation": {"measure": "RR@500"}},
            "validation.measure: RR@500 looks deeper than runs on dev go (100); raise depth.dev",
        ),
        (
            {
                f"{DE}/checkpoints": 2,
                "datasets/pydocs/relevance": "answers",
                "validation": {"measure": "nDCG@10"},
            },
            "validation.measure: nDCG@10 needs qrels, but dataset pydocs has answers; allowed: Success@k, RR@k, P@k",
        ),
        (
            {f"{DE}/checkpoints": 2, "validation": {"from": "de_bm25neg"}},
            "models form a cycle: de_bm25neg -> ",
        ),
        (
            {f"{DE}/checkpoints": 2, "validation": {"from": "bm26"}},
            "validation.from: bm26 is not a model; did you mean bm25?",
        ),
        (
            {f"{DE}/checkpoints": 2, "models/de_bm25neg/validation": {"from": "bm26"}},
            "models.de_bm25neg.validation.from: bm26 is not a model; did you mean bm25?",
        ),
        (
            {f"{DE}/checkpoints": 2, "models/de_bm25neg.2": {"like": "de_bm25neg"}},
            "models.de_bm25neg.2 has the name of checkpoint 2 of models.de_bm25neg; name it otherwise",
        ),
        (
            {
                f"{DE}/checkpoints": 2,
                f"{DE}/choose": "dev",
                "models/de_bm25neg.0": {"like": "de_bm25neg"},
            },
            "models.de_bm25neg.0 has the name of checkpoint 0 of models.de_bm25neg; name it otherwise",
        ),
    ],
)
def test_a_mistake_is_one_line(plan, keys, line):
    with pytest.raises(UserError) as error:
        plan(keys)
    assert any(line in text for text in str(error.value).splitlines()), str(error.value)


def test_a_training_in_one_piece_validates_on_the_run_of_its_negatives(plan):
    def validation(**keys):
        models = {f"{DE}/{key}": value for key, value in keys.items()}
        stage = plan(
            models | {"models/de_bm25neg/candidates": keys.pop("candidates", {"from": "bm25"})}
        )
        return stage.planner.ctx.entry("models", "de_bm25neg").upstream.get("validation")

    assert validation() is None  # the recipe's: the end counts
    assert validation(choose="dev").name == "bm25.dev"
    assert validation(validate_every=5).name == "bm25.dev"
    planned = plan(
        {f"{DE}/choose": "dev", "models/de_bm25neg/candidates": {"from": "random", "depth": 50}}
    )
    assert (
        planned.planner.ctx.entry("models", "de_bm25neg").upstream["validation"].name == "bm25.dev"
    )
    joint = plan({"models/rocketqav2/train/choose": "dev"}).planner.ctx.entry(
        "models", "rocketqav2"
    )
    assert joint.upstream["validation"].name == "de_bm25neg.dev"


def test_where_no_dev_split_is_wanted_training_queries_are_set_apart(plan, tmp_path):
    mine = {"source": "beir", "path": write_qrels_folder(tmp_path, "one", ("train", "test"))}
    keys = {"datasets/mine": mine, "dataset": "mine", f"{DE}/choose": "dev"}
    model = plan(keys).planner.ctx.entry("models", "de_bm25neg")
    assert model.upstream["validation"].name == "bm25.dev"  # drawn from train
    keys["datasets/mine"] = mine | {"dev_from_train": None}
    assert "validation" not in plan(keys).planner.ctx.entry("models", "de_bm25neg").upstream
    with pytest.raises(
        UserError,
        match=r"de_bm25neg.train.choose is dev and checkpoints is 2: they are validated on",
    ):
        plan(keys | {f"{DE}/checkpoints": 2}).planner.model("de_bm25neg", "here")


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        (
            {"models/de_bm25neg/validation/method": "average_rank"},
            [
                "models.de_bm25neg.validation.method has no effect: models.de_bm25neg.train.checkpoints is null"
            ],
        ),
        (
            {"validation/measure": "nDCG@10"},
            ["validation.measure has no effect: no model has train.checkpoints"],
        ),
        ({"validation/measure": "nDCG@10", f"{DE}/checkpoints": 4}, []),
        (
            {f"{DE}/checkpoints": 4, f"{DE}/patience": 2, f"{DE}/choose": "dev"},
            [
                "models.de_bm25neg.train.patience has no effect: models.de_bm25neg.train.checkpoints is 4"
            ],
        ),
        (
            {f"{DE}/choose": "last", f"{DE}/patience": 2, f"{DE}/validation_depth": 10},
            [
                f"models.de_bm25neg.train.{key} has no effect: models.de_bm25neg.train.choose is last"
                for key in ("validation_depth", "patience")
            ],
        ),
        ({f"{DE}/choose": "last", f"{DE}/validation_depth": 10, f"{DE}/validate_every": 5}, []),
        ({f"{DE}/choose": "dev", f"{DE}/validation_depth": 10, f"{DE}/patience": 2}, []),
        ({"models/de_bm25neg/validation/from": "bm25"}, []),  # a training validates on its top, too
    ],
)
def test_keys_of_a_validation_that_never_happens_are_named(plan, keys, lines):
    assert [line for line in plan(keys).check("all") if "has no effect" in line] == lines


@pytest.mark.parametrize(
    ("validates", "deciding"),
    [
        ({}, []),
        ({"validate_every": 5}, ["validation_queries", "validation_depth"]),
        ({"choose": "dev"}, ["validation_queries", "validation_depth", "patience"]),
    ],
)
def test_what_a_validation_reads_is_in_the_key_where_there_is_one(plan, validates, deciding):
    keys = {f"{DE}/choose": "last"} | {f"{DE}/{key}": value for key, value in validates.items()}
    model = plan(keys).planner.ctx.entry("models", "de_bm25neg")
    for key in ("validation_queries", "validation_depth", "patience"):
        other = plan(keys | {f"{DE}/{key}": 7}).planner.ctx.entry("models", "de_bm25neg")
        assert (other.key != model.key) == (key in deciding)
