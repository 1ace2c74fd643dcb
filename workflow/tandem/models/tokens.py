"""Stage `tokens`: token ids of every passage and query, made once per (dataset, tokenizer, lengths), memory-mapped.

Ids are stored without special tokens: a dual encoder and a cross-encoder put their own around the same bytes. 8.8
million passages of at most 128 tokens take about 1.5 GB on disk and are made in the memory of one batch.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tandem.artifact import Artifact, Job, write_json, writing
from tandem.data.collection import Collection, contents
from tandem.models.hub import load_tokenizer, tokenizer_digest
from tandem.models.template import Ids, Template
from tandem.progress import Progress

ROWS = 8192


@dataclass(frozen=True)
class Ragged:
    """Rows of token ids of different lengths: `ids[offsets[i]:offsets[i + 1]]` is row i."""

    ids: Ids
    offsets: Ids

    @classmethod
    def open(cls, folder: Path, name: str, dtype: str) -> "Ragged":
        """Map the two files of `write_ragged`; an empty one is an empty array."""
        path = folder / f"{name}.ids"
        empty = path.stat().st_size == 0
        ids: Ids = np.empty(0, dtype) if empty else np.memmap(path, dtype=dtype, mode="r")
        return cls(ids, np.load(folder / f"{name}.offsets.npy", mmap_mode="r"))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ids:
        return np.asarray(self.ids[self.offsets[row] : self.offsets[row + 1]])

    def lengths(self, rows: Ids) -> Ids:
        """Token counts of some rows, of the rows' shape."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])


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


def write_ragged(folder: Path, name: str, batches: Iterable[list[list[int]]], dtype: str) -> tuple[int, int]:
    """Write rows of ids as they come: `<name>.ids` (raw) and `<name>.offsets.npy` (int64).

    Returns:
        Number of rows and of tokens.
    """
    lengths: list[Ids] = []
    with open(folder / f"{name}.ids", "wb") as file:
        for batch in batches:
            lengths.append(np.array([len(row) for row in batch], np.int64))
            file.write(np.concatenate([np.asarray(row, dtype) for row in batch] or [np.empty(0, dtype)]).tobytes())
    offsets = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
    np.save(folder / f"{name}.offsets.npy", offsets)
    return len(offsets) - 1, int(offsets[-1])


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
