"""Encodes in forked processes that are killed and started again; a program, so that it imports libraries once, unused.

`killed_encoding.py <file>` reads a list of encodings: `words` (the stage's command line) and `kills`, how often it is
killed by the system at most, each time some milliseconds after it has begun or finished another file, or, every other
time, another block: on a busy machine many a death would come before the first. What every death left behind goes to
`<artifact>.killed`: how many blocks are finished, and the files that it left half written.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from tandem.extras.running.warm_server import prepare_libraries
from tandem.plugins import load_contrib
from tandem.retrieval.encode import run
from tandem.store.job import read_job

SLOWER = 0.015  # seconds, of every file that gets its name: there is time to be killed in


def fork(words):
    """Start the stage in a process of its own."""
    child = os.fork()
    if child:
        return child
    replace = os.replace
    os.replace = lambda *paths: (time.sleep(SLOWER), replace(*paths))
    try:
        run(read_job("embeddings", words))
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def files(folder):
    """The names in the folder of the blocks."""
    return {path.name for path in folder.glob("blocks/*")}


def finished(folder):
    """The names of the blocks that are finished."""
    return {name for name in files(folder) if name.endswith(".json") and name[0] != "."}


def kill(child, folder, list_names, wait):
    """Kill a process so many seconds after there is another name in a list; its exit status if it ended before."""
    before = list_names(folder)
    while list_names(folder) <= before:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.001)
    time.sleep(wait)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def main(path):
    """Run them all to their ends."""
    rng = random.Random(1)
    load_contrib()
    for computing in (False, True):
        prepare_libraries(computing)
    for encoding in json.loads(Path(path).read_text()):
        folder, deaths, status = Path(encoding["words"][-1]).parent, [], None
        while status != 0:
            before, child = files(folder), fork(encoding["words"])
            more = len(deaths) < encoding["kills"]
            list_names = finished if len(deaths) % 2 else files
            wait = rng.uniform(0, 5 * SLOWER)
            status = kill(child, folder, list_names, wait) if more else os.waitpid(child, 0)[1]
            if status not in (0, signal.SIGKILL):
                sys.exit(f"{folder}: ended with {status}")
            half = sorted(name for name in files(folder) - before if name.startswith("."))
            deaths += [{"finished": len(finished(folder)), "half": half}] if status else []
        folder.with_name(f"{folder.name}.killed").write_text(json.dumps(deaths))


if __name__ == "__main__":
    main(sys.argv[1])
