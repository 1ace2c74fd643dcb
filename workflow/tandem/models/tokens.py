"""Token ids: stored once per (dataset, tokenizer, lengths), put between special tokens, padded.

Ids are stored without special tokens: a dual encoder and a cross-encoder put their own around the same bytes.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import TypeAdapter

from tandem.errors import UserError
from tandem.models.ragged import Ids, Ragged, ends, longest_first, ranges
from tandem.store.artifact import Artifact

if TYPE_CHECKING:
    from torch import Tensor

TokenTexts = Ragged | Sequence[Ids]


@dataclass(frozen=True)
class Inputs:
    """Rows of ids, special tokens included, laid end to end: ids and segments (tokens,), int64, and lengths (rows,).

    `types` is None where the model has no segments. Of pairs, `first` says how many tokens of each row belong to the
    first text, its special tokens included, shape (rows,).
    """

    ids: Ids
    types: Ids | None
    lengths: Ids
    pad: int
    first: Ids | None = None

    @classmethod
    def join(cls, parts: list[tuple[Ragged, int]], types: bool, pad: int) -> "Inputs":
        """Put parts one after the other in every row."""
        sizes = [np.diff(part.offsets) for part, _ in parts]
        lengths = np.sum(sizes, axis=0)
        at, ids = ends(lengths)[:-1], np.empty(int(lengths.sum()), np.int64)
        segments = np.zeros_like(ids) if types else None
        for (part, segment), size in zip(parts, sizes, strict=True):
            places = ranges(at, size)
            ids[places] = part.ids
            if segments is not None and segment:
                segments[places] = segment
            at = at + size
        return cls(ids, segments, lengths, pad)

    def filled(self, rows: int) -> "Inputs":
        """The same with more rows behind, each a single padding id, up to `rows`."""
        more = rows - len(self.lengths)
        types = None if self.types is None else np.pad(self.types, (0, more))
        first = None if self.first is None else np.pad(self.first, (0, more))
        ids = np.pad(self.ids, (0, more), constant_values=self.pad)
        return Inputs(ids, types, np.pad(self.lengths, (0, more), constant_values=1), self.pad, first)

    def padded(self, multiple: int = 1, least: int = 0) -> "dict[str, Tensor]":
        """Padded tensors, shape (rows, longest), for transformers: of `least` tokens or more, up to a multiple."""
        import torch  # not by stages that only read ids

        width = -(-int(self.lengths.max(initial=max(1, least))) // multiple) * multiple
        stands = np.arange(width) < self.lengths[:, None]
        ids = np.full(stands.shape, self.pad, np.int64)
        ids[stands] = self.ids
        arrays = {"input_ids": ids, "attention_mask": stands.astype(np.int64)}
        if self.types is not None:
            arrays["token_type_ids"] = np.zeros_like(ids)
            arrays["token_type_ids"][stands] = self.types
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


@dataclass(frozen=True)
class Template:
    """The ids around one text (before, after) and a pair (before, between, after).

    `types` are the segments of (before, first, between, second, after) in a pair; None where the model has none.
    `titled` says that passages are a title, the ids between a pair's texts, and a text. `longest_pair` is how many
    tokens a pair has at most, special ones included; None: what both texts have.
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

        A `UserError` where they have no tokens, or others in a pair than alone.
        """
        a, b = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", "b"))
        if not a or not b:
            problem = f"its tokenizer makes no token of {'b' if a else 'a'!r}, nor one for what it does not know"
            raise UserError(f"{tokenizer.name_or_path}: {problem}; add an unk_token")
        single, both = tokenizer("a")["input_ids"], tokenizer("a", "b")
        ids, at = both["input_ids"], _find(single, a)
        first = _find(ids, a)
        second = _find(ids, b, first + len(a))
        pair = (tuple(ids[:first]), tuple(ids[first + len(a) : second]), tuple(ids[second + len(b) :]))
        types = None
        if "token_type_ids" in both:
            segment = both["token_type_ids"]
            around = [(0, pair[0]), (first + len(a), pair[1]), (second + len(b), pair[2])]
            before, between, after = (segment[i] if part else 0 for i, part in around)
            types = (before, segment[first], between, segment[second], after)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        return cls((tuple(single[:at]), tuple(single[at + len(a) :])), pair, types, pad)

    def plain(self) -> dict[str, Any]:
        """The fields as `meta.json` has them, without what is rarely there."""
        return {name: value for name, value in asdict(self).items() if name not in ("titled", "longest_pair") or value}

    @property
    def extra(self) -> tuple[int, int]:
        """How many special tokens a single text and a pair get."""
        return sum(map(len, self.single)), sum(map(len, self.pair))

    def separators(self, side: str) -> tuple[int, ...]:
        """The special tokens within a text: between the title and the text of titled passages."""
        return self.pair[1] if self.titled and side == "passage" else ()

    def single_inputs(self, texts: TokenTexts, side: str = "query") -> Inputs:
        """Single texts with their special tokens; in titled passages the text after the title is the second segment."""
        texts = Ragged.of(texts)
        before, after = (_repeated(part, len(texts)) for part in self.single)
        inputs = Inputs.join([(before, 0), (texts, 0), (after, 0)], self.types is not None, self.pad)
        if self.titled and side == "passage" and self.types is not None:
            return replace(inputs, types=self._title_types(texts, self.types))
        return inputs

    def _title_types(self, passages: Ragged, types: tuple[int, ...]) -> Ids:
        """Segments of titled passages with the special tokens around them, shape (tokens,)."""
        titles, between = titles_of(passages), len(self.pair[1])
        counts = np.empty((len(passages), len(types)), np.int64)
        counts[:, 0], counts[:, 2], counts[:, 4] = len(self.single[0]), between, len(self.single[1])
        counts[:, 1], counts[:, 3] = titles, np.diff(passages.offsets) - titles - between
        return np.repeat(np.tile(np.array(types, np.int64), len(passages)), counts.ravel())

    def with_titles(self, titles: list[list[int]], texts: list[list[int]], longest: int) -> Ragged:
        """Title, the ids between, and text of each passage, of at most `longest` tokens in all."""
        first, second = (np.array([len(row) for row in side], np.int64) for side in (titles, texts))
        between = self.pair[1]
        lengths = longest_first(first, second, longest - len(between))
        rows = zip(titles, texts, *lengths, strict=True)
        joined = Ragged.of([np.array([*title[:a], *between, *text[:b]], np.int64) for title, text, a, b in rows])
        return replace(joined, titles=lengths[0])

    def pair_lengths(self, first: Ids, second: Ids) -> Ids:
        """The lengths of pairs of texts of these lengths: with special tokens, cut to `longest_pair`; any shape."""
        lengths = first + second + self.extra[1]
        return lengths if self.longest_pair is None else np.minimum(lengths, self.longest_pair)

    def pair_inputs(self, first: Ragged, second: Ragged) -> Inputs:
        """Pairs (query, passage) with their special tokens, cut to `longest_pair`; those between are the query's."""
        if self.longest_pair is not None:
            sizes = np.diff(first.offsets), np.diff(second.offsets)
            lengths = longest_first(*sizes, self.longest_pair - self.extra[1])
            first, second = first.cut(lengths[0]), second.cut(lengths[1])
        before, between, after = (_repeated(part, len(first)) for part in self.pair)
        parts = zip((before, first, between, second, after), self.types or (0, 0, 0, 0, 0), strict=True)
        inputs = Inputs.join(list(parts), self.types is not None, self.pad)
        return replace(inputs, first=np.diff(first.offsets) + len(self.pair[0]) + len(self.pair[1]))


