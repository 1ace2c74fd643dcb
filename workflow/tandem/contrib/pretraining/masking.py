"""Hide tokens of passages from an encoder, and cut spans out of passages.

Everything is drawn from (seed, step) for the whole batch at once, or for a passage by its position in the batch, so
that the draws do not depend on micro-batches and processes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.contrib.pretraining.options import Spans
from tandem.errors import UserError
from tandem.models.ragged import Ids, Ragged, join_ranges, sum_lengths
from tandem.training.forward import Seeds

IGNORED = -100  # the label of a token that is not to be predicted
MASKED, REPLACED = 0.8, 0.1  # shares of the chosen tokens; the rest is unchanged


def make_generator(seeds: Seeds, *purpose: int) -> np.random.Generator:
    """Return the generator of a step for one purpose, the same in every process and micro-batch."""
    return np.random.default_rng([*seeds.entropy[:2], *purpose])


@dataclass(frozen=True)
class Vocabulary:
    """The ids of a tokenizer that masking distinguishes."""

    mask: int
    special: Ids  # ids that are never hidden, never a replacement and never predicted
    ordinary: Ids

    @classmethod
    def of(cls, tokenizer: Any, name: str) -> "Vocabulary":
        """Read the ids of a tokenizer.

        Raises:
            UserError: it has no mask token; the message names the encoder.
        """
        if tokenizer.mask_token_id is None:
            raise UserError(
                f"encoder {name}: its tokenizer has no mask token; pre-train it with objective crop"
            )
        special = np.unique(np.array(tokenizer.all_special_ids, np.int64))
        ordinary = np.setdiff1d(np.arange(len(tokenizer)), special)
        return cls(tokenizer.mask_token_id, special, ordinary)

    def hide(
        self,
        texts: Ragged,
        share: float,
        draw: np.random.Generator,
        always: NDArray[np.bool_] | None = None,
    ) -> tuple[Ragged, Ragged]:
        """Mask as BERT does (Devlin et al. 2019 §3.1): 80 % of the chosen tokens are masked, 10 % replaced.

        Args:
            share: share of each text's tokens that are chosen; their number is rounded and at least one. Single tokens
                are chosen, not whole words.
            always: tokens that are chosen in any case, and count in the share; shape (tokens of all texts,).
        Returns:
            The ids that the encoder reads, and the labels: the original ids of the chosen tokens, `IGNORED` elsewhere.
            Both are as long as `texts`.
        """
        lengths = np.diff(texts.offsets)
        ids = texts.ids.astype(np.int64)
        rows = np.repeat(np.arange(len(texts)), lengths)
        is_special = np.isin(ids, self.special)

        # Rank the tokens of each text at random, special ones last; the first ones are chosen.
        is_other = np.ones(len(ids), bool) if always is None else ~always
        shuffled = np.lexsort((draw.random(len(ids)), is_other, is_special, rows))
        ranks = np.empty(len(ids), np.int64)
        ranks[shuffled] = join_ranges(np.zeros_like(lengths), lengths)
        ordinary = np.bincount(rows[~is_special], minlength=len(texts))
        numbers = np.maximum(1, np.rint(share * ordinary))
        is_chosen = ~is_special & ((ranks < numbers[rows]) | ~is_other)

        fate = draw.random(len(ids))
        others = draw.choice(self.ordinary, len(ids))
        replaced_or_same = np.where(fate < MASKED + REPLACED, others, ids)
        seen = np.where(fate < MASKED, self.mask, replaced_or_same)
        labels = np.where(is_chosen, ids, IGNORED)
        hidden = np.where(is_chosen, seen, ids)
        return Ragged(hidden, texts.offsets), Ragged(labels, texts.offsets)


def crop(texts: Ragged, spans: Spans, draw: np.random.Generator) -> Ragged:
    """Cut a random span out of each text; its share of the text and its position are uniform.

    The independent cropping of Contriever (Izacard et al. 2022). A span has at least one token if its text has any.
    """
    starts, sizes = draw_spans(texts, spans, draw)
    return Ragged(texts.ids[join_ranges(starts, sizes)], sum_lengths(sizes))


def draw_spans(texts: Ragged, spans: Spans, draw: np.random.Generator) -> tuple[Ids, Ids]:
    """Return where each text's span begins among the tokens of all texts, and its length, both of shape (texts,)."""
    lengths = np.diff(texts.offsets)
    shares = draw.uniform(spans.crop_shortest, spans.crop_longest, len(texts))
    places = draw.random(len(texts))
    wanted = np.rint(shares * lengths).astype(np.int64)
    sizes = np.minimum(lengths, np.maximum(1, wanted))
    shifts = np.floor(places * (lengths - sizes + 1)).astype(np.int64)
    return texts.offsets[:-1] + shifts, sizes


def select_tokens(texts: Ragged, kept: NDArray[np.bool_]) -> Ragged:
    """Return texts with only the tokens that `kept` selects; it has a value for each token of all texts."""
    rows = np.repeat(np.arange(len(texts)), np.diff(texts.offsets))
    return Ragged(texts.ids[kept], sum_lengths(np.bincount(rows[kept], minlength=len(texts))))


def delete_tokens(texts: Ragged, share: float, draw: np.random.Generator) -> Ragged:
    """Return texts without a share of the tokens on average; each text keeps at least one token, if it has any."""
    values = draw.random(len(texts.ids))
    kept = values >= share
    for row in range(len(texts)):
        start, stop = texts.offsets[row], texts.offsets[row + 1]
        if start < stop and not kept[start:stop].any():
            kept[start + int(values[start:stop].argmax())] = True
    return select_tokens(texts, kept)


def align_labels(labels: Ragged, before: int, width: int) -> Ids:
    """Return labels at the positions of the tokens in padded inputs, shape (texts, width).

    `before` is the number of special tokens in front of a text. Special tokens and padding have the label `IGNORED`.
    """
    columns = np.arange(width) - before
    lengths = np.diff(labels.offsets)[:, None]
    result = np.full((len(labels), width), IGNORED, np.int64)
    result[(columns >= 0) & (columns < lengths)] = labels.ids
    return result
