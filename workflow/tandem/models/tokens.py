"""Token ids: stored once per dataset and tokenizer, put between special tokens, padded."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from tandem.artifact import Artifact, Job, write_json, writing
from tandem.data.collection import Collection, contents
from tandem.models.hub import load_tokenizer, tokenizer_digest
from tandem.models.ragged import Ids, Ragged, ends, spread, write_ragged
from tandem.progress import Progress


@dataclass(frozen=True)
class Inputs:
    """Rows of ids, special tokens included, laid end to end.

    Attributes:
        ids: token ids, int64, shape (tokens,).
        types: segment of each token, same shape; None where the model has no segments.
        lengths: tokens of each row, shape (rows,).
        pad: the padding id.
    """

    ids: Ids
    types: Ids | None
    lengths: Ids
    pad: int

    @classmethod
    def join(cls, parts: list[tuple[Ragged, int]], types: bool, pad: int) -> "Inputs":
        """Put parts one after the other in every row.

        Args:
            parts: each part's rows, and its segment.
            types: whether the model has segments.
            pad: the padding id.
        """
        sizes = [np.diff(part.offsets) for part, _ in parts]
        lengths = np.sum(sizes, axis=0)
        at, ids = ends(lengths)[:-1], np.empty(int(lengths.sum()), np.int64)
        segments = np.zeros_like(ids) if types else None
        for (part, segment), size in zip(parts, sizes, strict=True):
            places = spread(at, size)
            ids[places] = part.ids
            if segments is not None and segment:
                segments[places] = segment
            at = at + size
        return cls(ids, segments, lengths, pad)

    def filled(self, rows: int) -> "Inputs":
        """The same with more rows behind, each a single padding id, up to `rows`."""
        more = rows - len(self.lengths)
        types = None if self.types is None else np.pad(self.types, (0, more))
        ids = np.pad(self.ids, (0, more), constant_values=self.pad)
        return Inputs(ids, types, np.pad(self.lengths, (0, more), constant_values=1), self.pad)

    def padded(self, multiple: int = 1) -> dict[str, Tensor]:
        """Tensors of (rows, longest), the length up to a multiple of `multiple`, as transformers takes them."""
        width = -(-int(self.lengths.max(initial=0)) // multiple) * multiple
        stands = np.arange(width) < self.lengths[:, None]
        ids = np.full(stands.shape, self.pad, np.int64)
        ids[stands] = self.ids
        made = {"input_ids": ids, "attention_mask": stands.astype(np.int64)}
        if self.types is not None:
            made["token_type_ids"] = np.zeros_like(ids)
            made["token_type_ids"][stands] = self.types
        return {name: torch.from_numpy(array) for name, array in made.items()}


Texts = Ragged | Sequence[Ids]


@dataclass(frozen=True)
class Template:
    """The special tokens around one text or a pair, and the segment numbers of a pair.

    Attributes:
        single: ids before and after one text.
        pair: ids before the first text, between the two, and after the second.
        types: segment of (before, first, between, second, after) in a pair; None where the model has no segments.
        pad: the padding id.
    """

    single: tuple[tuple[int, ...], tuple[int, ...]]
    pair: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    types: tuple[int, int, int, int, int] | None
    pad: int

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """Encode two probe texts and read off what the tokenizer put around them."""
        a, b = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", "b"))
        one, two = tokenizer("a")["input_ids"], tokenizer("a", "b")
        ids, at = two["input_ids"], _find(one, a)
        first = _find(two["input_ids"], a)
        second = _find(ids, b, first + len(a))
        pair = (tuple(ids[:first]), tuple(ids[first + len(a) : second]), tuple(ids[second + len(b) :]))
        types = None
        if "token_type_ids" in two:
            segment = two["token_type_ids"]
            around = [(0, pair[0]), (first + len(a), pair[1]), (second + len(b), pair[2])]
            before, between, after = (segment[i] if part else 0 for i, part in around)
            types = (before, segment[first], between, segment[second], after)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        return cls((tuple(one[:at]), tuple(one[at + len(a) :])), pair, types, pad)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Self:
        """The template `to_json` described."""
        types = told["types"]
        return cls(
            tuple(tuple(part) for part in told["single"]),  # type: ignore[arg-type]
            tuple(tuple(part) for part in told["pair"]),  # type: ignore[arg-type]
            None if types is None else tuple(types),
            told["pad"],
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values for a manifest."""
        return asdict(self)

    @property
    def extra(self) -> tuple[int, int]:
        """How many special tokens a single text and a pair get."""
        return sum(map(len, self.single)), sum(map(len, self.pair))

    def single_inputs(self, texts: Ragged) -> Inputs:
        """Single texts in their special tokens."""
        before, after = (_repeated(part, len(texts)) for part in self.single)
        return Inputs.join([(before, 0), (texts, 0), (after, 0)], self.types is not None, self.pad)

    def pair_inputs(self, first: Ragged, second: Ragged) -> Inputs:
        """Pairs (query, passage) in their special tokens."""
        before, between, after = (_repeated(part, len(first)) for part in self.pair)
        parts = zip((before, first, between, second, after), self.types or (0, 0, 0, 0, 0), strict=True)
        return Inputs.join(list(parts), self.types is not None, self.pad)

    def singles(self, texts: Texts, multiple: int = 1) -> dict[str, torch.Tensor]:
        """Padded model inputs for single texts: each tensor is (texts, longest), up to a multiple of `multiple`."""
        return self.single_inputs(Ragged.of(texts)).padded(multiple)

    def pairs(self, first: Texts, second: Texts, multiple: int = 1) -> dict[str, torch.Tensor]:
        """Padded model inputs for pairs (query, passage): each tensor is (pairs, longest), up to a multiple."""
        return self.pair_inputs(Ragged.of(first), Ragged.of(second)).padded(multiple)


