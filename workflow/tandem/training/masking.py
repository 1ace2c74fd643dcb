"""What pre-training hides from an encoder and what it cuts out of passages.

Everything is drawn from (seed, step) for the whole batch at once, or for a passage by its place in it: micro-batches
and processes meet the same draws.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tandem.errors import UserError
from tandem.models.ragged import Ids, Ragged, ends, spread
from tandem.training.forward import Seeds

IGNORED = -100  # the label of a token that is not to be predicted
MASKED, REPLACED = 0.8, 0.1  # of the chosen tokens; the rest stays as it is


def generator(seeds: Seeds, *purpose: int) -> np.random.Generator:
    """The generator of a step for one purpose: whatever the process and the micro-batch."""
    return np.random.default_rng([*seeds.entropy[:2], *purpose])


@dataclass(frozen=True)
class Vocabulary:
    """What masking needs to know of a tokenizer.

    Attributes:
        mask: id of the mask token.
        special: ids that are never hidden, never a replacement and never predicted.
        ordinary: all other ids, ascending.
    """

    mask: int
    special: Ids
    ordinary: Ids

    @classmethod
    def of(cls, tokenizer: Any, name: str) -> "Vocabulary":
        """Read it off a tokenizer; a `UserError` that names the encoder if it has no mask token."""
        if tokenizer.mask_token_id is None:
            raise UserError(f"encoder {name}: its tokenizer has no mask token; pre-train it with objective crop")
        special = np.unique(np.array(tokenizer.all_special_ids, np.int64))
        return cls(tokenizer.mask_token_id, special, np.setdiff1d(np.arange(len(tokenizer)), special))

    def hide(self, texts: Ragged, share: float, draw: np.random.Generator) -> tuple[Ragged, Ragged]:
        """BERT's masking (Devlin et al. 2019 §3.1): of the chosen tokens 80 % are masked, 10 % replaced, 10 % kept.

        Args:
            texts: token ids without the template's special tokens.
            share: how many tokens of each text are chosen, rounded, at least one; single tokens, not whole words.
            draw: the step's generator.
        Returns:
            The ids the encoder sees, and the labels: the ids that were chosen, `IGNORED` elsewhere; both like `texts`.
        """
        lengths, ids = np.diff(texts.offsets), texts.ids.astype(np.int64)
        row, special = np.repeat(np.arange(len(texts)), lengths), np.isin(ids, self.special)
        rank = np.empty(len(ids), np.int64)  # among the ordinary tokens of its text, in random order
        rank[np.lexsort((draw.random(len(ids)), special, row))] = spread(np.zeros_like(lengths), lengths)
        ordinary = np.bincount(row[~special], minlength=len(texts))
        chosen = ~special & (rank < np.maximum(1, np.rint(share * ordinary))[row])
        how, other = draw.random(len(ids)), draw.choice(self.ordinary, len(ids))
        seen = np.where(how < MASKED, self.mask, np.where(how < MASKED + REPLACED, other, ids))
        labels = np.where(chosen, ids, IGNORED)
        return Ragged(np.where(chosen, seen, ids), texts.offsets), Ragged(labels, texts.offsets)


def crop(texts: Ragged, shortest: float, longest: float, draw: np.random.Generator) -> Ragged:
    """A random span of each text; its share of the text and its place are uniform.

    The independent cropping of Contriever (Izacard et al. 2022). A text without tokens stays without.

    Args:
        texts: token ids.
        shortest: the least share.
        longest: the largest share; a span has at least one token.
        draw: the step's generator.
    """
    lengths = np.diff(texts.offsets)
    shares, places = draw.uniform(shortest, longest, len(texts)), draw.random(len(texts))
    sizes = np.minimum(lengths, np.maximum(1, np.rint(shares * lengths).astype(np.int64)))
    starts = texts.offsets[:-1] + np.floor(places * (lengths - sizes + 1)).astype(np.int64)
    return Ragged(texts.ids[spread(starts, sizes)], ends(sizes))


def aligned(labels: Ragged, before: int, width: int) -> Ids:
    """Labels where the padded inputs have their tokens.

    Args:
        labels: of each text.
        before: special tokens before a text.
        width: the inputs' length.
    Returns:
        Shape (texts, width), `IGNORED` at special tokens and padding.
    """
    at = np.arange(width) - before
    made = np.full((len(labels), width), IGNORED, np.int64)
    made[(at >= 0) & (at < np.diff(labels.offsets)[:, None])] = labels.ids
    return made
