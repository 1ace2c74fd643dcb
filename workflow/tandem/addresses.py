"""A limit of the address space (`ulimit -v`) that lets no stage start: said before any library is loaded.

Libraries map far more than they use, and some cannot bear to be refused it while they start: OpenBLAS asks again for
ever, others end in a segmentation fault or in pages of their own. Later, memory that is refused is a line
(`machine_faults`).
"""

import os
import resource

from tandem.errors import UserError
from tandem.stages import KINDS, is_stage
from tandem.stages.lexical import HEAP

GIB = 1 << 30
START = 3 * GIB  # torch, transformers and pyarrow; 2.6 GiB with two threads
CORE = GIB // 8  # a thread's stack, its arena and OpenBLAS's buffer
JAVA = 5 * GIB // 2  # the machine's classes, code and threads, besides its heap
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": GIB}


def suffice(words: list[str]) -> None:
    """Refuse a stage that could not start within the process' limit of addresses; nearly always there is none.

    Args:
        words: a command line after `python -m tandem`.
    Raises:
        UserError: the limit is lower than what the stage maps at its start.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or not is_stage(words[0]):
        return
    java = words[0] in KINDS and KINDS[words[0]].env == "lexical"
    needed = START + CORE * (os.cpu_count() or 1) + (JAVA + _heap(words) if java else 0)
    if limit < needed:
        told = f"out of memory: the limit of addresses is {limit / GIB:.1f} GiB (ulimit -v)"
        raise UserError(f"{told}, at least {needed / GIB:.1f} are mapped at the start; raise it: ulimit -v unlimited")


def _heap(words: list[str]) -> int:
    """Bytes of Java's heap, its default where none or no size is told: that is refused where Java starts."""
    told = words[words.index("--run.heap") + 1] if "--run.heap" in words[:-1] else HEAP
    told = told if told[:-1].isdecimal() else HEAP
    return int(told[:-1]) * UNITS.get(told[-1].lower(), 1)
