"""Vectors and scores of a batch, computed in micro-batches of a token budget."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ids, micro_batches
from tandem.models.tokens import Tokens
from tandem.training.distributed import World
from tandem.training.lists import Batch

Score = Callable[[Tensor, Tensor], Tensor]  # see `DualEncoder.scores`
MULTIPLE = 4  # lengths are padded to one: in odd shapes the last bits of a forward pass depend on the threads


@dataclass(frozen=True)
class Seeds:
    """Torch's generator, set anew before every forward pass from where it stands in the training.

    Dropout then needs no saved state to resume, and a micro-batch computed twice meets the same masks.

    Attributes:
        entropy: seed of the training, step, parts …: the same in all processes.
        process: sets the processes' generators apart.
    """

    entropy: tuple[int, ...]
    process: int = 0

    @property
    def step(self) -> int:
        """Steps done before: the second number of a training's (seed, step, parts …)."""
        return self.entropy[1]

    def child(self, number: int) -> "Seeds":
        """The seeds of a part."""
        return Seeds((*self.entropy, number), self.process)

    def set(self) -> None:
        """Seed torch."""
        sequence = np.random.SeedSequence(self.entropy, spawn_key=(self.process,) if self.process else ())
        torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


@dataclass(frozen=True)
class Budget:
    """How much is computed at once: never changes the mathematics.

    Attributes:
        micro_tokens: padded tokens of one forward pass.
        graph_tokens: tokens whose graph is kept at most for one backward pass.
    """

    micro_tokens: int = 4096
    graph_tokens: int = 65536


class Replayed:
    """Values of rows (vectors of texts, scores of pairs) computed in micro-batches, with gradient, in bounded memory.

    Up to `graph_tokens` tokens one backward pass goes through everything. Above, gradients are cached (GradCache, Gao
    et al. 2021): values are computed without a graph, the loss gives their gradient, and `backward` computes each
    micro-batch again, with the same dropout, to carry the gradient into the weights.

    Args:
        lengths: tokens of each row, special tokens included, shape (rows,).
        empty: values of no rows, shape (0, …).
        packed: tokens of a packed row; None where rows are padded.
    """

    def __init__(
        self,
        compute: Callable[[Ids], Tensor],
        lengths: Ids,
        empty: Tensor,
        budget: Budget,
        seeds: Seeds,
        packed: int | None = None,
    ) -> None:
        self.compute, self.empty, self.seeds, self.rows = compute, empty, seeds, len(lengths)
        self.parts = micro_batches(lengths, budget.micro_tokens, MULTIPLE, packed)
        self.fits = int(lengths.sum()) <= budget.graph_tokens
        self.cached: Tensor | None = None

    def values(self) -> Tensor:
        """Values in the order of the rows, shape (rows, …)."""
        learning = torch.is_grad_enabled()
        if not self.rows:
            return self.empty.requires_grad_(learning)
        with torch.set_grad_enabled(learning and self.fits):
            values = in_order(self.parts, [self._part(number) for number in range(len(self.parts))])
        if self.fits or not learning:
            return values
        self.cached = values.detach().requires_grad_()
        return self.cached

    def backward(self) -> None:
        """Carry the cached values' gradient into the weights; nothing to do where the graph still exists."""
        if self.cached is None or self.cached.grad is None:
            return
        for number, rows in enumerate(self.parts):
            self._part(number).backward(self.cached.grad[torch.from_numpy(rows).to(self.cached.device)])

    def _part(self, number: int) -> Tensor:
        """Values of one micro-batch, with its own dropout."""
        self.seeds.child(number).set()
        return self.compute(self.parts[number])


def in_order(parts: list[Ids], values: list[Tensor]) -> Tensor:
    """Put micro-batches' values back in order: row indices and values of each part → one tensor of all rows."""
    indices = np.concatenate(parts)
    place = np.empty(len(indices), np.int64)
    place[indices] = np.arange(len(indices))
    return torch.cat(values)[torch.from_numpy(place).to(values[0].device)]


