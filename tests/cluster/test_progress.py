"""How long work still takes, as its progress says."""

import pytest

from tandem.cluster import progress
from tandem.cluster.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """Seconds that have passed, in a list of one."""
    seconds = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds[0])
    return seconds


def test_time_left_follows_from_what_is_counted(clock):
    work = Progress("encode", 100, "passages", done=20, quiet=True)
    clock[0] = 10.0
    work.add(40)
    assert work.pace() == pytest.approx((10.0, 4.0, 10.0))  # 40 passages are left, at 4 a second


def test_time_left_follows_from_tokens_where_these_are_known(clock):
    work = Progress("encode", 100, "passages", quiet=True, tokens_ahead=1_000)
    assert work.pace()[2] is None
    clock[0] = 10.0
    work.add(50, tokens=250)  # the shorter half: three quarters of the tokens are still to be read
    assert work.pace() == pytest.approx((10.0, 5.0, 30.0))
    clock[0] = 40.0
    work.add(50, tokens=750)
    assert work.pace()[2] == 0.0


def test_time_left_is_unknown_without_a_total(clock):
    work = Progress("init", 0, "passages", quiet=True)
    clock[0] = 10.0
    work.add(40)
    assert work.pace() == pytest.approx((10.0, 4.0, None))