def titles_of(passages: Ragged) -> Ids:
    """How many tokens the titles of passages have, shape (passages,)."""
    if passages.titles is None:
        raise ValueError("these passages do not know where their titles end: take them from the tokens' `passages`")
    return passages.titles


def _repeated(part: tuple[int, ...], rows: int) -> Ragged:
    return Ragged(np.tile(np.array(part, np.int64), rows), np.arange(rows + 1) * len(part))


def _find(ids: list[int], part: list[int], start: int = 0) -> int:
    for i in range(start, len(ids) - len(part) + 1):
        if ids[i : i + len(part)] == part:
            return i
    raise UserError(f"encoder: its tokenizer makes {part} of a text alone, but {ids} of it among other tokens")


@dataclass(frozen=True)
class Tokens:
    """An opened `tokens` artifact: rows stand in the order of corpus.parquet and queries.parquet."""

    passages: Ragged
    queries: Ragged
    template: Template

    @classmethod
    def open(cls, artifact: Artifact) -> "Tokens":
        """Memory-map the ids."""
        meta = json.loads(artifact.path("meta.json").read_text())
        passages, queries = (Ragged.open(artifact.folder, name, meta["dtype"]) for name in ("passages", "queries"))
        return cls(passages, queries, TypeAdapter(Template).validate_python(meta["template"]))
