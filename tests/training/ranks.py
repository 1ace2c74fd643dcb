"""Forked processes that meet as torchrun's do, for programs that have imported libraries and computed nothing."""

import os
import socket
import sys

import pytest
import torch


def skip_without_gpus(count):
    """Skip a test of several processes where each would need a GPU of its own, and there are some, but too few."""
    if 0 < torch.cuda.device_count() < count:
        pytest.skip(f"{count} processes need {count} GPUs")


def port():
    """A port that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def fork(size, work):
    """Start `size` processes that each call `work()`; their ids."""
    meeting, started = port(), []
    for rank in range(size):
        child = os.fork()
        if child:
            started.append(child)
            continue
        rendezvous = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size}
        rendezvous |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": meeting}
        os.environ.update(
            {name: str(value) for name, value in rendezvous.items()} if size > 1 else {}
        )
        try:
            work()
        except BaseException as error:
            print(f"rank {rank} of {size}: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return started


def together(size, work):
    """Have `size` processes call `work()`, and end this one if one of them fails."""
    if any(os.waitpid(process, 0)[1] for process in fork(size, work)):
        sys.exit(f"a process of {size} failed")
