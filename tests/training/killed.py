"""Trains in forked processes that are killed and started again; a program, so that it imports libraries once, unused.

`killed.py <file>` reads a list of trainings: `words` (the stage's command line), `size` (processes) and `kills` (the
steps after which all processes are killed by the system, in a random order). It exits with 1 if a training fails.
"""

import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

import transformers.models.bert.modeling_bert
import transformers.models.bert.tokenization_bert  # noqa: F401

from tandem.store.job import read_job
from tandem.training.stage import run


def port():
    """A port that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def fork(words, size):
    """Start the processes of a training."""
    met, started = port(), []
    for rank in range(size):
        child = os.fork()
        if child:
            started.append(child)
            continue
        told = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": met}
        os.environ.update({name: str(value) for name, value in told.items()} if size > 1 else {})
        try:
            run(read_job("model", words))
        except BaseException as error:
            print(f"rank {rank} of {size}: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return started


def steps(folder):
    """How many steps the newest checkpoint has behind it."""
    return max((int(path.parent.name[5:]) for path in folder.glob("checkpoints/step-*/state.json")), default=0)


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
    for told in json.loads(Path(path).read_text()):
        folder, died = Path(told["words"][-1]).parent, []
        for step in told["kills"]:
            if not kill_after(step, folder, fork(told["words"], told["size"]), rng):
                sys.exit(f"{folder}: a process ended before step {step}")
            died.append(steps(folder))
        if any(os.waitpid(process, 0)[1] for process in fork(told["words"], told["size"])):
            sys.exit(f"{folder}: a process failed")
        folder.with_name(f"{folder.name}.killed").write_text(json.dumps(died))


if __name__ == "__main__":
    main(sys.argv[1])
