"""Stage `tokens`: token ids of every passage and query, made once per (dataset, tokenizer, lengths), memory-mapped.

Ids are stored without special tokens: a dual encoder and a cross-encoder put their own around the same bytes. 8.8
million passages of at most 128 tokens take about 1.5 GB on disk and are made in the memory of one batch.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection, contents
from tandem.models.hub import load_tokenizer, tokenizer_digest
from tandem.models.ragged import Ragged, write_ragged
from tandem.models.template import Template
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

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
