"""The memory that a manifest tells is the stage's own."""

import subprocess
import sys

from tandem.store.environment import peak_mib

CHILD = "from tandem.store.environment import peak_mib; held = bytearray(100 << 20); del held; print(peak_mib())"
PARENT = f"import subprocess, sys; held = bytearray(400 << 20); subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_what_the_starting_process_had_is_not_counted():
    done = subprocess.run(
        [sys.executable, "-c", PARENT], capture_output=True, text=True, check=True
    )
    assert 100 <= int(done.stdout) < 200


def test_it_is_the_most_there_was_and_not_what_there_is():
    before, held = peak_mib(), bytearray(800 << 20)
    assert peak_mib() >= 800
    del held
    assert peak_mib() >= max(before, 800)
