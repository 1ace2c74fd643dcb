"""Lists drawn anew from what a dual encoder retrieves as it is trained: which link learns from which search."""

from pathlib import Path

import pytest

from tandem.config.merging import gathered
from tandem.errors import UserError
from tandem.plan.graph import upstream_first
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[3]
TRAIN = {"choose": "last", "steps": 8, "checkpoints": 4, "queries_per_batch": 2, "list_size": 3}


@pytest.fixture
def chain(configured):
    """`chain(lag, **train)`: the checkpoints of a model `own` by their numbers."""

    def make(lag, **train):
        model = {"objective": "dual", "train": TRAIN | train}
        model["candidates"] = {"from": "bm25", "depth": 20, "refresh": {"lag": lag}}
        planner = Plan(configured() | {"models": {"own": model}}, ROOT).planner
        planner.model("own", "here")
        return planner.ctx.checkpoints["own"]

    return make


def searched_by(stage):
    """The name of the model whose run a checkpoint's lists are drawn from; `bm25` of a run without a model."""
    run = stage.upstream["candidates"].upstream["run"]
    return (
        run.upstream["passages"].upstream["model"].name if "passages" in run.upstream else run.kind
    )


@pytest.mark.parametrize(
    ("lag", "expected"),
    [
        (0, ["bm25", "own.1", "own.2", "own.3"]),
        (1, ["bm25", "bm25", "own.1", "own.2"]),
        (9, ["bm25"] * 4),
    ],
)
def test_a_link_learns_from_the_search_that_is_so_many_links_behind(chain, lag, expected):
    links = chain(lag)
    assert [searched_by(links[number]) for number in (1, 2, 3, 4)] == expected
    assert [links[number].upstream.get("after") for number in (1, 2, 3, 4)] == [
        None,
        *(links[n] for n in (1, 2, 3)),
    ]
    assert len({links[number].values["train"]["steps"] for number in links}) == 1


def test_a_search_runs_beside_the_next_links_training(chain):
    links = chain(1)
    encoded = links[3].upstream["candidates"].upstream["run"].upstream["passages"]
    assert encoded.upstream["model"] is links[1]
    # neither needs the other
    assert encoded not in upstream_first([links[2]])
    assert links[2] not in upstream_first([links[3].upstream["candidates"]])
    in_turn = chain(0)[2]
    assert in_turn.upstream["candidates"].upstream["run"] in upstream_first([in_turn])


def test_the_start_that_dev_may_choose_learns_nothing(chain):
    links = chain(0, choose="dev")
    assert searched_by(links[0]) == "bm25"
    assert searched_by(links[2]) == "own.1"


def test_a_teacher_scores_each_links_own_lists(configured):
    model = {
        "objective": "dual",
        "candidates": {"from": "bm25", "depth": 20, "refresh": {"lag": 0}},
    }
    model["train"] = TRAIN | {"distil": {"from": "ce_bm25neg", "loss": "kl"}}
    planner = Plan(configured() | {"models": {"own": model}}, ROOT).planner
    planner.model("own", "here")
    for link in planner.ctx.checkpoints["own"].values():
        assert link.upstream["teacher"].upstream["candidates"] is link.upstream["candidates"]


def test_without_refresh_nothing_changes(configured):
    model = {"objective": "dual", "candidates": {"from": "bm25", "depth": 20}, "train": TRAIN}
    planner = Plan(configured() | {"models": {"own": model}}, ROOT).planner
    planner.model("own", "here")
    links = planner.ctx.checkpoints["own"]
    assert len({link.upstream["candidates"].key for link in links.values()}) == 1


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"train": TRAIN | {"checkpoints": None}}, "candidates.refresh needs train.checkpoints"),
        ({"train": TRAIN | {"steps": None}}, "candidates.refresh needs train.steps"),
        (
            {"train": TRAIN | {"budget_minutes": 5}},
            "candidates.refresh: train.budget_minutes is 5, by which each draw decides",
        ),
        ({"objective": "cross", "train": TRAIN}, "candidates.refresh is of dual encoders"),
        (
            {"candidates": {"from": "bm25", "also": [{"from": "bm25", "refresh": {}}]}},
            "candidates.also: lists that are joined stay as they are",
        ),
        (
            {
                "candidates": {
                    "from": "encoder",
                    "refresh": {},
                    "behind": {"than": "bm25", "depth": 15},
                }
            },
            "candidates.refresh: behind is set, by which each draw has other queries",
        ),
        (
            {"candidates": {"from": "bm25", "refresh": {"lag": -1}}},
            "candidates.refresh.lag is -1; allowed: ≥ 0",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(configured, model, line):
    own = {
        "objective": "dual",
        "candidates": {"from": "bm25", "depth": 20, "refresh": {}},
        "train": TRAIN,
    } | model
    with pytest.raises(UserError) as error:
        Plan(configured() | {"models": {"own": own}}, ROOT).planner.model("own", "here")
    assert line in str(error.value)


def test_ance_as_published_refreshes_beside_its_training():
    config = gathered([ROOT / "config/msmarco.yaml"], ROOT) | {
        "recipes": ["dureader_retrieval", "rocketqa", "rocketqav2", "ance"]
    }
    planner = Plan(config, ROOT).planner
    planner.model("ance", "here")
    links = planner.ctx.checkpoints["ance"]
    assert searched_by(links[2]) == "ance_0"
    assert searched_by(links[5]) == "ance.3"
    drawn = links[5].upstream["candidates"].values
    assert (drawn["depth"], drawn["negatives"]) == (200, 20)
