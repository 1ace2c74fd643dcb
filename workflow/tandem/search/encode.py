"""Stage `embeddings`: vectors of the passages, or of a split's queries, by a dual encoder.

Rows are encoded in blocks of a fixed size. Shards (`encode-shard`, one process or machine each) take whole blocks, the
stage itself makes those still missing and writes the manifest: the bytes are the same however the work was split.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tandem.artifact import Job, write_json, writing
from tandem.data.collection import Collection
from tandem.data.rows import Rows, query_rows, split_rows
from tandem.errors import UserError
from tandem.models.batching import token_batches
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.dual import DualEncoder
from tandem.models.hub import check_length
from tandem.models.template import Ids
from tandem.models.tokens import Tokens
from tandem.progress import Progress, say
from tandem.search.blocks import Blocks, Half, block_name
from tandem.search.partners import require_dataset, require_part, require_tokenizer
from tandem.search.shards import read_shard

TOWERS = {"passages": "passage", "queries": "query"}
# Lengths are padded to a multiple of this: in odd shapes the last bits of matrix products depend on the threads.
STEP = 8
LARGEST = float(np.finfo(np.float16).max)


class Encoder:
    """A dual encoder's tower with the token ids it reads.

    Raises:
        UserError: the model, the token ids and the dataset do not fit together.
    """

    def __init__(self, job: Job) -> None:
        require_dataset(job, "tokens")
        use_workers(job.execution.get("workers"))
        tokens, folder = job.inputs["tokens"], require_part(job.inputs["model"], "dual")
        self.model = DualEncoder.load(folder).to(device()).eval()
        self.tower = TOWERS[job.params["side"]]
        require_tokenizer(folder / ("shared" if self.model.shared else self.tower), tokens)
        opened = Tokens.open(tokens)
        self.template = opened.template
        self.texts = opened.queries if self.tower == "query" else opened.passages
        self.budget: int = job.params["batch_tokens"]
        self.mode = resolve_precision(job.params["precision"])
        longest = tokens.params[f"{self.tower}_length"] + self.template.extra[0]
        check_length(
            self.model.towers[self.tower], -(-longest // STEP) * STEP, f"{tokens.folder}: {self.tower}_length, padded,"
        )

    @torch.inference_mode()
    def encode(self, rows: Iterable[int], progress: Progress) -> Half:
        """Vectors of the texts at `rows`, fp16, shape (rows, dimension); a `UserError` where one does not fit fp16."""
        texts: list[Ids] = [self.texts[row] for row in rows]
        lengths = np.array([len(text) for text in texts], np.int64) + self.template.extra[0]
        padded = -(-lengths // STEP) * STEP
        vectors = np.empty((len(texts), self.model.dimension), np.float16)
        for batch in token_batches(padded, self.budget):
            made = self.model.encode(self.tower, [texts[i] for i in batch], self.template, self.mode, STEP)
            if not bool((made.abs() <= LARGEST).all()):
                raise UserError(
                    f"embeddings: a vector holds {made.abs().max():g}, fp16 ends at {LARGEST:g}; "
                    "train with normalize: true, or look for a diverged model"
                )
            vectors[batch] = made.half().cpu().numpy()
            progress.add(len(batch), tokens=int(lengths[batch].sum()))
        return vectors


def select(job: Job) -> tuple[Rows | range, list[str] | None]:
    """The rows to encode, in order, and the ids of queries (None for passages, which keep the corpus' order)."""
    collection = Collection(job.inputs["dataset"])
    if job.params["side"] == "passages":
        return range(collection.passages), None
    rows = split_rows(collection, job.params["split"])
    return rows, query_rows(collection).ids(rows)


def origin(job: Job) -> str:
    """Digest of what decides the vectors: parameters and the very files they are made from."""
    inputs = {role: job.inputs[role].manifest["files"] for role in ("dataset", "model", "tokens")}
    return hashlib.sha256(json.dumps([job.params, inputs], sort_keys=True).encode()).hexdigest()


def encode_blocks(job: Job, rows: Rows | range, blocks: Blocks, numbers: range) -> dict[int, dict[str, Any]]:
    """Make the blocks that are still missing among `numbers`.

    Returns:
        What is known about each of them.
    """
    told = {number: blocks.told(number) for number in numbers}
    missing = [number for number in numbers if told[number] is None]
    sizes = {number: blocks.span(number)[1] - blocks.span(number)[0] for number in numbers}
    if missing:
        encoder = Encoder(job)
        done = sum(sizes[number] for number in numbers) - sum(sizes[number] for number in missing)
        total = sum(sizes.values())
        with Progress(f"encode {job.key}", total, job.params["side"], done=done) as progress:
            for number in missing:
                start, stop = blocks.span(number)
                vectors = encoder.encode(rows[start:stop], progress)
                blocks.write(number, vectors, {"model": job.inputs["model"].key, "precision": encoder.mode})
                told[number] = blocks.told(number)
    return {number: facts for number, facts in told.items() if facts is not None}


def main_shard(words: list[str]) -> int:
    """Command `encode-shard`: make every n-th block, beginning with this shard's number; see `read_shard`."""
    job, shard, shards = read_shard("embeddings", words)
    rows, _ = select(job)
    blocks = Blocks(job.out, len(rows), job.params["block"], origin(job))
    told = encode_blocks(job, rows, blocks, range(shard, len(blocks), shards))
    write_json(Path(words[words.index("--out") + 1]), {block_name(n): facts for n, facts in told.items()})
    return 0


def run(job: Job) -> None:
    """Make what no shard has made, check every block, and write the manifest."""
    require_dataset(job, "tokens")
    rows, ids = select(job)
    blocks = Blocks(job.out, len(rows), job.params["block"], origin(job))
    told = encode_blocks(job, rows, blocks, range(len(blocks)))
    precisions = sorted({facts["precision"] for facts in told.values()})
    if len(precisions) > 1:
        say(f"embeddings {job.key}: blocks were made in {' and '.join(precisions)}; set precision to one of them")
    with writing(job) as draft:
        for number in range(len(blocks)):
            _share(blocks.path(number), draft.path(block_name(number)))
        write_json(draft.path("meta.json"), describe(job, blocks))
        if ids is not None:
            pq.write_table(pa.table({"query_id": pa.array(ids, pa.string())}), draft.path("ids.parquet"))
        draft.facts |= {job.params["side"]: len(rows), "blocks": len(blocks), "precision": precisions}


def _share(path: Path, to: Path) -> None:
    """Give a finished block a second name in the draft, so that it is safe in its place whenever we are killed."""
    try:
        os.link(path, to)
    except OSError:  # a file system without hard links
        shutil.copyfile(path, to)


def describe(job: Job, blocks: Blocks) -> dict[str, Any]:
    """What a searcher must know about the vectors."""
    model = job.inputs["model"]
    dual = json.loads((require_part(model, "dual") / "dual.json").read_text())
    names = ("dimension", "pooling", "normalize", "temperature")
    told = {"rows": blocks.rows, "block": blocks.size, "side": job.params["side"], "model": model.key}
    return told | {name: dual[name] for name in names}
