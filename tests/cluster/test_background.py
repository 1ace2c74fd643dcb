"""A thread before and one behind a computation: order, errors, and how much is under way at once."""

import threading
import time

import pytest

from tandem.cluster.work import prefetch_items, write_behind


def threads(name):
    """The running threads of a name."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def test_things_made_ahead_come_in_order_and_so_does_an_error():
    def things():
        yield from range(5)
        raise ValueError("the sixth")

    seen = []
    with prefetch_items(things()) as coming, pytest.raises(ValueError, match="the sixth"):
        seen.extend(iter(coming.__next__, None))
    assert seen == [0, 1, 2, 3, 4]
    with prefetch_items(iter("abc")) as coming:
        assert list(coming) == ["a", "b", "c"]


def test_nothing_is_made_for_nobody():
    numbers = []

    def things():
        for number in range(1000):
            numbers.append(number)
            yield number

    with prefetch_items(things()) as coming:
        assert next(coming) == 0
    assert len(numbers) == 2
    assert not threads("ahead")


def test_one_call_at_a_time_is_under_way_behind_the_caller():
    """The caller is never more than one call further than what is done, and all is done at the end."""
    done, further = [], []

    def work(number, *, by):
        time.sleep(0.01)
        done.append((number, by))

    with write_behind(work) as put:
        for number in range(5):
            put(number, by="hand")
            further.append(number + 1 - len(done))
    assert done == [(number, "hand") for number in range(5)]
    assert set(further) <= {0, 1}
    assert not threads("behind")


def test_what_goes_wrong_behind_is_raised_by_the_next_call_or_at_the_end():
    def work(number):
        if number == 1:
            raise OSError("no space left")

    begun = []
    with pytest.raises(OSError, match="no space left"), write_behind(work) as put:
        for number in range(5):
            put(number)
            begun.append(number)
    assert begun == [0, 1]  # the third call raised
    with pytest.raises(OSError, match="no space left"), write_behind(work) as put:
        put(1)


def test_what_is_under_way_is_finished_where_the_caller_fails():
    done = []

    def work(number):
        time.sleep(0.05)
        done.append(number)

    with pytest.raises(ValueError, match="the caller"), write_behind(work) as put:
        put(0)
        raise ValueError("the caller")
    assert done == [0]
