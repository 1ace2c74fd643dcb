"""Token ids: stored once per (dataset, tokenizer, lengths), put between special tokens, padded.

Ids are stored without special tokens: a dual encoder and a cross-encoder put their own around the same bytes.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow.parquet as pq
import torch
from pydantic import TypeAdapter
from torch import Tensor

from tandem.cluster.progress import Progress, say, warn
from tandem.data.collection import Collection, contents
from tandem.data.language import vocabulary_warnings
from tandem.errors import UserError
from tandem.models.described import longest_input
from tandem.models.hub import load_tokenizer, tokenizer_digest
from tandem.models.ragged import Ids, Ragged, ends, longest_first, ranges, write_ragged
from tandem.stages.training import TokensParams
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

ROWS = 8192  # texts that are tokenised at once
MANY = 0.01  # a larger share of a side's texts that are cut is worth a warning
Texts = Ragged | Sequence[Ids]


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

    def padded(self, multiple: int = 1) -> dict[str, Tensor]:
        """Tensors of (rows, longest), the length up to a multiple of `multiple`, as transformers takes them."""
        width = -(-int(self.lengths.max(initial=0)) // multiple) * multiple
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
        """Encode two probe texts and read off what the tokenizer put around them."""
        a, b = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", "b"))
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

    def single_inputs(self, texts: Ragged, titled: bool = False) -> Inputs:
        """Single texts in their special tokens; with `titled`, what follows the title is the second segment."""
        before, after = (_repeated(part, len(texts)) for part in self.single)
        inputs = Inputs.join([(before, 0), (texts, 0), (after, 0)], self.types is not None, self.pad)
        if titled and inputs.types is not None:
            separators = np.cumsum(inputs.ids == self.pair[1][-1]) - (inputs.ids == self.pair[1][-1])  # before a token
            first = ends(inputs.lengths)[:-1]
            inputs.types[separators > np.repeat(separators[first], inputs.lengths)] = 1
        return inputs

    def with_titles(self, titles: list[list[int]], texts: list[list[int]], longest: int) -> list[list[int]]:
        """Title, the ids between, and text of each passage, of at most `longest` tokens in all."""
        first, second = (np.array([len(row) for row in side], np.int64) for side in (titles, texts))
        between = self.pair[1]
        lengths = longest_first(first, second, longest - len(between))
        rows = zip(titles, texts, *lengths, strict=True)
        return [[*title[:a], *between, *text[:b]] for title, text, a, b in rows]

    def cut(self, first: Ragged, second: Ragged) -> tuple[Ragged, Ragged]:
        """The texts of pairs, cut to `longest_pair`."""
        if self.longest_pair is None:
            return first, second
        sizes = np.diff(first.offsets), np.diff(second.offsets)
        lengths = longest_first(*sizes, self.longest_pair - self.extra[1])
        return first.cut(lengths[0]), second.cut(lengths[1])

    def pair_inputs(self, first: Ragged, second: Ragged) -> Inputs:
        """Pairs (query, passage) in their special tokens; those between the two belong to the first."""
        first, second = self.cut(first, second)
        before, between, after = (_repeated(part, len(first)) for part in self.pair)
        parts = zip((before, first, between, second, after), self.types or (0, 0, 0, 0, 0), strict=True)
        inputs = Inputs.join(list(parts), self.types is not None, self.pad)
        return replace(inputs, first=np.diff(first.offsets) + len(self.pair[0]) + len(self.pair[1]))

    def singles(self, texts: Texts, multiple: int = 1) -> dict[str, Tensor]:
        """Padded model inputs for single texts: each tensor is (texts, longest), up to a multiple of `multiple`."""
        return self.single_inputs(Ragged.of(texts)).padded(multiple)


def _repeated(part: tuple[int, ...], rows: int) -> Ragged:
    return Ragged(np.tile(np.array(part, np.int64), rows), np.arange(rows + 1) * len(part))


def _find(ids: list[int], part: list[int], start: int = 0) -> int:
    """Index of a sub-list at or after `start`."""
    for i in range(start, len(ids) - len(part) + 1):
        if ids[i : i + len(part)] == part:
            return i
    raise ValueError(f"{part} does not occur in {ids}")


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


@dataclass
class _Side:
    """How the texts of a side become ids, and how many of them were cut.

    Attributes:
        length: tokens of a text behind the prompt, without special tokens; longer ones are cut.
    """

    name: str
    tokenizer: Any
    length: int
    prompt: str
    texts: int = 0
    cut: int = 0

    @classmethod
    def of(cls, job: Job[TokensParams], tokenizer: Any, name: str, length: int) -> "_Side":
        """A side by the job's parameters; a `UserError` if its prompt leaves no room for a text."""
        prompt = job.params.prompts.get(name, "")
        if prompt and (size := len(tokenizer(prompt, add_special_tokens=False)["input_ids"])) >= length:
            raise UserError(
                f"lengths.{name} is {length}, but the prompt {prompt!r} has {size} tokens: raise it, or shorten "
                f"prompts.{name} of the encoder's entry"
            )
        return cls(name, tokenizer, length, prompt)

    def tokenise(self, texts: list[str]) -> list[list[int]]:
        """Ids of texts behind the prompt."""
        ids, cut = self._tokenised(texts, self.prompt)
        self._count(cut)
        return ids

    def tokenise_titled(self, titles: list[str], texts: list[str], template: Template) -> list[list[int]]:
        """Ids of titles behind the prompt and of texts, with the ids between them."""
        (heads, _), (bodies, _) = self._tokenised(titles, self.prompt), self._tokenised(texts, "")
        room = self.length - len(template.pair[1])
        self._count([len(head) + len(body) > room for head, body in zip(heads, bodies, strict=True)])
        return template.with_titles(heads, bodies, self.length)

    def _tokenised(self, texts: list[str], prompt: str) -> tuple[list[list[int]], list[bool]]:
        encoded = self.tokenizer(
            [prompt + text for text in texts],
            add_special_tokens=False,
            truncation=True,
            max_length=self.length,
            return_attention_mask=False,
        )
        return encoded["input_ids"], [bool(encoding.overflowing) for encoding in encoded.encodings]

    def _count(self, cut: list[bool]) -> None:
        self.texts += len(cut)
        self.cut += sum(cut)

    def truncation(self) -> str:
        """A line that says how many texts were cut; empty where none was."""
        share = f": {self.cut / self.texts:.1%}" if self.is_often_cut else ""
        name, length = self.name, self.length
        line = f"{self.cut:,} of {self.texts:,} {name} texts are longer than lengths.{name} ({length}) and cut{share}"
        return line if self.cut else ""

    @property
    def is_often_cut(self) -> bool:
        """Whether so many were cut that it is worth a warning."""
        return self.cut > MANY * self.texts


