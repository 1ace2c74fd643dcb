"""A training that somebody ends tells the `tandem run` above it, and no other process."""

import signal
import subprocess
import sys

import pytest

from tandem.extras.running.run_above import RUN, stop_run

ABOVE = f"""
import os, signal, subprocess, sys
told = []
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda caught, _: told.append(caught))
stage = "import sys; from tandem.extras.running.run_above import stop_run; stop_run(int(sys.argv[1]))"
words = [sys.executable, "-c", stage, sys.argv[1]]
subprocess.run(words, check=True, env=os.environ | {{"{RUN}": str(os.getpid())}})
print(*told)
"""


@pytest.mark.parametrize(
    ("number", "told"),
    [(signal.SIGTERM, "15"), (signal.SIGHUP, "1"), (signal.SIGINT, ""), (signal.SIGUSR1, "")],
)
def test_the_run_above_is_told_what_somebody_ends_a_stage_by(number, told):
    words = [sys.executable, "-c", ABOVE, str(int(number))]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == told


def test_a_process_with_that_number_elsewhere_is_left_alone(monkeypatch):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setenv(RUN, str(other.pid))
    stop_run(signal.SIGTERM)
    other.communicate(b"\n", timeout=30)
    assert other.returncode == 0