def _repeated(part: tuple[int, ...], rows: int) -> Ragged:
    """The same ids in every row."""
    return Ragged(np.tile(np.array(part, np.int64), rows), np.arange(rows + 1) * len(part))


def _find(ids: list[int], part: list[int], start: int = 0) -> int:
    """Index of a sub-list at or after `start`."""
    for i in range(start, len(ids) - len(part) + 1):
        if ids[i : i + len(part)] == part:
            return i
    raise ValueError(f"{part} does not occur in {ids}")


ROWS = 8192


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
        ragged = [Ragged.open(artifact.folder, name, meta["dtype"]) for name in ("passages", "queries")]
        return cls(ragged[0], ragged[1], Template.from_json(meta["template"]))


def run(job: Job) -> None:
    """Tokenise the corpus and all queries, truncated to `passage_length` and `query_length` tokens."""
    collection = Collection(job.inputs["dataset"])
    tokenizer = load_tokenizer(job.inputs["encoder"].folder / "hf")
    dtype = "uint16" if len(tokenizer) <= 1 << 16 else "uint32"

    def ids(texts: list[str], length: int) -> list[list[int]]:
        made: list[list[int]] = tokenizer(
            texts, add_special_tokens=False, truncation=True, max_length=length, return_attention_mask=False
        )["input_ids"]
        return made

    def passages() -> Iterator[list[list[int]]]:
        """Token ids of the corpus, a batch at a time."""
        with Progress(f"tokens {job.key}", collection.passages, "passages") as progress:
            for batch in collection.batches(ROWS, ("title", "text")):
                rows = [contents(*row) for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
                made = ids(rows, job.params["passage_length"])
                progress.add(len(made), tokens=sum(map(len, made)))
                yield made

    def queries() -> Iterator[list[list[int]]]:
        texts = pq.read_table(job.inputs["dataset"].path("queries.parquet"), columns=["text"])["text"]
        for start in range(0, len(texts), ROWS):
            yield ids(texts.slice(start, ROWS).to_pylist(), job.params["query_length"])

    with writing(job) as draft:
        n_passages, n_tokens = write_ragged(draft.folder, "passages", passages(), dtype)
        n_queries, _ = write_ragged(draft.folder, "queries", queries(), dtype)
        meta: dict[str, Any] = {
            "dtype": dtype,
            "tokenizer": tokenizer_digest(tokenizer.backend_tokenizer.to_str()),
            "template": Template.of(tokenizer).to_json(),
        }
        write_json(draft.path("meta.json"), meta)
        draft.facts |= {"passages": n_passages, "queries": n_queries, "passage_tokens": n_tokens}