def run(job: Job[TokensParams]) -> None:
    """Stage `tokens`: tokenise the corpus and all queries, truncated to the parameters' lengths, and count the cut."""
    params, data = job.params, job.inputs["dataset"]
    tokenizer = load_tokenizer(job.inputs["encoder"].folder / "hf")
    dtype = "uint16" if len(tokenizer) <= 1 << 16 else "uint32"
    template = replace(Template.of(tokenizer), titled=params.titled, longest_pair=params.pair_length)
    passage = _Side.of(job, tokenizer, "passage", params.passage_length)
    query = _Side.of(job, tokenizer, "query", params.query_length)
    with writing(job) as draft:
        ids = passage_ids(Collection(data), passage, template, f"tokens {job.key}")
        _, n_tokens = write_ragged(draft.folder, "passages", ids, dtype)
        write_ragged(draft.folder, "queries", query_ids(data, query), dtype)
        digest = tokenizer_digest(tokenizer.backend_tokenizer.to_str())
        write_json(draft.path("meta.json"), {"dtype": dtype, "tokenizer": digest, "template": template.plain()})
        draft.facts |= {"passages": passage.texts, "queries": query.texts, "passage_tokens": n_tokens}
        draft.facts["truncated"] = {"passages": passage.cut, "queries": query.cut}
        lines = []
        for side in (passage, query):
            if side.is_often_cut:
                lines.append(side.truncation())
            elif line := side.truncation():
                say(f"tokens {job.key} · {line}")
        pieces = [tokenizer.convert_tokens_to_string([piece]) for piece in tokenizer.get_vocab()]
        longest = max(passage.length, query.length) + template.extra[0]
        for line in [*lines, *vocabulary_warnings(data, pieces), *_length_warnings(job, longest)]:
            warn(job, draft, line)


def passage_ids(collection: Collection, side: _Side, template: Template, label: str) -> Iterator[list[list[int]]]:
    """Ids of the corpus, a batch at a time."""
    with Progress(label, collection.passages, "passages") as progress:
        for batch in collection.batches(ROWS, ("title", "text")):
            titles, texts = (column.to_pylist() for column in batch.columns)
            if template.titled:
                ids = side.tokenise_titled(titles, texts, template)
            else:
                ids = side.tokenise([contents(*row) for row in zip(titles, texts, strict=True)])
            progress.add(len(ids), tokens=sum(map(len, ids)))
            yield ids


def query_ids(dataset: Artifact, side: _Side) -> Iterator[list[list[int]]]:
    """Ids of all queries, a batch at a time."""
    texts = pq.read_table(dataset.path("queries.parquet"), columns=["text"])["text"]
    for start in range(0, len(texts), ROWS):
        yield side.tokenise(texts.slice(start, ROWS).to_pylist())


def _length_warnings(job: Job[TokensParams], tokens: int) -> list[str]:
    """A line where inputs may be longer than those that the encoder's files say it reads."""
    limit = longest_input(job.inputs["encoder"].folder / "hf")
    if limit is None or tokens <= limit:
        return []
    return [f"texts have up to {tokens} tokens, special ones included; the encoder's files say it reads {limit}"]
