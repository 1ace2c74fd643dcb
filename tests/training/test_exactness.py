"""Micro-batches, cached gradients and several processes give one big batch's loss and gradient of every parameter."""

import exact_cases
import pytest
import torch
from comparing import assert_same
from exact_cases import BIG, CASES, DTYPES, RUNS, SMALL, dev_values, results
from pytest import approx
from ranks import skip_without_gpus
from several_processes import read_results, run_program

from tandem.training.forward import Budget

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def whole():
    """`whole(case, dtype, queries)`: loss and gradients of the one big batch."""
    cache = {}

    def make(case, dtype, queries=4):
        key = case, dtype, queries
        if key not in cache:
            cache[key] = results(case, BIG, DTYPES[dtype][0], queries)
        return cache[key]

    return make


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """The folder of what two and three processes have computed."""
    skip_without_gpus(3)
    folder = tmp_path_factory.mktemp("world")
    run_program(exact_cases.__file__, folder)
    return folder


@pytest.fixture(scope="module", params=[2, 3], ids=["2 processes", "3 processes"])
def together(request, computed):
    """The values of each of several processes, and its gradients."""
    return read_results(computed / str(request.param))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_parts_equal_one_big_batch(case, dtype, whole):
    assert_same(results(case, SMALL, DTYPES[dtype][0]), whole(case, dtype), DTYPES[dtype][1])


@pytest.mark.parametrize(
    ("case", "graph_tokens"),
    [(case, 1 << 20) for case in CASES]
    + [("dual in-batch", 60), ("spade", 60), ("joint paper", 60)],
)
def test_batches_side_by_side_equal_one_big_batch_in_the_same_bits_every_time(
    case, graph_tokens, whole
):
    before = torch.get_num_threads()
    budget = Budget(micro_tokens=60, graph_tokens=graph_tokens, side_by_side=True)
    torch.set_num_threads(3)
    try:
        first, again = (results(case, budget, torch.float32) for _ in range(2))
    finally:
        torch.set_num_threads(before)
    assert_same(first, whole(case, "fp32"), DTYPES["fp32"][1])
    assert first[0] == again[0]
    assert first[1].keys() == again[1].keys()
    assert all(torch.equal(gradient, again[1][path]) for path, gradient in first[1].items())


def test_what_is_random_is_computed_one_after_another():
    """Threads draw from one generator in any order: dropout that nobody has told of gives what it gives in turn."""
    ways = [
        Budget(60, 1 << 20),
        Budget(60, 1 << 20, side_by_side=True),
        Budget(60, 1, side_by_side=True),
    ]
    plain, *others = (results("cross listwise", way, torch.float64, 1, dropout=0.3) for way in ways)
    for other in others:
        assert_same(other, plain, 1e-10)


@pytest.mark.parametrize(
    "case",
    [
        "dual in-batch",
        "multi in-batch",
        "cross listwise",
        "cross in-batch",
        "joint paper",
        "joint static",
    ],
)
def test_cached_gradients_replay_dropout(case):
    # One list: all of it is one part, whose micro-batches meet the same seeds with a graph and without.
    queries = 4 if case.startswith(("dual", "multi")) else 1
    outcomes = [
        results(
            case,
            Budget(micro_tokens=60, graph_tokens=graph_tokens),
            torch.float64,
            queries,
            dropout=0.3,
        )
        for graph_tokens in (1 << 20, 1)
    ]
    assert_same(outcomes[1], outcomes[0], 1e-10)
    without = results(case, BIG, torch.float64, queries)[0]["loss"]
    assert outcomes[0][0]["loss"] != approx(without, rel=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_several_processes_equal_one(case, whole, together):
    assert len(together) > 1
    for number, (dtype, queries, _) in enumerate(RUNS):
        for process in together:
            assert_same(process[f"{case}|{number}"], whole(case, dtype, queries), DTYPES[dtype][1])


def test_several_processes_validate_what_one_does(together):
    alone = [dev_values(), dev_values(lists=1)]
    assert 0 < alone[0]["dual"] < 1
    for process in together:
        every, one = process["dev"][0]
        assert list(every) == list(one) == ["dual", "cross"]
        assert every == approx(alone[0])
        assert one == approx(alone[1])


def test_shares_cover_the_batch_in_order():
    from tandem.training.distributed import World

    # 7 = 3 + 2 + 2; two queries among three processes leave the last one without
    assert [list(range(7))[World(rank, 3).slice(7)] for rank in range(3)] == [
        [0, 1, 2],
        [3, 4],
        [5, 6],
    ]
    assert [list(range(2))[World(rank, 3).slice(2)] for rank in range(3)] == [[0], [1], []]


def test_one_process_needs_no_launcher(monkeypatch):
    from tandem.training.distributed import SINGLE_PROCESS, World

    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    assert World.current() == SINGLE_PROCESS
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert World.current() == SINGLE_PROCESS  # somebody else's variables
    monkeypatch.setenv("MASTER_ADDR", "here")
    assert World.current() == World(1, 4)
