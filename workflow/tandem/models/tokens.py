"""Read token ids, put special tokens around them, and pad them.

Ids are stored once per (dataset, tokenizer, lengths), without special tokens: a dual encoder and a cross-encoder put
their own around the same ids.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import TypeAdapter

from tandem.config.encoders import LONGEST_WORD
from tandem.errors import UserError
from tandem.models.ragged import (
    Ids,
    Ragged,
    cut_longest_first,
    join_ranges,
    round_up,
    sum_lengths,
)
from tandem.store.artifact import Artifact

if TYPE_CHECKING:
    from torch import Tensor

TokenTexts = Ragged | Sequence[Ids]


@dataclass(frozen=True)
class Inputs:
    """Hold rows of ids with their special tokens, one row after another.

    Attributes:
        ids: of all rows, int64, shape (tokens,).
        types: segments, same shape; None if the model has none.
        lengths: tokens of each row, shape (rows,).
        pad: id of padding.
        first: if rows are pairs, how many tokens of each belong to the first text, its special tokens included, shape
            (rows,).
    """

    ids: Ids
    types: Ids | None
    lengths: Ids
    pad: int
    first: Ids | None = None

    @classmethod
    def join(cls, parts: list[tuple[Ragged, int]], types: bool, pad: int) -> "Inputs":
        """Concatenate parts (texts, their segment) row by row."""
        sizes = [np.diff(part.offsets) for part, _ in parts]
        lengths = np.sum(sizes, axis=0)
        starts = sum_lengths(lengths)[:-1]
        ids = np.empty(int(lengths.sum()), np.int64)
        segments = np.zeros_like(ids) if types else None
        for (part, segment), size in zip(parts, sizes, strict=True):
            places = join_ranges(starts, size)
            ids[places] = part.ids
            if segments is not None and segment:
                segments[places] = segment
            starts = starts + size
        return cls(ids, segments, lengths, pad)

    def fill_up(self, rows: int) -> "Inputs":
        """Append rows of a single padding id until there are `rows`."""
        more = rows - len(self.lengths)
        types = None if self.types is None else np.pad(self.types, (0, more))
        first = None if self.first is None else np.pad(self.first, (0, more))
        ids = np.pad(self.ids, (0, more), constant_values=self.pad)
        return Inputs(
            ids, types, np.pad(self.lengths, (0, more), constant_values=1), self.pad, first
        )

    def to_tensors(self, multiple: int = 1, least: int = 0) -> "dict[str, Tensor]":
        """Pad to tensors for transformers, shape (rows, length), to a multiple of `multiple`, at least `least`."""
        import torch  # here, as stages that only read ids need no torch

        longest = int(self.lengths.max(initial=max(1, least)))
        width = round_up(longest, multiple)
        is_token = np.arange(width) < self.lengths[:, None]
        ids = np.full(is_token.shape, self.pad, np.int64)
        ids[is_token] = self.ids
        arrays = {"input_ids": ids, "attention_mask": is_token.astype(np.int64)}
        if self.types is not None:
            arrays["token_type_ids"] = np.zeros_like(ids)
            arrays["token_type_ids"][is_token] = self.types
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


# A word's characters are numbers: 1 + each byte of its UTF-8, between a number for its beginning and one for its end. A
# word of only zeros pads a text. ELMo and CharacterBERT use the same numbers.
BEGIN_OF_WORD = 259
END_OF_WORD = 260
PADDING_OF_WORD = 261
WORDS = "words"  # name of their files, next to the files of token ids
WORDS_DTYPE = "uint16"


@dataclass(frozen=True)
class WordInputs(Inputs):
    """Hold rows of words: id i is row i of `words`, which has the numbers of a word's characters."""

    words: Ragged = field(kw_only=True)

    def to_tensors(self, multiple: int = 1, least: int = 0) -> "dict[str, Tensor]":
        """Pad as `Inputs` does; `characters`, shape (words, LONGEST_WORD), has each word that occurs once.

        `input_ids` are rows of `characters`.
        """
        import torch

        tensors = super().to_tensors(multiple, least)
        ids = tensors["input_ids"].numpy()
        different, places = np.unique(ids, return_inverse=True)
        tensors["input_ids"] = torch.from_numpy(places.reshape(ids.shape))
        tensors["characters"] = torch.from_numpy(fill_words(self.words.take(different)))
        return tensors