def split(batch: Batch, tokens: Tokens, budget: int) -> Iterator[Batch]:
    """Consecutive lists of a batch whose pairs have at most `budget` tokens together, at least one list each.

    A batch without lists is one part without lists.
    """
    passages = tokens.passages.lengths(np.maximum(batch.passages, 0))
    pairs = tokens.template.pair_lengths(tokens.queries.lengths(batch.queries)[:, None], passages)
    sizes = np.where(batch.mask, pairs, 0).sum(1)
    start, used = 0, 0
    for i, size in enumerate(sizes):
        if i > start and used + size > budget:
            yield batch.part(start, i)
            start, used = i, 0
        used += int(size)
    yield batch.part(start, len(sizes))


def batch_pairs(model: CrossEncoder, tokens: Tokens, batch: Batch, mode: str, budget: Budget, seeds: Seeds) -> Replayed:
    """s_ce(q, p) of every pair of the batch's lists, in the order of `batch.mask`."""
    queries = tokens.queries.take(np.repeat(batch.queries, batch.mask.sum(1)))
    passages = tokens.passages.take(batch.passages[batch.mask])
    lengths = tokens.template.pair_lengths(np.diff(queries.offsets), np.diff(passages.offsets))

    def compute(rows: Ids) -> Tensor:
        scores: Tensor = model(queries.take(rows), passages.take(rows), tokens.template, mode, MULTIPLE)
        return scores

    return Replayed(compute, lengths, next(model.head.parameters()).new_zeros(0), budget, seeds, model.packed)


def on_lists(scores: Tensor, batch: Batch) -> Tensor:
    """Scores in the order of `batch.mask` → shape (queries, list); 0 where no passage stands."""
    at = torch.from_numpy(np.argwhere(batch.mask)).to(scores.device)
    return scores.new_zeros(batch.passages.shape).index_put((at[:, 0], at[:, 1]), scores)


def text_vectors(
    model: DualEncoder, tokens: Tokens, side: str, rows: Ids, mode: str, budget: Budget, seeds: Seeds
) -> Replayed:
    """E(text) of some rows of a side, `query` or `passage`, by that side's tower, all of the shape `model.shape`."""
    stored = tokens.queries if side == "query" else tokens.passages
    texts, shape = stored.take(rows), model.shape(side, stored.longest + tokens.template.extra[0])

    def compute(part: Ids) -> Tensor:
        vectors = model.encode(side, texts.take(part), tokens.template, mode, MULTIPLE)
        return vectors if vectors.shape[1:] == shape else pad_second(vectors, shape[0])

    empty = next(model.parameters()).new_zeros(0, *shape)
    lengths = np.diff(texts.offsets) + tokens.template.extra[0]
    return Replayed(compute, lengths, empty, budget, seeds, model.packed)


def pad_second(rows: Tensor, length: int) -> Tensor:
    """Rows with zeros behind their second dimension, up to a length."""
    return nn.functional.pad(rows, (0, 0) * (rows.dim() - 2) + (0, length - rows.shape[1]))


def batch_texts(
    model: DualEncoder, tokens: Tokens, batch: Batch, mode: str, budget: Budget, seeds: Seeds
) -> tuple[Replayed, Replayed]:
    """Vectors of the batch's queries, and of its lists' passages in the order of `batch.mask`."""
    sides = {"query": batch.queries, "passage": batch.passages[batch.mask]}
    queries, passages = (
        text_vectors(model, tokens, side, rows, mode, budget, seeds.child(number))
        for number, (side, rows) in enumerate(sides.items())
    )
    return queries, passages


def pool_scores(
    model: DualEncoder, tokens: Tokens, queries: Ids, pool: Ids, mode: str, budget: Budget, world: World
) -> Tensor:
    """s_de(q, p) of this process' queries against a pool, of which each process encodes a share.

    Returns:
        Shape (queries, pool).
    """
    share, seeds = pool[world.slice(len(pool))], Seeds((0,))
    passages = world.gather(text_vectors(model, tokens, "passage", share, mode, budget, seeds).values())
    return model.scores(text_vectors(model, tokens, "query", queries, mode, budget, seeds).values(), passages)


def list_scores(score: Score, queries: Tensor, passages: Tensor, batch: Batch) -> Tensor:
    """s_de(q, p) of each query against its own list, from the vectors of `batch_texts`, by a model's `scores`.

    Returns:
        Shape (queries, list); of no meaning where no passage stands.
    """
    place = np.zeros(batch.passages.shape, np.int64)
    place[batch.mask] = np.arange(int(batch.mask.sum()))
    return score(queries, passages[torch.from_numpy(place).to(passages.device)])
