"""Trains in forked processes that are killed and started again; a program, so that it imports libraries once, unused.

`killed.py <file>` reads a list of trainings: `words` (the stage's command line), `size` (processes) and `kills` (the
steps after which all processes are killed by the system, in a random order). It exits with 1 if a training fails.
"""

import json
import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

from ranks import fork, together

from tandem.extras.running.warm_server import prepare_libraries
from tandem.plugins import load_contrib
from tandem.store.job import read_job
from tandem.training.stage import run


def train_here(words):
    """Run a stage's command line."""
    run(read_job("model", words))


def steps(folder):
    """How many steps the newest checkpoint has behind it."""
    return max(
        (int(path.parent.name[5:]) for path in folder.glob("checkpoints/step-*/state.json")),
        default=0,
    )


def kill_after(step, folder, processes, rng):
    """Kill all processes some milliseconds after a checkpoint of a step is there; False if one ended before."""
    while steps(folder) < step:
        if any(os.waitpid(process, os.WNOHANG)[0] for process in processes):
            return False
        time.sleep(0.001)
    time.sleep(rng.uniform(0, 0.02))
    for process in rng.sample(processes, len(processes)):
        os.kill(process, signal.SIGKILL)
    return all(os.waitpid(process, 0)[1] == signal.SIGKILL for process in processes)


def main(path):
    """Train them all; the steps at which processes died go beside each training, to `<its folder>.killed`."""
    rng = random.Random(1)
    load_contrib()
    for computing in (False, True):
        prepare_libraries(computing)
    for training in json.loads(Path(path).read_text()):
        folder, died = Path(training["words"][-1]).parent, []
        train = partial(train_here, training["words"])
        for step in training["kills"]:
            if not kill_after(step, folder, fork(training["size"], train), rng):
                sys.exit(f"{folder}: a process ended before step {step}")
            died.append(steps(folder))
        together(training["size"], train)
        folder.with_name(f"{folder.name}.killed").write_text(json.dumps(died))


if __name__ == "__main__":
    main(sys.argv[1])
