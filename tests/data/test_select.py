import hashlib

import pytest

from tandem.data.splits import choose_splits, compute_position, draw_subset
from tandem.errors import UserError
from tandem.extras.drawn_splits import draw_splits, move_share
from tandem.stages.data import DatasetParams


def test_a_query_of_several_splits_is_tested_rather_than_trained_on():
    judged = [
        ("a", "train"),
        ("b", "dev"),
        ("b", "train"),
        ("a", "test"),
        ("a", "test"),
        ("c", "train"),
    ]
    assert choose_splits(judged) == ({"a": "test", "b": "dev", "c": "train"}, {"a", "b"})


def test_position_is_the_start_of_the_sha1():
    # echo -n abc | sha1sum → a9993e36…
    assert compute_position("abc") == 0xA9993E36 / 2**32


def test_a_subset_has_the_lowest_hashes_and_keeps_the_order():
    ids = [f"q{i}" for i in range(50)]
    lowest = sorted(ids, key=lambda q: hashlib.sha1(q.encode()).hexdigest())[:10]
    selected = draw_subset(dict.fromkeys(ids, "train"), {"train": 10, "dev": None, "test": None})
    assert list(selected) == [q for q in ids if q in lowest]


def test_a_larger_subset_contains_the_smaller_and_other_splits_stay():
    splits = {f"q{i}": "train" if i % 2 else "test" for i in range(40)}
    few, more = (draw_subset(splits, {"train": n, "dev": None, "test": None}) for n in (5, 9))
    assert set(few) < set(more)
    assert sum(s == "test" for s in few.values()) == 20


def test_dev_is_carved_out_of_train_by_hash():
    splits = {**{f"q{i}": "train" for i in range(1000)}, "t": "test"}
    moved = move_share(splits, 0.1, "train", "dev")
    assert {q for q, s in moved.items() if s == "dev"} == {
        q for q in splits if q != "t" and compute_position(q) < 0.1
    }
    assert 60 < sum(s == "dev" for s in moved.values()) < 140
    assert moved["t"] == "test"


def test_at_most_so_many_are_carved_out_and_the_others_stay_in_train():
    splits = {f"q{i}": "train" for i in range(1000)}
    moved = move_share(splits, 0.1, "train", "dev", 20)
    lowest = sorted(splits, key=lambda q: hashlib.sha1(q.encode()).hexdigest())[:20]
    assert moved == {q: "dev" if q in lowest else "train" for q in splits}
    assert move_share(splits, 0.1, "train", "dev", 500) == move_share(splits, 0.1, "train", "dev")


def test_a_share_that_holds_no_query_is_refused():
    with pytest.raises(
        UserError,
        match=r"dev_from_train is 0.1, which none of 2 train queries falls into; raise it",
    ):
        move_share({"a": "train", "b": "train", "t": "test"}, 0.1, "train", "dev")
    assert move_share({"t": "test"}, 0.1, "train", "dev") == {"t": "test"}


def test_what_would_take_all_of_a_split_is_refused():
    with pytest.raises(
        UserError,
        match=r"dev_from_train is 0.9, which all of 2 train queries fall into; lower it",
    ):
        move_share({"a": "train", "c": "train", "t": "test"}, 0.9, "train", "dev")


def test_dev_is_a_share_of_a_train_that_was_itself_drawn():
    """All of train lies below the hash .2: a threshold of .1 would take half of it, and one of .2 all."""
    splits = {f"q{i}": "test" for i in range(1000)}
    params = {"train_from_test": 0.2, "dev_from_train": 0.1}
    drawn = draw_splits(splits, DatasetParams(**params))
    learned = sorted((q for q in splits if compute_position(q) < 0.2), key=compute_position)
    dev = set(learned[: round(len(learned) / 10)])
    assert drawn == {q: "dev" if q in dev else "train" if q in learned else "test" for q in splits}


@pytest.mark.parametrize("chosen", [slice(0, 30), slice(-30, None)], ids=["lowest", "highest"])
def test_a_share_of_queries_that_the_same_hash_has_chosen_is_counted(chosen):
    ids = sorted((f"q{i}" for i in range(1000)), key=compute_position)[chosen]
    params = {"dev_from_train": 0.1, "counted_shares": ["dev_from_train"]}
    drawn = draw_splits(dict.fromkeys(ids, "train"), DatasetParams(**params))
    assert drawn == {q: "dev" if q in ids[:3] else "train" for q in ids}
    # also where nobody says so, as far more or fewer lie below the share than may
    assert move_share(dict.fromkeys(ids, "train"), 0.1, "train", "dev") == drawn


def test_dev_is_not_carved_where_there_is_one():
    with pytest.raises(UserError, match=r"dev_from_train: the source has a dev split"):
        move_share({"a": "dev"}, 0.1, "train", "dev")
