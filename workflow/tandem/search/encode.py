"""Stage `embeddings`: vectors of the passages, or of a split's queries, by a dual encoder.

Rows are encoded in blocks of a fixed size. Shards (`embeddings-shard`, one process or machine each) take whole blocks,
the stage itself makes those still missing and writes the manifest: the bytes are the same however the work was split.
While the model computes a block, a thread reads the token ids of the next and another one writes the last: memory is
that of three blocks, whatever the size of the corpus.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.artifact import Job, write_json, writing
from tandem.data.collection import Collection
from tandem.data.rows import Rows, query_rows, split_rows
from tandem.models.device import kernels
from tandem.overlap import ahead, behind
from tandem.progress import Progress, say
from tandem.search.blocks import Blocks, Vectors, block_name
from tandem.search.encoder import Encoder, dtype
from tandem.search.partners import part_files, require_dataset, require_part
from tandem.search.shards import read_shard


def select(job: Job) -> tuple[Rows | range, list[str] | None]:
    """The rows to encode, in order, and the ids of queries (None for passages, which keep the corpus' order)."""
    collection = Collection(job.inputs["dataset"])
    if job.params["side"] == "passages":
        return range(collection.passages), None
    rows = split_rows(collection, job.params["split"])
    return rows, query_rows(collection).ids(rows)


def origin(job: Job) -> str:
    """Digest of what decides the vectors: parameters and the very files they are made from."""
    inputs = {role: job.inputs[role].manifest["files"] for role in ("dataset", "tokens")}
    inputs["model"] = part_files(job.inputs["model"], "dual")
    return hashlib.sha256(json.dumps([job.params, inputs], sort_keys=True).encode()).hexdigest()


def blocks_of(job: Job, rows: Rows | range) -> Blocks:
    """The blocks that `rows` are encoded in."""
    return Blocks(job.out, len(rows), job.params["block"], origin(job), dtype(job))


def encode_blocks(job: Job, rows: Rows | range, blocks: Blocks, numbers: range) -> dict[int, dict[str, Any]]:
    """Make the blocks that are still missing among `numbers`.

    Returns:
        What is known about each of them, in order.
    """
    told = blocks.finished(numbers, job.key, job.execution.workers or 1)
    missing = [number for number in numbers if number not in told]
    if missing:
        encoder = Encoder(job)
        facts = {"model": job.inputs["model"].key, "precision": encoder.mode, "device": kernels()}
        sizes = {number: len(rows[blocks.span(number)]) for number in numbers}
        texts = ((number, encoder.read(rows[blocks.span(number)])) for number in missing)

        def keep(number: int, vectors: Vectors) -> None:
            """Write a block."""
            told[number] = blocks.write(number, vectors, facts)

        done = sum(sizes[number] for number in told)
        with (
            Progress(f"encode {job.key}", sum(sizes.values()), job.params["side"], done=done) as progress,
            behind(keep) as put,
            ahead(texts) as coming,
        ):
            for number, part in coming:
                put(number, encoder.encode(part, progress))
    return {number: told[number] for number in numbers}


def main_shard(words: list[str]) -> int:
    """Command `embeddings-shard`: make every n-th block, beginning with this shard's number; see `read_shard`."""
    job, shard, shards = read_shard("embeddings", words)
    rows, _ = select(job)
    blocks = blocks_of(job, rows)
    told = encode_blocks(job, rows, blocks, range(shard, len(blocks), shards))
    write_json(Path(words[words.index("--out") + 1]), {block_name(n): facts for n, facts in told.items()})
    return 0


def run(job: Job) -> None:
    """Make what no shard has made, check every block, and write the manifest."""
    require_dataset(job, "tokens")
    rows, ids = select(job)
    blocks = blocks_of(job, rows)
    told = encode_blocks(job, rows, blocks, range(len(blocks)))
    blocks.tidy()
    made = {what: sorted({facts.get(what, "unknown") for facts in told.values()}) for what in ("precision", "device")}
    for what, found in made.items():
        if len(found) > 1:
            say(f"embeddings {job.key}: blocks were made in {what} {' and '.join(found)}, of other last bits")
    with writing(job) as draft:
        for number, facts in told.items():
            draft.keep(block_name(number), blocks.path(number).stat().st_size, facts["sha256"])
        write_json(draft.path("meta.json"), describe(job, blocks))
        if ids is not None:
            pq.write_table(pa.table({"query_id": pa.array(ids, pa.string())}), draft.path("ids.parquet"))
        draft.facts |= {job.params["side"]: len(rows), "blocks": len(blocks), **made}


def describe(job: Job, blocks: Blocks) -> dict[str, Any]:
    """What a searcher must know about the vectors."""
    model = job.inputs["model"]
    dual = json.loads((require_part(model, "dual") / "dual.json").read_text())
    told = {"rows": blocks.rows, "block": blocks.size, "dtype": blocks.dtype}
    told |= {"side": job.params["side"], "model": model.key}
    return told | {name: dual[name] for name in ("dimension", "pooling", "normalize", "temperature")}
