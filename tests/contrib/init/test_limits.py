"""How many queries `tandem init` takes of each split: all, unless the estimate says that they cost too much."""

import shutil

import pytest
import yaml
from tiny_project import ROOT, write_beir

from tandem.config.merging import gathered, merged
from tandem.contrib.init.configuration import (
    Choices,
    StartingEncoder,
    compose_configuration,
    find_starting_encoder,
)
from tandem.contrib.init.limits import Limit, choose_limits, estimate_tables, round_down
from tandem.contrib.init.look import FoundMachine, Look

CPU, GPU = FoundMachine(2, 24 << 30), FoundMachine(16, 128 << 30, "H200", 139 << 30)


@pytest.fixture
def choices(tmp_path, monkeypatch, documents):
    """`choices(encoder, machine, split=number, …)`: a folder that is taken to have 60,000 passages and such queries."""

    def choose(encoder=None, machine=CPU, **queries):
        monkeypatch.chdir(tmp_path)
        shutil.rmtree("data", ignore_errors=True)
        write_beir(tmp_path / "data", documents, splits=tuple(queries))
        collection = Look(
            60_000, queries=queries, positives=dict(queries), lengths={"passage": {}, "query": {}}
        )
        entry = {"source": "beir", "path": "data"}
        return Choices(
            "mine",
            entry,
            "en",
            collection,
            encoder or find_starting_encoder("minilm", "en"),
            machine,
        )

    return choose


def seconds(choices, queries):
    config = merged(gathered([], ROOT), yaml.safe_load(compose_configuration(choices, queries)))
    return sum(cost.wall for cost in estimate_tables(config, choices, "summary")[0].values())


def test_all_test_queries_are_scored_where_that_takes_half_as_long_again(choices):
    chosen = choices(train=50_000, dev=3_000, test=5_000)
    limits = choose_limits(chosen)
    # of dev: seconds
    assert {split: limit.most for split, limit in limits.items()} == {"train": None, "test": None}
    assert limits["test"].cause == "re-ranking"
    fewest = {"train": 5_000, "dev": 500, "test": 1_000}
    longer = seconds(chosen, {**fewest, "test": 5_000}) - seconds(chosen, fewest)
    assert limits["test"].seconds == pytest.approx(longer, rel=0.01)


def test_queries_that_would_cost_more_are_cut(choices):
    chosen = choices(train=2_000_000, dev=500, test=100_000)
    limits = choose_limits(chosen)
    queries = {split: limit.most for split, limit in limits.items()}
    assert 5_000 < queries["train"] < 2_000_000
    assert 1_000 < queries["test"] < 100_000
    fewest, all_queries = seconds(chosen, {"train": 5_000, "test": 1_000}), seconds(chosen, {})
    assert seconds(chosen, queries) < 1.65 * fewest  # a tenth for train, half for test
    assert all_queries > 5 * fewest


def test_a_gpu_re_ranks_more(choices):
    some, many = (
        choose_limits(choices(machine=machine, train=9_000, test=200_000))["test"]
        for machine in (CPU, GPU)
    )
    assert some.most < many.most


def test_without_training_queries_nothing_is_re_ranked(choices):
    limits = choose_limits(choices(test=2_000_000))
    assert list(limits) == ["test"]
    assert limits["test"].cause == "searching"


def test_few_queries_are_all_taken(choices):
    assert choose_limits(choices(train=5_000, dev=500, test=1_000)) == {}


def test_of_an_encoder_of_unknown_size_the_fewest_are_taken(choices):
    entry = {
        "source": "hub",
        "name": "org/none",
        "revision": "0" * 40,
        "pooling": "mean",
        "normalize": True,
    }
    encoder = StartingEncoder("none", entry, {"pooling": "mean", "normalize": True})
    limits = choose_limits(choices(encoder, train=9_000, test=9_000))
    assert {split: (limit.most, limit.seconds) for split, limit in limits.items()} == {
        "train": (5_000, None),
        "test": (1_000, None),
    }


def test_the_file_says_why(choices):
    chosen = choices(train=9_000, test=9_000)
    text = compose_configuration(chosen, {"test": 4_000}, {"test": "this", "train": "that"})
    assert yaml.safe_load(text)["datasets"]["mine"]["test_queries"] == 4_000
    assert "    test_queries: 4000  # without this line all 9,000; this\n" in text
    assert "    # train_queries: 5000  # that\n" in text
    limit = Limit("test", 9_000, 1_000, 4_000, 3_600.0, "re-ranking")
    assert (
        str(limit)
        == "4,000 of the 9,000 of test; re-ranking takes 1 h 0 min longer for all than for 1,000"
    )


@pytest.mark.parametrize(
    ("number", "expected"), [(9.9, 9), (99, 99), (4_871, 4_800), (128_999, 120_000)]
)
def test_rounding_down(number, expected):
    assert round_down(number) == expected