def fill_words(words: Ragged) -> Ids:
    """Pad the numbers of words' characters, shape (words, LONGEST_WORD), int64; an empty word is all zeros."""
    lengths = np.diff(words.offsets)
    is_character = np.arange(LONGEST_WORD) < lengths[:, None]
    rows = np.full(is_character.shape, PADDING_OF_WORD, np.int64)
    rows[lengths == 0] = 0
    rows[is_character] = words.ids
    return rows


@dataclass(frozen=True)
class Template:
    """Describe the special tokens around a text and around a pair of texts.

    Attributes:
        single: ids before and after a single text.
        pair: ids before, between and after two texts.
        types: segments of a pair's (before, first, between, second, after); None if the model has none.
        pad: id of padding.
        titled: whether a passage is a title and a text, separated by the ids that separate the texts of a pair.
        longest_pair: tokens of a pair, at most, special ones included; None: no limit.
    """

    single: tuple[tuple[int, ...], tuple[int, ...]]
    pair: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    types: tuple[int, int, int, int, int] | None
    pad: int
    titled: bool = False
    longest_pair: int | None = None

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """Encode two probe texts, `a` and `b`, and read off what the tokenizer put around them.

        Raises:
            UserError: a probe has no tokens, or other tokens in a pair than by itself.
        """
        a = tokenizer("a", add_special_tokens=False)["input_ids"]
        b = tokenizer("b", add_special_tokens=False)["input_ids"]
        if not a or not b:
            problem = f"its tokenizer makes no token of {'b' if a else 'a'!r}, nor one for what it does not know"
            raise UserError(f"{tokenizer.name_or_path}: {problem}; add an unk_token")

        alone = tokenizer("a")["input_ids"]
        start = _find(alone, a)
        single = (tuple(alone[:start]), tuple(alone[start + len(a) :]))

        both = tokenizer("a", "b")
        ids = both["input_ids"]
        first = _find(ids, a)
        first_end = first + len(a)
        second = _find(ids, b, first_end)
        second_end = second + len(b)
        pair = (tuple(ids[:first]), tuple(ids[first_end:second]), tuple(ids[second_end:]))

        types = None
        if "token_type_ids" in both:
            segments = both["token_type_ids"]
            # The segment of several special tokens is that of the first one; 0 if there are none.
            before = segments[0] if pair[0] else 0
            between = segments[first_end] if pair[1] else 0
            after = segments[second_end] if pair[2] else 0
            types = (before, segments[first], between, segments[second], after)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        return cls(single, pair, types, pad)

    def plain(self) -> dict[str, object]:
        """Return the fields for `meta.json`; `titled` and `longest_pair` only if they are set."""
        fields = asdict(self)
        for name in ("titled", "longest_pair"):
            if not fields[name]:
                del fields[name]
        return fields

    @property
    def extra(self) -> tuple[int, int]:
        """Return the numbers of special tokens of a single text and of a pair."""
        return sum(map(len, self.single)), sum(map(len, self.pair))

    def separators(self, side: str) -> tuple[int, ...]:
        """Return the special tokens within a text: between the title and the text of titled passages."""
        return self.pair[1] if self.titled and side == "passage" else ()

    def single_inputs(self, texts: TokenTexts, side: str = "query") -> Inputs:
        """Join single texts with their special tokens; in titled passages the text is the second segment."""
        texts = Ragged.of(texts)
        before = _repeat(self.single[0], len(texts))
        after = _repeat(self.single[1], len(texts))
        inputs = Inputs.join(
            [(before, 0), (texts, 0), (after, 0)], self.types is not None, self.pad
        )
        if self.titled and side == "passage" and self.types is not None:
            return replace(inputs, types=self._title_types(texts, self.types))
        return inputs

    def _title_types(self, passages: Ragged, types: tuple[int, ...]) -> Ids:
        """Return the segments of titled passages with the special tokens around them, shape (tokens,)."""
        titles = count_title_tokens(passages)
        between = len(self.pair[1])
        counts = np.empty((len(passages), len(types)), np.int64)
        counts[:, 0] = len(self.single[0])
        counts[:, 2] = between
        counts[:, 4] = len(self.single[1])
        counts[:, 1] = titles
        counts[:, 3] = np.diff(passages.offsets) - titles - between
        segments = np.tile(np.array(types, np.int64), len(passages))
        return np.repeat(segments, counts.ravel())

    def with_titles(self, titles: list[list[int]], texts: list[list[int]], longest: int) -> Ragged:
        """Join title, separators and text of each passage, cut to at most `longest` tokens in all."""
        between = self.pair[1]
        title_lengths, text_lengths = cut_longest_first(
            np.array([len(title) for title in titles], np.int64),
            np.array([len(text) for text in texts], np.int64),
            longest - len(between),
        )
        rows = []
        for title, text, in_title, in_text in zip(
            titles, texts, title_lengths, text_lengths, strict=True
        ):
            rows.append(np.array([*title[:in_title], *between, *text[:in_text]], np.int64))
        return replace(Ragged.of(rows), titles=title_lengths)

    def pair_lengths(self, first: Ids, second: Ids, texts: Ids | int = 1) -> Ids:
        """Return the lengths of pairs of texts, with special tokens, cut to `longest_pair`.

        Args:
            first, second: numbers of tokens of the two texts, of any shape.
            texts: how many parts the second text consists of; the first one is read with each of them.
        """
        lengths = texts * (first + self.extra[1]) + second
        return (
            lengths if self.longest_pair is None else np.minimum(lengths, texts * self.longest_pair)
        )

    def pair_inputs(self, first: Ragged, second: Ragged) -> Inputs:
        """Join pairs (query, passage) with special tokens, cut to `longest_pair`.

        In `Inputs.first` the tokens between the two texts belong to the query.
        """
        if self.longest_pair is not None:
            limit = self.longest_pair - self.extra[1]
            first_lengths, second_lengths = cut_longest_first(
                np.diff(first.offsets), np.diff(second.offsets), limit
            )
            first = first.cut(first_lengths)
            second = second.cut(second_lengths)
        before, between, after = (_repeat(part, len(first)) for part in self.pair)
        texts = (before, first, between, second, after)
        segments = self.types or (0, 0, 0, 0, 0)
        inputs = Inputs.join(
            list(zip(texts, segments, strict=True)), self.types is not None, self.pad
        )
        first_segment = np.diff(first.offsets) + len(self.pair[0]) + len(self.pair[1])
        return replace(inputs, first=first_segment)


