"""Scores of a batch, computed in micro-batches of a token budget."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.models.batching import token_batches
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.template import Ids
from tandem.models.tokens import Tokens
from tandem.training.lists import Batch

MULTIPLE = 8  # lengths are padded to one: odd shapes give other last bits on another number of threads


@dataclass(frozen=True)
class Seeds:
    """Torch's generator, set anew before every forward pass from where it stands in the training.

    Dropout then needs no saved state to resume, and a micro-batch computed twice meets the same masks.
    """

    entropy: tuple[int, ...]

    def child(self, number: int) -> "Seeds":
        """The seeds of a part."""
        return Seeds((*self.entropy, number))

    def set(self) -> None:
        """Seed torch."""
        torch.manual_seed(int(np.random.SeedSequence(self.entropy).generate_state(1, np.uint64)[0]))


@dataclass(frozen=True)
class Budget:
    """How much is computed at once: never changes the mathematics.

    Attributes:
        micro_tokens: padded tokens of one forward pass.
        graph_tokens: tokens whose graph may be kept for one backward pass.
    """

    micro_tokens: int = 4096
    graph_tokens: int = 65536


def gather(parts: Iterable[tuple[Ids, Tensor]], rows: int) -> Tensor:
    """Put micro-batches' results back in order: (row indices, values) pairs → one tensor of `rows` values."""
    indices, values = zip(*parts, strict=True)
    place = np.empty(rows, np.int64)
    place[np.concatenate(indices)] = np.arange(rows)
    return torch.cat(values)[torch.from_numpy(place).to(values[0].device)]


def split(batch: Batch, tokens: Tokens, budget: int) -> Iterator[Batch]:
    """Consecutive lists of a batch whose pairs have at most `budget` tokens together; at least one list each."""
    lengths = np.where(batch.mask, tokens.passages.lengths(np.maximum(batch.passages, 0)), 0).sum(1)
    sizes = lengths + batch.mask.sum(1) * (tokens.queries.lengths(batch.queries) + tokens.template.extra[1])
    start, used = 0, 0
    for i, size in enumerate(sizes):
        if i > start and used + size > budget:
            yield batch.part(start, i)
            start, used = i, 0
        used += int(size)
    yield batch.part(start, len(sizes))


def pair_scores(model: CrossEncoder, tokens: Tokens, batch: Batch, mode: str, budget: int, seeds: Seeds) -> Tensor:
    """s_ce(q, p) of every pair of the batch's lists.

    Returns:
        Shape (queries, list); 0 where no passage stands.
    """
    at = np.argwhere(batch.mask)
    queries = [tokens.queries[int(batch.queries[i])] for i, _ in at]
    passages = [tokens.passages[int(batch.passages[i, j])] for i, j in at]
    lengths = np.array([len(q) + len(p) for q, p in zip(queries, passages, strict=True)]) + tokens.template.extra[1]
    parts = []
    for number, rows in enumerate(token_batches(lengths, budget)):
        seeds.child(number).set()
        scores = model([queries[r] for r in rows], [passages[r] for r in rows], tokens.template, mode, MULTIPLE)
        parts.append((rows, scores))
    flat = gather(parts, len(at))
    made = flat.new_zeros(batch.passages.shape)
    return made.index_put((torch.from_numpy(at[:, 0]), torch.from_numpy(at[:, 1])), flat)


class Texts:
    """Vectors of a batch's texts of one side, with gradient, in bounded memory.

    Up to `graph_tokens` tokens one backward pass goes through everything. Above, gradients are cached (GradCache, Gao
    et al. 2021): vectors are computed without a graph, the loss gives their gradient, and `backward` computes each
    micro-batch again, with the same dropout, to carry the gradient into the weights.
    """

    def __init__(
        self, model: DualEncoder, side: str, rows: Ids, tokens: Tokens, mode: str, budget: Budget, seeds: Seeds
    ) -> None:
        self.model, self.side, self.tokens, self.mode = model, side, tokens, mode
        self.budget, self.seeds = budget, seeds
        source = tokens.queries if side == "query" else tokens.passages
        self.texts = [source[int(row)] for row in rows]
        self.lengths = np.array([len(text) for text in self.texts]) + tokens.template.extra[0]
        self.parts = token_batches(self.lengths, budget.micro_tokens)
        self.cached: Tensor | None = None

    def _encode(self, number: int) -> Tensor:
        self.seeds.child(number).set()
        texts = [self.texts[r] for r in self.parts[number]]
        return self.model.encode(self.side, texts, self.tokens.template, self.mode, MULTIPLE)

    def vectors(self) -> Tensor:
        """Vectors in the order of the rows, shape (rows, dim)."""
        keep = torch.is_grad_enabled() and int(self.lengths.sum()) <= self.budget.graph_tokens
        with torch.set_grad_enabled(keep):
            made = gather([(rows, self._encode(n)) for n, rows in enumerate(self.parts)], len(self.texts))
        if keep or not torch.is_grad_enabled():
            return made
        self.cached = made.detach().requires_grad_()
        return self.cached

    def backward(self) -> None:
        """Carry the cached vectors' gradient into the weights; nothing to do where the graph was kept."""
        if self.cached is None or self.cached.grad is None:
            return
        for number, rows in enumerate(self.parts):
            self._encode(number).backward(self.cached.grad[torch.from_numpy(rows)])


def batch_texts(
    model: DualEncoder, tokens: Tokens, batch: Batch, mode: str, budget: Budget, seeds: Seeds
) -> tuple[Texts, Texts]:
    """The batch's queries, and its lists' passages in the order of `batch.mask`."""
    queries = Texts(model, "query", batch.queries, tokens, mode, budget, seeds.child(0))
    return queries, Texts(model, "passage", batch.passages[batch.mask], tokens, mode, budget, seeds.child(1))


def list_scores(queries: Tensor, passages: Tensor, batch: Batch, temperature: float) -> Tensor:
    """s_de(q, p) of each query against its own list, from the vectors of `batch_texts`.

    Returns:
        Shape (queries, list); of no meaning where no passage stands.
    """
    place = np.zeros(batch.passages.shape, np.int64)
    place[batch.mask] = np.arange(int(batch.mask.sum()))
    return dot_scores(queries, passages[torch.from_numpy(place).to(passages.device)], temperature)
