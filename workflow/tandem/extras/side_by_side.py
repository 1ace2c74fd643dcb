"""Compute batches side by side on a CPU, each on its share of the threads.

Threads that share every operation wait for one another after each, and many operations keep only one of them busy.
Threads that compute a batch each do not wait: docs/speed.md shows how much more they achieve.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from tandem.models.device import device
from tandem.stages.training import ModelParams
from tandem.store.job import Job

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# As many micro-batches as `graph_tokens` holds by default. Far more would wait for one another in Python, which starts
# the operations of each one by one.
_MOST_WORKERS = 8


@cache
def _open_workers(count: int, process: int) -> ThreadPoolExecutor:
    """Return threads that stay open; a forked process inherits none of its parent's threads and opens its own."""
    return ThreadPoolExecutor(count, f"batches-{process}")


def map_side_by_side(
    compute: Callable[[_Item], _Result], items: Sequence[_Item]
) -> Iterator[_Result]:
    """Yield the result of each item, in order; on a CPU as many are computed at once as torch has threads here.

    Args:
        compute: must not draw random numbers; it records gradients if the caller does.
    """
    threads = torch.get_num_threads()
    count = min(threads, len(items), _MOST_WORKERS)
    if count < 2 or device().type != "cpu":
        yield from map(compute, items)
        return
    infers = torch.is_inference_mode_enabled()
    learns = torch.is_grad_enabled()

    def run(item: _Item) -> _Result:
        """Compute an item on this thread's share, in the modes of the caller's thread, which threads do not inherit."""
        torch.set_num_threads(threads // count)  # for this thread's operations only
        with torch.inference_mode(infers), torch.set_grad_enabled(learns):
            return compute(item)

    workers = _open_workers(count, os.getpid())
    begun: deque[Future[_Result]] = deque()
    try:
        for item in items:
            # One item is always waiting for a thread. More would only be results that wait to be read, and need memory.
            if len(begun) > count:
                yield begun.popleft().result()
            begun.append(workers.submit(run, item))
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()


def is_side_by_side(job: Job[ModelParams]) -> bool:
    """Return whether a training's micro-batches are computed side by side: on a CPU, where nothing is random in them.

    Threads would draw dropout's numbers from one generator, in any order. Compiled models are computed in turn, too.
    """
    train: Any = job.params.train
    parts = [getattr(train, "retriever", None), getattr(train, "reranker", None)]
    has_dropout = train.dropout != 0 or any(part and part.dropout for part in parts)
    is_plain = not has_dropout and not job.params.lora and job.execution.compile != "always"
    return is_plain and device().type == "cpu"


def carry_gradients(
    values: Sequence[Tensor] | Callable[[int], Tensor], gradients: Sequence[Tensor]
) -> None:
    """Carry the gradients of batches' values into the weights, which add them up in the order of the batches.

    Args:
        values: the values with their graphs; or a function that computes those of a batch, by its number.
    """

    def differentiate(number: int) -> list[tuple[Tensor, Tensor]]:
        """Return the weights that a batch reaches, each with what the batch adds to its gradient."""
        value = values(number) if callable(values) else values[number]
        weights = find_weights(value)
        if not weights:  # torch takes no empty list
            return []
        found = torch.autograd.grad(value, weights, gradients[number])
        return [*zip(weights, found, strict=True)]

    for own in map_side_by_side(differentiate, range(len(gradients))):
        add_gradients(own)


def find_weights(value: Tensor) -> list[Tensor]:
    """Return the tensors of a value's graph that learn, each once, always in the same order.

    >>> a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    >>> [weight is a for weight in find_weights(a * a + b.detach())]
    [True]
    """
    weights: list[Tensor] = []
    seen = {value.grad_fn}
    left = [value.grad_fn]
    while left:
        node = left.pop()
        if node is None:
            continue
        if hasattr(node, "variable"):
            weights.append(node.variable)
        for following, _ in node.next_functions:
            if following not in seen:
                seen.add(following)
                left.append(following)
    return weights


def add_gradients(gradients: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Add to each weight's gradient; the first addend becomes the gradient itself, unless others hold it, too."""
    seen: set[int] = set()
    for weight, gradient in gradients:
        address = gradient.data_ptr()
        if weight.grad is not None:
            weight.grad.add_(gradient)
        elif address in seen or not gradient.is_contiguous():
            weight.grad = gradient.clone(memory_format=torch.contiguous_format)
        else:
            weight.grad = gradient
        seen.add(address)