@dataclass(frozen=True)
class WordTemplate(Template):
    """Describe the special tokens around texts of words; every id, special tokens included, is a row of `words`."""

    words: Ragged = field(kw_only=True, compare=False)

    def single_inputs(self, texts: TokenTexts, side: str = "query") -> Inputs:
        """Join as `Template` does, and add the words' characters."""
        inputs = super().single_inputs(texts, side)
        return WordInputs(**vars(inputs), words=self.words)


def count_title_tokens(passages: Ragged) -> Ids:
    """Return how many tokens the titles of passages have, shape (passages,)."""
    if passages.titles is None:
        raise ValueError(
            "these passages do not know where their titles end: take them from the tokens' `passages`"
        )
    return passages.titles


def _repeat(part: tuple[int, ...], rows: int) -> Ragged:
    return Ragged(np.tile(np.array(part, np.int64), rows), np.arange(rows + 1) * len(part))


def _find(ids: list[int], part: list[int], start: int = 0) -> int:
    for i in range(start, len(ids) - len(part) + 1):
        if ids[i : i + len(part)] == part:
            return i
    raise UserError(
        f"encoder: its tokenizer makes {part} of a text alone, but {ids} of it among other tokens"
    )


@dataclass(frozen=True)
class Tokens:
    """Hold an opened `tokens` artifact: rows are in the order of corpus.parquet and queries.parquet."""

    passages: Ragged
    queries: Ragged
    template: Template

    @classmethod
    def open(cls, artifact: Artifact) -> "Tokens":
        """Memory-map the ids."""
        meta = json.loads(artifact.path("meta.json").read_text())
        passages = Ragged.open(artifact.folder, "passages", meta["dtype"])
        queries = Ragged.open(artifact.folder, "queries", meta["dtype"])
        template = TypeAdapter(Template).validate_python(meta["template"])
        if meta.get("words"):
            words = Ragged.open(artifact.folder, WORDS, WORDS_DTYPE)
            template = WordTemplate(**vars(template), words=words)
        return cls(passages, queries, template)
