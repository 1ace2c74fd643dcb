"""`why`: the root of a difference, through every stage in between."""

import pytest

from tandem.cli import run
from tandem.errors import UserError


def chain(world, lr=1e-5, steps=100, k1=0.9, source="bm25"):
    """dataset → run → candidates → model → retrieve."""
    data = world.make("dataset", "toy", {"source": "made"})
    run = world.make("bm25", source, {"k1": k1, "b": 0.4}, dataset=data)
    lists = world.make("candidates", "joint", {"depth": 50}, dataset=data, run=run)
    params = {"train": {"lr": lr, "steps": steps}}
    model = world.make("model", "rocketqav2", params, dataset=data, candidates=lists)
    return model, world.make("retrieve", "rocketqav2", {"depth": 50}, dataset=data, model=model)


def explain(capsys, *words):
    assert run(["why", *map(str, words)]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_parameter_of_its_own(empty_world, capsys):
    old, _ = chain(empty_world)
    new, _ = chain(empty_world, lr=2e-5)
    expected = [f"{new.key} differs from {old.key}: train.lr is 2e-05, was 1e-05"]
    assert explain(capsys, new.folder) == expected
    assert explain(capsys, new.folder, old.folder) == expected


def test_a_parameter_two_stages_above(empty_world, capsys):
    old, _ = chain(empty_world)
    _, first = chain(empty_world)
    new, run = chain(empty_world, lr=2e-5)
    assert explain(capsys, run.folder) == [
        f"{run.key} differs from {first.key}: model {new.key} differs from {old.key}: train.lr is 2e-05, was 1e-05"
    ]


def test_the_nearest_sibling_differs_least(empty_world, capsys):
    chain(empty_world, lr=3e-5, steps=7)
    near, _ = chain(empty_world, lr=3e-5)
    new, _ = chain(empty_world, lr=2e-5)
    assert explain(capsys, new.folder) == [
        f"{new.key} differs from {near.key}: train.lr is 2e-05, was 3e-05"
    ]


def test_a_root_reached_by_two_ways_is_told_once(empty_world, capsys):
    _, old = chain(empty_world)
    _, new = chain(empty_world, k1=1.2)
    (line,) = explain(capsys, new.folder, old.folder)
    assert line.endswith("k1 is 1.2, was 0.9")


def test_another_input_and_a_parameter_not_set(empty_world, capsys):
    old, _ = chain(empty_world)
    new, _ = chain(empty_world, source="tuned")
    (line,) = explain(capsys, new.folder, old.folder)
    assert "its input run is tuned-" in line
    assert ", was bm25-" in line
    plain = empty_world.make("model", "m", {"a": 1})
    other = empty_world.make("model", "m", {"b": None}, init=plain)
    assert [line.split(": ", 1)[1] for line in explain(capsys, other.folder, plain.folder)] == [
        "b is None, was not set",
        "a is not set, was 1",
        f"its input init is {plain.key}, was absent",
    ]


def test_of_two_kinds_only_parameters_that_both_have_are_compared(empty_world, capsys):
    lexical = empty_world.make("bm25", "r", {"k1": 0.9, "depth": 10})
    dense = empty_world.make("retrieve", "r", {"threads": 1, "depth": 20})
    lines = explain(capsys, dense.folder, lexical.folder)
    assert [line.split(": ", 1)[1] for line in lines] == [
        "its kind is retrieve, was bm25",
        "depth is 20, was 10",
    ]


def test_no_sibling_and_no_difference(empty_world, capsys):
    model, _ = chain(empty_world)
    assert explain(capsys, model.folder) == [
        f"{model.key} has no sibling: no other model named rocketqav2 is finished beside it"
    ]
    assert explain(capsys, model.folder, model.folder) == [
        f"{model.key} does not differ from {model.key}"
    ]


def test_keys_are_found_below_results(empty_world, capsys, monkeypatch):
    old, _ = chain(empty_world)
    new, _ = chain(empty_world, lr=2e-5)
    monkeypatch.chdir(empty_world.root)
    assert explain(capsys, new.key, old.key) == [
        f"{new.key} differs from {old.key}: train.lr is 2e-05, was 1e-05"
    ]
    with pytest.raises(UserError, match="model-0000000000: no finished artifact"):
        run(["why", "model-0000000000"])
    with pytest.raises(UserError, match="parameter ARTIFACT requires an argument"):
        run(["why"])
